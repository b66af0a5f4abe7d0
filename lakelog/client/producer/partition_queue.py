"""The batches that wait for one partition, and its sequence numbers: no threads, no network.

A batch gets its sequence when it is sent first, and keeps it while it may be in the log: what is repeated is
the very same request, so the gateway knows it again (KIP-98). When a batch is given up, or the gateway has
forgotten the producer, the epoch is raised and sequences begin at 0 (KIP-360); the gateway then refuses
requests of the older epoch that are still under way.
"""

import math
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakelog.client.producer.delivery import BatchResult
from lakelog.client.producer.outgoing import Headers
from log_tables.clock import Backoff
from log_tables.errors import (
    LakelogError,
    OutcomeUnknown,
    Retriable,
    SequenceGap,
    StaleProducerEpoch,
    may_be_done,
)
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.record import binary_array, headers_array, timestamp_array

BACKOFF = Backoff(0.1, max_s=1.0)
"""Between repeats, doubled each time, where the gateway does not say how long (Kafka's retry.backoff)."""

RECORD_OVERHEAD_BYTES = 256
"""Bytes that Python's objects for a record take in addition to its own."""


def _no_stamps() -> "array[int]":
    return array("q")  # a list would have an object for each


@dataclass(slots=True, eq=False)
class Batch:
    """Records that go to one partition in one request. Times are monotonic seconds.

    It is sent when `due_s` has come or it is `sealed`, and given up at `deadline_s`. `uncertain`: it may be
    in the log, because an answer was lost.
    """

    result: BatchResult
    due_s: float
    deadline_s: float
    sealed: bool = False
    uncertain: bool = False
    size_bytes: int = 0
    _values: list[bytes | None] = field(default_factory=list)
    _keys: list[bytes | None] = field(default_factory=list)
    _stamps_ms: "array[int]" = field(default_factory=_no_stamps)
    _headers: dict[int, Headers] = field(default_factory=dict)
    _body: bytes = b""

    def add(self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int) -> int:
        """Append a record. Returns its index."""
        index = self.result.records
        self._values.append(value)
        self._keys.append(key)
        self._stamps_ms.append(timestamp_ms)
        if headers:
            self._headers[index] = headers
        self.result.records = index + 1
        return index

    @property
    def held_bytes(self) -> int:
        """The room that it takes in the producer's buffer."""
        return self.size_bytes + self.result.records * RECORD_OVERHEAD_BYTES

    def body(self) -> bytes:
        """The request as an Arrow IPC stream: made once, then always the same bytes."""
        if not self._body:
            self._body = _encode(self._values, self._keys, self._stamps_ms, self._headers)
            self._values, self._keys, self._stamps_ms, self._headers = [], [], _no_stamps(), {}
        return self._body


def _encode(
    values: list[bytes | None],
    keys: list[bytes | None],
    stamps_ms: "array[int]",
    headers: Mapping[int, Headers],
) -> bytes:
    """An Arrow IPC stream; `headers` are those of records that have any, by their index."""
    columns = {
        "value": binary_array(values),
        "timestamp": timestamp_array(np.frombuffer(stamps_ms, np.int64) * 1000),
    }
    if any(key is not None for key in keys):
        columns["key"] = binary_array(keys)
    if headers:
        columns["headers"] = headers_array([headers.get(index, ()) for index in range(len(values))])
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches that wait for one partition, in order. One request is in flight at a time.

    `idempotent`: batches carry sequences, and so can be repeated when their answer is lost.
    """

    topic: str
    partition: int
    idempotent: bool = True
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: bool = False
    epoch: int = 0
    sequence: int = 0
    failing_since_s: float | None = None
    """When the batch in hand was refused first."""
    _not_before_s: float = -math.inf
    _pause_s: float = BACKOFF.first_s
    _last_error: LakelogError | None = None

    def due_s(self) -> float:
        """When the next batch is to be sent or given up; infinity when there is none."""
        if self.in_flight or not self.batches:
            return math.inf
        head = self.batches[0]
        ready_s = -math.inf if head.sealed else head.due_s
        return min(max(ready_s, self._not_before_s), head.deadline_s)

    def begin(self) -> Batch:
        """Take the first batch in hand: the caller alone changes it until `put_down`."""
        self.in_flight = True
        head = self.batches[0]
        head.sealed = True
        return head

    def delivered(self) -> None:
        """The gateway has acknowledged the batch in hand: `put_down` comes next."""
        self.sequence = (self.sequence + self.batches[0].result.records) % SEQUENCE_MODULUS
        self._last_error = None

    def failed(self, error: Exception, now_s: float) -> Exception | None:
        """The batch in hand was not acknowledged.

        Returns None if it will be sent again. Else it is given up: returns the error, and `put_down` comes
        next.
        """
        batch = self.batches[0]
        if isinstance(error, LakelogError):
            error.__traceback__ = (
                None  # it would keep the batch alive, and says nothing that the message does not
            )
        batch.uncertain |= may_be_done(error)
        if now_s < batch.deadline_s and self._will_repeat(batch, error, now_s):
            self.in_flight = False
            return None
        self._renew(error)
        return self._reason(batch, error)

    def expired(self) -> Exception:
        """The batch in hand has reached its deadline. Returns the error; `put_down` comes next."""
        last_error = self._last_error or Retriable("too many partitions have trouble at once")
        self._renew(last_error)
        return self._reason(self.batches[0], last_error)

    def put_down(self) -> None:
        """Go on with the next batch."""
        self.batches.popleft()
        self.in_flight, self.failing_since_s = False, None
        self._not_before_s, self._pause_s = -math.inf, BACKOFF.first_s

    def _will_repeat(self, batch: Batch, error: Exception, now_s: float) -> bool:
        if isinstance(error, SequenceGap):
            return self._begin_anew(batch, error)
        if isinstance(error, Retriable) or (isinstance(error, OutcomeUnknown) and self.idempotent):
            self._last_error = error
            if self.failing_since_s is None:
                self.failing_since_s = now_s
            self._not_before_s = now_s + float(error.details.get("retry_after_s", self._pause_s))
            self._pause_s = BACKOFF.after(self._pause_s)
            return True
        return False

    def _begin_anew(self, batch: Batch, gap: SequenceGap) -> bool:
        """Renumber the batch in hand, if it is certain that the log does not hold it.

        A log that still knows the producer (it expects another sequence than 0) would have known the batch
        again. One that has forgotten it may hold the batch all the same, if its answer was lost.
        """
        forgotten = gap.details["expected"] == 0
        if self.sequence == 0 or (forgotten and batch.uncertain):
            return False
        batch.uncertain = False
        self._renew(gap)
        return True

    def _renew(self, error: Exception) -> None:
        """Raise the epoch: the gateway refuses what is still under way in the old one."""
        known = int(error.details["current"]) if isinstance(error, StaleProducerEpoch) else 0
        self.epoch = max(self.epoch, known) + 1
        self.sequence = 0

    def _reason(self, batch: Batch, error: Exception) -> Exception:
        """The error of a batch that is given up, for its futures."""
        where = f"partition {self.partition} of {self.topic}"
        if batch.uncertain and isinstance(error, LakelogError):
            return OutcomeUnknown(
                f"{where}: the records may be in the log or not; read its end before you send them again: "
                f"{error}"
            )
        late = f"{where}: not delivered in time, and not written: {error}"
        if isinstance(error, Retriable):
            return type(error)(late, **error.details)
        return Retriable(late) if isinstance(error, OutcomeUnknown) else error
