"""An idempotent producer: batches per partition, sends them as Arrow, repeats safely (KIP-98, KIP-480).

Each partition has one request in flight, so order is kept; a repeat is the very same bytes under the same
sequence, so a record is in the log once however often its answer is lost.
"""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import pyarrow as pa

from lakelog.client import ARROW, Client
from lakelog.settings import DEFAULT_URL
from log_tables import errors
from log_tables.clock import Clock, SystemClock
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import MIB, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS
from log_tables.partition import partition_for_key
from log_tables.record import Record, input_batch

SENDERS = 8
"""Requests in flight at once, to as many partitions."""

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0
"""Between repeats of a request, when the gateway does not say how long."""

METADATA_MAX_AGE_S = 60.0
"""After this long a topic is asked again how many partitions it has."""

RECORD_OVERHEAD_BYTES = 64
"""What a record weighs in the buffer beside its key and value."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is. `offset` is None with acks=0, and for a repeat whose offset was forgotten."""

    topic: str
    partition: int
    offset: int | None


@dataclass(slots=True)
class _Batch:
    """Records of one partition that go in one request."""

    begun: float
    records: list[Record] = field(default_factory=list)
    futures: "list[Future[RecordMetadata]]" = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True)
class _Lane:
    """One partition: what waits for it, and where its sequences are."""

    topic: str
    partition: int
    waiting: deque[_Batch] = field(default_factory=deque)
    busy: bool = False
    epoch: int = 0
    sequence: int = 0


@dataclass(slots=True)
class _Topic:
    partitions: int
    asked: float
    sticky: int = 0


class Producer:
    """Sends records to the gateway at `url`. Thread-safe; close it, or use it as a context manager.

    `linger_ms` and `batch_size` (bytes) say when a batch is sent, `buffer_memory` (bytes) how much may wait:
    `send` blocks when it is full. A batch that is not acknowledged within `delivery_timeout_ms` fails.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        acks: str = "all",
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        buffer_memory: int = 64 * MIB,
        delivery_timeout_ms: int = 120_000,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if acks not in ("0", "1", "all"):
            raise InvalidArgument(f"acks={acks!r} is not known; use '0', '1' or 'all'")
        self._clock = clock or SystemClock()
        self._client = Client(url, transport=transport, clock=self._clock)
        self._acks, self._linger_s, self._batch_size = acks, linger_ms / 1000, batch_size
        self._buffer_memory, self._timeout_s = buffer_memory, delivery_timeout_ms / 1000
        self._id = int(self._clock.random_hex(15), 16)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._topics: dict[str, _Topic] = {}
        self._buffered = 0
        self._flushing = 0
        self._closed = False
        self._changed = threading.Condition()
        self._senders = ThreadPoolExecutor(SENDERS, "producer-send")
        self._dispatcher = threading.Thread(target=self._dispatch, name="producer", daemon=True)
        self._dispatcher.start()

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
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> "Future[RecordMetadata]":
        """Send a record; the future says where it is, or raises why it is not.

        A record goes to `partition`, else to its key's, else to the sticky one. Blocks while the buffer is
        full. Raises UnknownTopic, InvalidArgument, BufferFull when it stays full for delivery_timeout_ms.
        """
        self._check_open()
        known = self._topic(topic)
        size = len(value or b"") + len(key or b"") + RECORD_OVERHEAD_BYTES
        stamp = self._clock.now_us() if timestamp_ms is None else timestamp_ms * 1000
        record = Record(value, key, headers, stamp)
        future: Future[RecordMetadata] = Future()
        with self._changed:
            self._reserve(size)
            if partition is None:
                partition = known.sticky if key is None else partition_for_key(key, known.partitions)
            elif not 0 <= partition < known.partitions:
                self._buffered -= size
                raise InvalidArgument(
                    f"topic {topic!r} has partitions 0 to {known.partitions - 1}, not {partition}"
                )
            self._add(self._lane(topic, partition), record, future, size, known)
        return future

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the producer is closed; make another")

    def _reserve(self, size: int) -> None:
        self._check_open()

        def room() -> bool:
            return self._buffered == 0 or self._buffered + size <= self._buffer_memory

        if not self._changed.wait_for(room, self._timeout_s):
            raise errors.BufferFull(
                f"{self._buffered} bytes wait and none were sent for {self._timeout_s:g} s; look at the "
                "gateway",
                retry_after_s=1,
            )
        self._buffered += size

    def _add(
        self, lane: _Lane, record: Record, future: "Future[RecordMetadata]", size: int, known: _Topic
    ) -> None:
        if not lane.waiting or lane.waiting[-1].size_bytes >= self._batch_size:
            lane.waiting.append(_Batch(self._clock.monotonic()))
            self._changed.notify_all()
        batch = lane.waiting[-1]
        batch.records.append(record)
        batch.futures.append(future)
        batch.size_bytes += size
        if batch.size_bytes >= self._batch_size:
            if record.key is None:
                known.sticky = (lane.partition + 1) % known.partitions
            self._changed.notify_all()

    def _topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        now = self._clock.monotonic()
        if known is None or now - known.asked > METADATA_MAX_AGE_S:
            count = self._client.partition_count(name)
            sticky = int(self._clock.random() * count) if known is None else known.sticky
            known = self._topics[name] = _Topic(count, now, sticky)
        return known

    def _lane(self, topic: str, partition: int) -> _Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        return lane

    def flush(self) -> None:
        """Return when everything sent so far is acknowledged or has failed; the futures say which."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._buffered == 0)
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """Flush, then end the threads and connections. Closing twice is fine."""
        if self._closed:
            return
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._dispatcher.join()
        self._senders.shutdown()
        self._client.close()

    def _dispatch(self) -> None:
        """Hand batches that are due to the senders, one at a time for each partition."""
        with self._changed:
            while not self._closed:
                now = self._clock.monotonic()
                idle = [lane for lane in self._lanes.values() if lane.waiting and not lane.busy]
                due = [lane for lane in idle if self._due_s(lane.waiting[0], now) <= 0]
                for lane in due:
                    lane.busy = True
                    self._senders.submit(self._deliver, lane, lane.waiting.popleft())
                rest = [self._due_s(lane.waiting[0], now) for lane in idle if not lane.busy]
                self._changed.wait(min(rest, default=None))

    def _due_s(self, batch: _Batch, now: float) -> float:
        """Seconds until `batch` is to be sent."""
        if batch.size_bytes >= self._batch_size or self._flushing:
            return 0.0
        return batch.begun + self._linger_s - now

    def _deliver(self, lane: _Lane, batch: _Batch) -> None:
        # A future that was cancelled until now takes its record with it; from here on none can be.
        pairs = zip(batch.records, batch.futures, strict=True)
        going = [(record, future) for record, future in pairs if future.set_running_or_notify_cancel()]
        try:
            if going:
                self._settle(lane, going)
        finally:
            with self._changed:
                lane.busy = False
                self._buffered -= batch.size_bytes
                self._changed.notify_all()

    def _settle(self, lane: _Lane, going: "Sequence[tuple[Record, Future[RecordMetadata]]]") -> None:
        """Post the records and say so to their futures.

        A request is refused whole for one bad record, with nothing written: then each half is tried by
        itself, so that only the bad one fails.
        """
        try:
            base = self._post(lane, _encode([record for record, _ in going]))
        except BaseException as error:
            if isinstance(error, errors.InvalidRecord | errors.RecordTooLarge) and len(going) > 1:
                half = len(going) // 2
                self._settle(lane, going[:half])
                self._settle(lane, going[half:])
                return
            for _, future in going:
                future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for place, (_, future) in enumerate(going):
                offset = None if base is None else base + place
                future.set_result(RecordMetadata(lane.topic, lane.partition, offset))

    def _post(self, lane: _Lane, encoded: tuple[bytes, int]) -> int | None:
        """Send until it is acknowledged; returns the base offset.

        Raises why it is not in the log, or OutcomeUnknown, and goes on under a new epoch then: nothing that
        may be in the log is ever sent again under another number.
        """
        body, count = encoded
        deadline = self._clock.monotonic() + self._timeout_s
        pause_s, uncertain = PAUSE_FIRST_S, False
        while True:
            try:
                base = self._once(lane, body)
                lane.sequence = (lane.sequence + count) % SEQUENCE_MODULUS
                return base
            except (errors.Retriable, errors.OutcomeUnknown) as error:
                uncertain = uncertain or not isinstance(error, errors.NotLeader | errors.BufferFull)
                pause_s = min(float(error.details.get("retry_after_s", pause_s * 2)), PAUSE_MAX_S)
                if self._clock.monotonic() + pause_s > deadline:
                    self._renew(lane)
                    raise _given_up(error, uncertain, self._timeout_s) from None
                self._clock.pause(pause_s)
            except errors.SequenceGap as error:
                # Idle for so long that the log forgot us: what was never sent before may begin anew.
                forgotten = error.details.get("expected") == 0 and lane.sequence != 0 and not uncertain
                self._renew(lane)
                if not forgotten:
                    raise

    def _once(self, lane: _Lane, body: bytes) -> int | None:
        headers = {
            "Content-Type": ARROW,
            "Producer-Id": str(self._id),
            "Producer-Epoch": str(lane.epoch),
            "Producer-Seq": str(lane.sequence),
        }
        path = f"/topics/{lane.topic}/partitions/{lane.partition}?acks={self._acks}"
        placed = self._client.post(path, body, headers).json()["offsets"][0]
        base: int | None = placed["base_offset"]
        return base

    def _renew(self, lane: _Lane) -> None:
        lane.epoch = min(lane.epoch + 1, PRODUCER_EPOCH_MAX)
        lane.sequence = 0


def _given_up(error: LakelogError, uncertain: bool, timeout_s: float) -> LakelogError:
    if not uncertain:
        return error
    return errors.OutcomeUnknown(
        f"not acknowledged within {timeout_s:g} s, so the records may be in the log or not: {error.message}"
    )


def _encode(records: Sequence[Record]) -> tuple[bytes, int]:
    batch = input_batch(records, 0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes(), len(records)
