"""Batches on their way to a gateway: bounded in memory, one request at a time for a partition, in threads.

It knows nothing of the producer that hands it records, so a producer that is no longer referenced is
collected while its threads run.
"""

import math
import threading
from dataclasses import dataclass
from urllib.parse import quote

from lakelog.client.client import ARROW, Client
from lakelog.client.delivery import BatchResult, Delivery, Undelivered, check_may_wait
from lakelog.client.outgoing import Headers
from lakelog.client.partition_queue import Batch, PartitionQueue
from log_tables.clock import Clock
from log_tables.errors import BufferFull, InvalidArgument, LakelogError, NotFound
from log_tables.topic_partition import partition_for_key

SENDERS_MAX = 8
"""Requests in flight at once, each to another partition."""

RECORD_OVERHEAD_BYTES = 256
"""Bytes that Python's objects for a record take in addition to its own."""


@dataclass(slots=True)
class TopicMetadata:
    """A topic, as it was at `fetched_s`, and the partition that records without a key go to at the moment."""

    name: str
    partitions: int
    max_message_bytes: int
    fetched_s: float
    sticky: int


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


class Dispatch:
    """Sends records to a gateway in the background. Thread-safe.

    It drops topics from `topics` that the gateway no longer has.
    """

    def __init__(
        self,
        client: Client,
        producer_id: int,
        topics: dict[str, TopicMetadata],
        config: ProducerConfig,
        clock: Clock,
    ) -> None:
        self._client, self._id, self._topics = client, producer_id, topics
        self._config, self._clock = config, clock
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._buffered = 0
        self._undelivered = Undelivered()
        self._closed = self._draining = self._ended = False
        # Reentrant: `abandon` may be called by the garbage collector, in the middle of anything.
        lock = threading.RLock()
        self._work, self._room = threading.Condition(lock), threading.Condition(lock)
        self._senders: list[threading.Thread] = []

    def add(
        self,
        topic: TopicMetadata,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size: int,
    ) -> Delivery:
        """Add a record of `size` bytes; waits for room. Raises BufferFull, InvalidArgument if closed."""
        with self._work:
            self._reserve(size + RECORD_OVERHEAD_BYTES)
            batch = self._batch(topic, key, partition, size)
            batch.size_bytes += size
            batch.held_bytes += size + RECORD_OVERHEAD_BYTES
            if batch.size_bytes >= self._config.batch_size:
                batch.sealed = True
                self._work.notify()
            return batch.add(value, key, headers, timestamp_ms)

    def flush(self) -> None:
        """Send what waits at once, and return when the result of all of it is known.

        Raises InvalidArgument in a callback.
        """
        check_may_wait(self._senders)
        with self._work:
            waiting = self._seal()
        for batch in waiting:
            batch.result.wait()

    def undelivered(self) -> Exception | None:
        """The error of the records that failed and were not reported yet; they are reported with it."""
        with self._work:
            return self._undelivered.pop()

    def stop_accepting(self) -> None:
        """Accept no more records. Raises InvalidArgument in a callback."""
        check_may_wait(self._senders)
        with self._work:
            self._closed = True
            self._room.notify_all()

    def end(self) -> None:
        """End the threads and connections. Records that still wait are never sent."""
        with self._work:
            self._ended = True
            self._work.notify_all()
        for sender in self._senders:
            sender.join()
        self._client.close()

    def abandon(self) -> int:
        """Send what waits, and end without a caller. Returns how many records wait."""
        with self._work:
            self._closed = self._draining = True
            return sum(batch.result.records for batch in self._seal())

    def check_open(self) -> None:
        """Raise InvalidArgument when it accepts no more records."""
        if self._closed:
            raise InvalidArgument("the producer is closed; create another")

    def _seal(self) -> list[Batch]:
        """Make all batches due now. Returns them."""
        waiting = [batch for queue in self._queues.values() for batch in queue.batches]
        for batch in waiting:
            batch.sealed = True
        self._work.notify_all()
        return waiting

    def _reserve(self, size: int) -> None:
        """Take room in the buffer, waiting for it. A record larger than the buffer goes through it alone."""
        limit = self._config.buffer_memory

        def free() -> bool:
            return self._closed or self._buffered == 0 or self._buffered + size <= limit

        if not self._room.wait_for(free, self._config.max_block_s):
            raise BufferFull(
                f"{self._buffered} of {limit} bytes wait for the gateway, and for "
                f"{self._config.max_block_s:g} s there was no room for {size} more; send less, or "
                "raise buffer_memory",
                retry_after_s=1,
            )
        self.check_open()
        self._buffered += size

    def _batch(self, topic: TopicMetadata, key: bytes | None, partition: int | None, size: int) -> Batch:
        """The batch that a record of `size` bytes joins."""
        if partition is None and key is not None:
            partition = partition_for_key(key, topic.partitions)
        if partition is None:
            queue = self._queue(topic.name, topic.sticky)
            batch = self._fitting(queue, size)
            if batch is not None:
                return batch
            partition = topic.sticky = (topic.sticky + 1) % topic.partitions
        queue = self._queue(topic.name, partition)
        return self._fitting(queue, size) or self._open(queue)

    def _fitting(self, queue: PartitionQueue, size: int) -> Batch | None:
        """The open batch of `queue`, if it has room; without room it is sealed."""
        batch = queue.open_batch()
        if batch is not None and batch.size_bytes + size > self._config.batch_size:
            batch.sealed = True
            self._work.notify()
            return None
        return batch

    def _open(self, queue: PartitionQueue) -> Batch:
        now_s = self._clock.monotonic()
        result = BatchResult(queue.topic, queue.partition, self._senders)
        batch = Batch(result, now_s + self._config.linger_s, now_s + self._config.delivery_s)
        queue.batches.append(batch)
        self._work.notify()
        return batch

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(
                topic, partition, idempotent=self._config.acks != "0"
            )
            if len(self._senders) < SENDERS_MAX:
                sender = threading.Thread(target=self._run, name="lakelog-producer", daemon=True)
                self._senders.append(sender)
                sender.start()
        return queue

    def _run(self) -> None:
        """The loop of a sender thread: wait for a partition whose first batch is due, and send that."""
        while (queue := self._next()) is not None:
            self._deliver(queue)

    def _next(self) -> PartitionQueue | None:
        """Wait for a batch that is due and take it in hand. Returns None at the end."""
        with self._work:
            while not self._ended:
                now_s = self._clock.monotonic()
                queue = min(self._queues.values(), key=PartitionQueue.due_s)
                due_s = queue.due_s()
                if due_s <= now_s:
                    queue.begin()
                    self._work.notify()  # the next one watches over what comes next
                    return queue
                if self._draining and not any(each.batches for each in self._queues.values()):
                    self._ended = True
                    self._work.notify_all()
                    self._client.close()
                else:
                    self._work.wait(None if due_s == math.inf else due_s - now_s)
        return None

    def _deliver(self, queue: PartitionQueue) -> None:
        """One attempt to send the batch in hand of `queue`."""
        batch, base = queue.batches[0], None
        try:
            left_s = batch.deadline_s - self._clock.monotonic()
            if left_s > 0:
                base = self._post(queue, batch, min(left_s, self._config.request_s))
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the futures must hear of it
            with self._work:
                error = queue.failed(failure, self._clock.monotonic())
                if error is None:
                    self._work.notify()
                    return
        else:
            error = None if left_s > 0 else queue.expired()
            if error is None:
                queue.delivered()
        self._put_down(queue, batch, base, error)

    def _put_down(
        self, queue: PartitionQueue, batch: Batch, base: int | None, error: Exception | None
    ) -> None:
        """Set the result of the batch in hand of `queue`, and go on with the next."""
        if isinstance(error, NotFound):
            self._topics.pop(queue.topic, None)
        with self._work:
            if error is not None:
                self._undelivered.add(batch.result, error)
            self._buffered -= batch.held_bytes
            self._room.notify_all()  # first: a callback may send more
        batch.result.resolve(base, error)
        with self._work:
            queue.put_down()  # last: callbacks of a partition are called in its order
            self._work.notify()

    def _post(self, queue: PartitionQueue, batch: Batch, timeout_s: float) -> int | None:
        """Send a batch; returns its base offset."""
        headers = {"Content-Type": ARROW}
        if queue.idempotent:
            headers |= {
                "Producer-Id": str(self._id),
                "Producer-Epoch": str(queue.epoch),
                "Producer-Seq": str(queue.sequence),
            }
        path = f"/topics/{quote(queue.topic, safe='')}/partitions/{queue.partition}"
        answer = self._client.post(f"{path}?acks={self._config.acks}", batch.body(), headers, timeout_s)
        try:
            base: int | None = answer.json()["offsets"][0]["base_offset"]
        except (ValueError, LookupError, TypeError):
            raise LakelogError(
                f"the answer of {self._client.url} is not that of a gateway; name the url of one"
            ) from None
        return base
