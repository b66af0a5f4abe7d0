"""Consume, transform, produce: what a program sends in a `with consumer.transaction()` block, as one request.

The request names the records and how far the consumer is, and has a retry key: it is repeated until an answer
comes, and done once. When none comes for too long, its result is asked for before the consumer goes on.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lakelog.client.consumer.consumer_state import Offsets
from lakelog.client.consumer.membership import Membership
from lakelog.client.consumer.participant import Participant
from lakelog.client.producer.outgoing import Headers, check_record, check_target
from lakelog.client.request import Call
from log_tables.clock import Clock
from log_tables.errors import (
    AccessDenied,
    Conflict,
    InvalidArgument,
    InvalidRequest,
    LakelogError,
    NotAssigned,
    NotFound,
    UnknownPartition,
    may_be_done,
)
from log_tables.limits import PARTITIONS_MAX
from log_tables.record import binary_array, headers_array, timestamp_array

REFUSED = (Conflict, NotFound, InvalidRequest)
"""After these errors nothing of the transaction is in the log, or ever will be. After AccessDenied that holds
unless an attempt before it may have been done: a credential is looked at before the retry key is.
"""


class Sent(NamedTuple):
    """Where some `records` of a transaction are, one after the other; None: that is not known (yet)."""

    topic: str
    partition: int
    base_offset: int | None
    records: int


class Transaction:
    """The records that a block sends. `number` and `offsets` say where they are, once it has ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: list[str] = []
        self._partitions: list[int | None] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []
        self._stamps_ms: list[int] = []
        self._ended = False
        self.number: int | None = None
        self.offsets: tuple[Sent, ...] = ()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Have a record appended when the block ends: to `partition`, else that of its key, else to any one.

        Without `timestamp_ms` (since 1970 UTC) it has the time of this call. Raises TypeError for a value, a
        key or a header that is not bytes, InvalidRecord for a time that no log takes, UnknownPartition for
        one that no topic has, and InvalidArgument after the block. The end of the block raises the gateway's
        refusals: an unknown topic, a record that is too large.
        """
        if self._ended:
            raise InvalidArgument("the transaction has ended; send inside of its with block")
        check_target(topic, partition)
        if partition is not None and not 0 <= partition < PARTITIONS_MAX:
            raise UnknownPartition(f"there is no partition {partition} of topic {topic!r}; name one from 0")
        headers = tuple(headers)
        stamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        check_record(value, key, headers, stamp_ms)
        self._topics.append(topic)
        self._partitions.append(partition)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self._stamps_ms.append(stamp_ms)

    def end(self) -> None:
        """Accept no more records: the block is over."""
        self._ended = True

    def __len__(self) -> int:
        return len(self._values)

    def body(self, generation: int | None, offsets: Offsets, forget: tuple[str, ...]) -> bytes:
        """The request, as an Arrow IPC stream. `offsets` are those of the next records."""
        # The wire has the last record that was processed.
        named = [{"topic": t, "partition": p, "offset": offset - 1} for (t, p), offset in offsets.items()]
        frame = {"generation": generation, "offsets": named, "forget": forget}
        columns = {
            "topic": binary_array([topic.encode() for topic in self._topics]).view(pa.string()),
            "partition": _int32s(self._partitions),
            "timestamp": timestamp_array(np.array(self._stamps_ms, np.int64) * 1000),
            "key": binary_array(self._keys),
            "value": binary_array(self._values),
            "headers": headers_array(self._headers),
        }
        batch = pa.RecordBatch.from_arrays([*columns.values()], [*columns])
        schema = batch.schema.with_metadata({"transaction": msgspec.json.encode(frame)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        body: bytes = sink.getvalue().to_pybytes()
        return body


def _int32s(numbers: list[int | None]) -> pa.Array:
    # Not pa.array: that imports pandas where it is installed, for most of a second.
    filled = np.array([0 if number is None else number for number in numbers], np.int32)
    given = np.array([number is not None for number in numbers], bool)
    validity = pa.py_buffer(np.packbits(given, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.int32(), len(numbers), [validity, pa.py_buffer(filled)])


class _Request(NamedTuple):
    """A transaction under way: the same bytes are sent until its result is known."""

    transaction: Transaction
    body: bytes
    key: str
    offsets: Offsets


Patiently = Callable[[Callable[[], Call[None]]], Call[None]]
"""Makes the calls of what it is given, again after a retriable error, for `retry_ms` of the consumer."""


class TransactionManager:
    """The transactions of one consumer, one after the other. Used by one thread, or one task.

    `begin` gives a transaction; then comes `abandon` or `end`, and `resolve` after that.
    """

    def __init__(self, member: Membership, participant: Participant, clock: Clock) -> None:
        self._member, self._participant, self._clock = member, participant, clock
        self._open = False
        self._unresolved: _Request | None = None
        self._may_be_done = False
        self._answered: tuple[str, ...] = ()

    def begin(self) -> Transaction:
        """The transaction of a block. Raises InvalidArgument inside of another one."""
        if self._open:
            raise InvalidArgument("the consumer is in a transaction already; end that one first")
        self._open = True
        return Transaction(self._clock)

    @property
    def is_unresolved(self) -> bool:
        """Whether the result of the last transaction is not known."""
        return self._unresolved is not None

    def abandon(self, transaction: Transaction) -> None:
        """End a block that has failed: nothing is sent, and records that were handed out since the last
        transaction are given again.
        """
        self._close(transaction)
        self._participant.restart()

    def end(self, transaction: Transaction) -> None:
        """End a block: `resolve` sends what it has. Raises NotAssigned, and then it is abandoned."""
        self._close(transaction)
        try:
            self._prepare(transaction)
        except BaseException:
            self._participant.restart()
            raise

    def _close(self, transaction: Transaction) -> None:
        transaction.end()
        self._open = False

    def resolve(self, patiently: Patiently) -> Call[None]:
        """Learn the result of the last transaction. Raises Conflict, NotFound, InvalidRequest, AccessDenied
        for one that was refused. After any other error, and after an AccessDenied for one that may have been
        done before it, the result is not known, and the next call asks again.
        """
        if self._unresolved is None:
            return
        try:
            yield from patiently(self._send)
        except (*REFUSED, AccessDenied) as error:
            if not (self._may_be_done and isinstance(error, AccessDenied)):
                self._unresolved = None
                self._participant.restart()
            raise

    def _prepare(self, transaction: Transaction) -> None:
        state = self._participant.state
        if state.lost:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(state.lost))
            raise NotAssigned(
                f"records of {names} were handed out, and the partitions went to another member before the "
                "transaction ended; do the work again"
            )
        offsets = state.next_offsets
        if len(transaction) or offsets:
            key = self._clock.unique_id()
            body = transaction.body(state.known_generation, offsets, self._answered)
            self._unresolved, self._may_be_done = _Request(transaction, body, key, offsets), False

    def _send(self) -> Call[None]:
        request = self._unresolved
        assert request is not None
        try:
            number, sent = yield from self._member.transact(request.body, request.key)
        except LakelogError as error:
            self._may_be_done = self._may_be_done or may_be_done(error)
            raise
        self._unresolved, self._answered = None, (request.key,)
        request.transaction.number, request.transaction.offsets = (
            number,
            tuple(Sent(*each) for each in sent),
        )
        self._participant.transacted(request.offsets)
