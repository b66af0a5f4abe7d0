"""The records that a producer holds: in batches by partition, bounded in memory. No threads, no network.

Its owner holds a lock, or has one thread.
"""

import math
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from lakelog.client.producer.delivery import BatchResult, Undelivered
from lakelog.client.producer.outgoing import Headers, TopicMetadata, checked_size
from lakelog.client.producer.partition_queue import RECORD_OVERHEAD_BYTES, Batch, PartitionQueue
from log_tables.clock import Clock
from log_tables.errors import BufferFull, InvalidArgument
from log_tables.key_hash import partition_for_key

METADATA_MAX_AGE_S = 300.0
"""How long a topic's partition count is believed (Kafka's metadata.max.age.ms)."""

SENDERS_MAX = 8
"""Requests in flight at once, each to another partition."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The settings of a producer that are about sending; seconds and bytes."""

    acks: str
    linger_s: float
    batch_size: int
    buffer_memory: int
    max_block_s: float
    request_s: float
    delivery_s: float


class Accumulator:
    """`wake` is called when a batch may have become due, `freed` when there is room."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        *,
        wake: Callable[[], None],
        freed: Callable[[], None],
        senders: Collection[threading.Thread] = (),
    ) -> None:
        self._config, self._clock, self._senders = config, clock, senders
        self._now_ms = clock.now_ms
        self._batch_size, self._buffer_memory = config.batch_size, config.buffer_memory
        self.wake, self.freed = wake, freed
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.undelivered = Undelivered()
        self.closed = False
        self._buffered = 0

    def add(
        self,
        topic: TopicMetadata,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> tuple[BatchResult, int] | int:
        """Add a record; returns its batch's result and its place in the batch.

        Where there is no room now, it returns the bytes that it takes. Raises as `checked_size`, and
        InvalidArgument when it is closed.
        """
        if headers:
            headers = tuple(headers)
        size = checked_size(topic, value, key, headers, timestamp_ms)
        held = size + RECORD_OVERHEAD_BYTES
        if self._buffered + held > self._buffer_memory or self.closed:
            self.check_open()
            if not self.has_room(size):
                return size
        batch = self._batch(topic, key, partition, size)
        batch.size_bytes += size
        self._buffered += held
        if batch.size_bytes >= self._batch_size:
            batch.sealed = True
            self.wake()
        stamp_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        return batch.result, batch.add(value, key, headers, stamp_ms)

    def has_room(self, size: int) -> bool:
        """Whether a record need not wait. One that is larger than the buffer goes through it alone."""
        held = self._buffered
        return not held or held + size + RECORD_OVERHEAD_BYTES <= self._buffer_memory or self.closed

    def full(self, size: int) -> BufferFull:
        """The error of a record that has waited for room for too long."""
        return BufferFull(
            f"{self._buffered} of {self._buffer_memory} bytes wait for the gateway, and for "
            f"{self._config.max_block_s:g} s there was no room for {size + RECORD_OVERHEAD_BYTES} more; "
            "send less, or raise buffer_memory",
            retry_after_s=1,
        )

    def check_open(self) -> None:
        """Raise InvalidArgument when it accepts no more records."""
        if self.closed:
            raise InvalidArgument("the producer is closed; create another")

    def close(self) -> None:
        """Accept no more records."""
        self.closed = True
        self.freed()

    def seal(self) -> list[Batch]:
        """Make all batches due now. Returns them."""
        waiting = [batch for queue in self.queues.values() for batch in queue.batches]
        for batch in waiting:
            batch.sealed = True
        self.wake()
        return waiting

    def next(self) -> PartitionQueue | float:
        """The partition whose batch is due first, taken in hand; else the seconds until one is."""
        if not self.queues:
            return math.inf
        now_s = self._clock.monotonic()
        queue = min(self.queues.values(), key=PartitionQueue.due_s)
        due_s = queue.due_s()
        if due_s > now_s:
            return due_s - now_s
        queue.begin()
        return queue

    def release(self, batch: Batch, error: Exception | None) -> None:
        """Give the room of a batch back that is delivered, or given up because of `error`."""
        if error is not None:
            self.undelivered.add(batch.result, error)
        self._buffered -= batch.held_bytes
        self.freed()

    def _batch(self, topic: TopicMetadata, key: bytes | None, partition: int | None, size: int) -> Batch:
        """The batch that a record of `size` bytes joins."""
        at = partition
        if at is None:
            at = topic.sticky if key is None else partition_for_key(key, topic.partitions, topic.key_hash)
        queue = self.queues.get((topic.name, at)) or self._queue(topic.name, at)
        batch = queue.batches[-1] if queue.batches else None
        if batch is not None and not batch.sealed:
            if batch.size_bytes + size <= self._batch_size:
                return batch
            batch.sealed = True
            self.wake()
        if partition is None and key is None:
            topic.sticky = (at + 1) % topic.partitions
            return self._batch(topic, None, topic.sticky, size)
        return self._open(topic, queue)

    def _open(self, topic: TopicMetadata, queue: PartitionQueue) -> Batch:
        now_s = self._clock.monotonic()
        topic.is_old = now_s - topic.fetched_s > METADATA_MAX_AGE_S
        result = BatchResult(queue.topic, queue.partition, self._senders)
        batch = Batch(result, now_s + self._config.linger_s, now_s + self._config.delivery_s)
        queue.batches.append(batch)
        self.wake()
        return batch

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        made = PartitionQueue(topic, partition, idempotent=self._config.acks != "0")
        self.queues[topic, partition] = made
        return made
