"""An idempotent producer: gathers records in a batch for each partition and sends them in the background."""

import math
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from lakelog.client import ARROW, Client
from lakelog.delivery import Delivery, Outcome, RecordMetadata, refused
from lakelog.lane import Batch, Lane
from lakelog.outgoing import Headers, check_record
from lakelog.settings import DEFAULT_URL
from log_tables.clock import Clock, SystemClock
from log_tables.errors import (
    BufferFull,
    InvalidArgument,
    InvalidRequest,
    LakelogError,
    NotFound,
    RecordTooLarge,
    Retriable,
    UnknownPartition,
)
from log_tables.limits import MIB
from log_tables.partition import partition_for_key

__all__ = ["Producer", "RecordMetadata"]

SENDERS_MAX = 8
"""Requests in flight at once, each to another partition."""

METADATA_MAX_AGE_S = 300.0
"""How long a topic's partition count is believed (Kafka's metadata.max.age.ms)."""

RECORD_OVERHEAD_BYTES = 256
"""What Python's objects for a record take beside its bytes."""


@dataclass(slots=True)
class _Topic:
    """What the producer knows of a topic, and where records without a key go at the moment."""

    name: str
    partitions: int
    max_message_bytes: int
    asked_s: float
    sticky: int


class Producer:
    """Sends records to the gateway at `url`. Thread-safe; close it, or use it as a context manager.

    Each record is in the log once, and in the order of `send` within its partition, also when answers are
    lost, and when the gateway dies and comes back within `delivery_timeout_ms`. That is so with acks "all";
    docs/guarantees.md says what "1" and "0" may lose. What is still on its way when the process ends is lost.

    A batch is sent `linger_ms` after its first record, or with `batch_size` bytes. `buffer_memory` (bytes)
    bounds what waits; when it is full, `send` blocks for up to `max_block_ms`. The names and meanings are
    Kafka's. `transport` replaces the network (httpx's transports).
    """

    def __init__(  # noqa: PLR0913 -- the settings of Kafka's producer
        self,
        url: str = DEFAULT_URL,
        *,
        acks: str = "all",
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        buffer_memory: int = 64 * MIB,
        max_block_ms: float = 60_000,
        request_timeout_ms: float = 30_000,
        delivery_timeout_ms: float = 120_000,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if acks not in ("0", "1", "all"):
            raise InvalidArgument(f"acks={acks!r} is not known; use '0', '1' or 'all'")
        self._clock = clock or SystemClock()
        self._acks, self._linger_s, self._batch_size = acks, linger_ms / 1000, batch_size
        self._buffer_memory, self._max_block_s = buffer_memory, max_block_ms / 1000
        self._request_s, self._delivery_s = request_timeout_ms / 1000, delivery_timeout_ms / 1000
        self._client = Client(url, timeout_s=self._request_s, transport=transport, clock=self._clock)
        self._id = int(self._clock.random_hex(16), 16) >> 1  # 63 bits
        self._topics: dict[str, _Topic] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._buffered = 0
        self._closed = self._ended = False
        lock = threading.Lock()
        self._work, self._room = threading.Condition(lock), threading.Condition(lock)
        self._senders: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hand over a record; its future says where it is, or raises why it is not there.

        It goes to `partition`, else to that of its key (murmur3), else to the one whose batch is being filled
        (KIP-480). Without `timestamp_ms` (since 1970 UTC) it has the time of this call. A record that cannot
        be sent fails alone: its future raises InvalidRecord or RecordTooLarge. Raises UnknownTopic,
        UnknownPartition, Unreachable when no gateway answers that tells about the topic, and BufferFull
        when there is no room for `max_block_ms`.
        """
        self._check_open()
        known = self._topic(topic, partition)
        headers = tuple(headers)
        stamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        try:
            size = _checked_size(known, value, key, headers, stamp_ms)
        except InvalidRequest as error:
            return refused(topic, error)
        with self._work:
            self._reserve(size + RECORD_OVERHEAD_BYTES)
            batch = self._batch(known, key, partition, size)
            batch.size_bytes += size
            batch.held_bytes += size + RECORD_OVERHEAD_BYTES
            if batch.size_bytes >= self._batch_size:
                batch.sealed = True
                self._work.notify()
            return batch.add(value, key, headers, stamp_ms)

    def flush(self) -> None:
        """Send what waits, at once, and return when all of it is acknowledged or given up."""
        with self._work:
            waiting = [batch for lane in self._lanes.values() for batch in lane.batches]
            for batch in waiting:
                batch.sealed = True
            self._work.notify_all()
        for batch in waiting:
            batch.outcome.wait()

    def close(self) -> None:
        """Refuse more, flush, and end the threads and connections. Closing twice is fine."""
        with self._work:
            self._closed = True
            self._room.notify_all()
        self.flush()
        with self._work:
            self._ended = True
            self._work.notify_all()
        for sender in self._senders:
            sender.join()
        self._client.close()

    def _topic(self, name: str, partition: int | None) -> _Topic:
        """The topic, asked for when it is not known, or for too long, or too small for `partition`."""
        known, now_s = self._topics.get(name), self._clock.monotonic()
        if known is None or (partition is not None and not 0 <= partition < known.partitions):
            known = self._ask(name)
        elif now_s - known.asked_s > METADATA_MAX_AGE_S:
            known.asked_s = now_s
            try:
                known = self._ask(name)
            except Retriable:
                pass  # what was true five minutes ago will do until a gateway answers again
        if partition is not None and not 0 <= partition < known.partitions:
            raise UnknownPartition(
                f"topic {name!r} has no partition {partition}; it has 0 to {known.partitions - 1}"
            )
        return known

    def _ask(self, name: str) -> _Topic:
        found = self._client.topic(name)
        count, largest = len(found["partitions"]), int(found["configs"]["max.message.bytes"])
        before = self._topics.get(name)
        sticky = int(self._clock.random() * count) if before is None else before.sticky % count
        known = self._topics[name] = _Topic(name, count, largest, self._clock.monotonic(), sticky)
        return known

    def _reserve(self, size: int) -> None:
        """Take room in the buffer, waiting for it. A record larger than the buffer goes through it alone."""

        def free() -> bool:
            return self._closed or self._buffered == 0 or self._buffered + size <= self._buffer_memory

        if not self._room.wait_for(free, self._max_block_s):
            raise BufferFull(
                f"{self._buffered} of {self._buffer_memory} bytes wait for the gateway, and for "
                f"{self._max_block_s:g} s there was no room for {size} more; look at the gateway",
                retry_after_s=1,
            )
        self._check_open()
        self._buffered += size

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the producer is closed; make another")

    def _batch(self, known: _Topic, key: bytes | None, partition: int | None, size: int) -> Batch:
        """The batch that a record of `size` bytes joins."""
        if partition is None and key is not None:
            partition = partition_for_key(key, known.partitions)
        if partition is None:
            lane = self._lane(known.name, known.sticky)
            batch = self._fitting(lane, size)
            if batch is not None:
                return batch
            partition = known.sticky = (known.sticky + 1) % known.partitions
        lane = self._lane(known.name, partition)
        return self._fitting(lane, size) or self._open(lane)

    def _fitting(self, lane: Lane, size: int) -> Batch | None:
        """The open batch of `lane`, if it has room; without room it is sealed."""
        batch = lane.open_batch()
        if batch is not None and batch.size_bytes + size > self._batch_size:
            batch.sealed = True
            self._work.notify()
            return None
        return batch

    def _open(self, lane: Lane) -> Batch:
        now_s = self._clock.monotonic()
        outcome = Outcome(lane.topic, lane.partition)
        batch = Batch(outcome, now_s + self._linger_s, now_s + self._delivery_s)
        lane.batches.append(batch)
        self._work.notify()
        return batch

    def _lane(self, topic: str, partition: int) -> Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = Lane(topic, partition, stamped=self._acks != "0")
            if len(self._senders) < SENDERS_MAX:
                sender = threading.Thread(target=self._run, name="lakelog-producer", daemon=True)
                self._senders.append(sender)
                sender.start()
        return lane

    def _run(self) -> None:
        """What each sender thread does: take a partition whose first batch is due, send that, again."""
        while (lane := self._next()) is not None:
            self._deliver(lane)

    def _next(self) -> Lane | None:
        """Wait for a batch that is due and take it in hand; None at the end."""
        with self._work:
            while not self._ended:
                now_s = self._clock.monotonic()
                lane = min(self._lanes.values(), key=Lane.due_s)
                due_s = lane.due_s()
                if due_s <= now_s:
                    lane.begin()
                    self._work.notify()  # the next one watches over what comes next
                    return lane
                self._work.wait(None if due_s == math.inf else due_s - now_s)
        return None

    def _deliver(self, lane: Lane) -> None:
        """One attempt to send the batch in hand of `lane`."""
        batch, base = lane.batches[0], None
        try:
            left_s = batch.deadline_s - self._clock.monotonic()
            if left_s > 0:
                base = self._post(lane, batch, min(left_s, self._request_s))
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the futures must hear of it
            with self._work:
                error = lane.failed(failure, self._clock.monotonic())
                if error is None:
                    self._work.notify()
                    return
        else:
            error = None if left_s > 0 else lane.expired()
            if error is None:
                lane.delivered()
        if isinstance(error, NotFound):
            self._topics.pop(lane.topic, None)
        batch.outcome.settle(base, error)
        with self._work:
            lane.put_down()
            self._buffered -= batch.held_bytes
            self._room.notify_all()
            self._work.notify()

    def _post(self, lane: Lane, batch: Batch, timeout_s: float) -> int | None:
        """Send a batch; returns its base offset."""
        headers = {"Content-Type": ARROW}
        if lane.stamped:
            headers |= {
                "Producer-Id": str(self._id),
                "Producer-Epoch": str(lane.epoch),
                "Producer-Seq": str(lane.sequence),
            }
        path = f"/topics/{quote(lane.topic, safe='')}/partitions/{lane.partition}"
        answer = self._client.post(f"{path}?acks={self._acks}", batch.body(), headers, timeout_s)
        try:
            base: int | None = answer.json()["offsets"][0]["base_offset"]
        except (ValueError, LookupError, TypeError):
            raise LakelogError(f"the answer of {self._client.url} is not a gateway's; is it one?") from None
        return base


def _checked_size(
    known: _Topic, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int
) -> int:
    """Bytes of a record that can be sent: one that the gateway refuses would take its whole batch with it."""
    check_record(value, key, headers, timestamp_ms)
    size = len(value or b"") + len(key or b"")
    if size > known.max_message_bytes:
        raise RecordTooLarge(
            f"the record has {size} bytes, topic {known.name!r} takes {known.max_message_bytes}; send less, "
            "or raise max.message.bytes"
        )
    return size + sum(len(name.encode()) + len(content or b"") for name, content in headers)
