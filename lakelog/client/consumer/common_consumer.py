"""A consumer apart from its face: settings, and what is asked of the gateway, as calls."""

import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import httpx
import pyarrow as pa

from lakelog.client import Deserializer
from lakelog.client.calls import READ_BYTES, Calls, OffsetsOf
from lakelog.client.consumer.consumer_record import ConsumerRecord
from lakelog.client.consumer.consumer_state import Choice
from lakelog.client.consumer.membership import Membership
from lakelog.client.consumer.participant import Callback, Callbacks, Participant
from lakelog.client.consumer.transaction import REFUSED, Transaction, TransactionManager
from lakelog.client.request import Call, call_retried
from lakelog.client.security_config import Credential
from log_tables.clock import Clock, SystemClock
from log_tables.errors import (
    InvalidArgument,
    InvalidRecord,
    LakelogError,
    NotAssigned,
    OutcomeUnknown,
    Retriable,
    UnknownMember,
)
from log_tables.record import POLL_SCHEMA
from log_tables.topic_partition import TopicPartition

WAIT_MS = 1_000
"""How long one request waits for records: what `stop` may have to wait for."""

_BEATS_PER_SESSION = 3

Result = TypeVar("Result")
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)


class CommonConsumer(ABC, Generic[Transport]):
    """The settings are Kafka's, and so are their names. Methods that return a Call are methods of the faces,
    which have their docstrings.
    """

    def __init__(  # noqa: PLR0913 -- the settings of Kafka's consumer
        self,
        url: str,
        group_id: str,
        topics: str | Iterable[str] = (),
        *,
        pattern: str = "",
        partitions: Iterable[tuple[str, int]] = (),
        name: str | None = None,
        auto_offset_reset: str = "latest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
        strategy: str = "",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        request_timeout_ms: float = 30_000,
        retry_ms: float = 30_000,
        credential: Credential | None = None,
        ssl_context: ssl.SSLContext | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not group_id:
            raise InvalidArgument("group_id is empty; name the consumer group")
        self._clock = clock or SystemClock()
        self._deserializers = {"key": key_deserializer, "value": value_deserializer}
        self._choice = _choice(topics, pattern, partitions)
        self._earliest, self._retry_s = auto_offset_reset == "earliest", retry_ms / 1000
        config = {
            "auto.offset.reset": auto_offset_reset,
            "auto.commit.enable": auto_commit,
            "auto.commit.interval.ms": auto_commit_interval_ms,
            "session.timeout.ms": session_timeout_ms,
            "max.poll.interval.ms": max_poll_interval_ms,
            "partition.assignment.strategy": strategy,
        }
        self.name = name or f"consumer-{self._clock.unique_id()}"
        options: dict[str, Any] = {"credential": credential, "ssl_context": ssl_context, "clock": self._clock}
        options |= {"timeout_s": request_timeout_ms / 1000, "transport": transport}
        self._calls = self._connect(url, options)
        self._member = Membership(self._calls, group_id, self.name, config, is_unique=not name)
        self._participant = Participant(
            self._member,
            self._choice,
            Callbacks(on_assigned, on_revoked, on_lost),
            earliest=self._earliest,
            auto_commit=auto_commit,
        )
        self._auto_commit = auto_commit
        self._transactions = TransactionManager(self._member, self._participant, self._clock)
        self._beat_s = session_timeout_ms / 1000 / _BEATS_PER_SESSION
        self._stopped = threading.Event()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Called when the consumer is made."""

    @abstractmethod
    def _connect(self, url: str, options: dict[str, Any]) -> Calls:
        """Make a client with these `options`. Returns its calls."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns. They change only inside iteration and `poll`."""
        return self._participant.state.owned

    def stop(self) -> None:
        """End the iteration, and a `poll` that waits, within about a second. From any thread, for good."""
        self._stopped.set()

    def _join(self) -> Call[None]:
        """Join the group. Whatever ends it, `_quit` comes next."""
        yield from self._patiently(self._participant.join)

    def _quit(self) -> Call[None]:
        """Leave the group after a join that failed or was interrupted, as far as that can be done."""
        with suppress(LakelogError):
            yield from self._leave(in_order=False)

    def _take(self) -> ConsumerRecord | None:
        """The next record of those that wait, for which nobody has to be asked. Most records come so."""
        if self._closed or self._stopped.is_set() or self._transactions.is_unresolved:
            return None
        record = self._participant.take()
        return None if record is None else self._deserialized(record)

    def _next(self) -> Call[ConsumerRecord | None]:
        """The next record, waited for until there is one, or `stop` is called: then None."""
        self._check_open()
        yield from self._resolve_transaction()
        while not self._stopped.is_set():
            record = self._participant.take()
            if record is not None:
                return self._deserialized(record)
            self._participant.process()
            self._participant.rewind()  # an earlier call may have been interrupted after its poll
            self._participant.give((yield from self._step(WAIT_MS, READ_BYTES)))
        self._participant.process()
        return None

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        made = {}
        for name, deserializer in self._deserializers.items():
            data = getattr(record, name)
            if deserializer is not None and data is not None:
                try:
                    made[name] = deserializer(data)
                except Exception as error:
                    where = f"offset {record.offset} of {record.topic}-{record.partition}"
                    raise InvalidRecord(
                        f"the {name} at {where} is refused by {name}_deserializer ({error}); go on after it, "
                        "or read it as bytes",
                        topic=record.topic,
                        partition=record.partition,
                        offset=record.offset,
                    ) from error
        return record._replace(**made) if made else record

    def _poll(self, timeout_ms: int = WAIT_MS, max_bytes: int | None = None) -> Call[pa.Table]:
        """Records as a table (POLL_SCHEMA), about `max_bytes` of them; empty when none came for `timeout_ms`.

        Raises Unreachable and other Retriable when no gateway could be had for `retry_ms`: then it may be
        called again.
        """
        self._check_open()
        yield from self._resolve_transaction()
        self._participant.process()
        self._participant.rewind()
        deadline = self._clock.monotonic() + timeout_ms / 1000
        table = yield from self._step(self._wait_ms(deadline), max_bytes)
        while not (table.num_rows or self._is_over(deadline) or self._stopped.is_set()):
            table = yield from self._step(self._wait_ms(deadline), max_bytes)
        self._participant.hand_out()
        return table

    def _wait_ms(self, deadline: float) -> int:
        """How long the next request of a poll waits for records."""
        left_ms = int((deadline - self._clock.monotonic()) * 1000)
        return min(max(0, left_ms), WAIT_MS)

    def _is_over(self, deadline: float) -> bool:
        """Whether a poll without records ends: not before it has gone by a new assignment."""
        return self._participant.state.assignment_is_current and self._clock.monotonic() >= deadline

    def _commit(self, offsets: OffsetsOf | None = None) -> Call[None]:
        """Commit the offsets of the next records; without `offsets`, after all that was handed out.

        Durable on return. Raises Conflict for partitions that this consumer does not own (any more) and
        UnknownMember when its instance is gone: records that were not committed are given again, to it or
        another. OffsetOutOfRange for an offset beyond the end of its log.
        """
        self._check_open()
        yield from self._resolve_transaction()
        wanted = self._participant.state.next_offsets if offsets is None else _by_partition(offsets)
        if wanted:
            yield from self._patiently(lambda: self._participant.commit(wanted))

    def _begin_transaction(self) -> Call[Transaction]:
        self._check_open()
        if self._auto_commit:
            raise InvalidArgument(
                "a consumer with auto_commit commits what it has handed out, whatever becomes of a "
                "transaction; create it with auto_commit=False"
            )
        yield from self._resolve_transaction()
        return self._transactions.begin()

    def _end_transaction(self, transaction: Transaction) -> Call[None]:
        self._transactions.end(transaction)
        yield from self._transactions.resolve(self._patiently)

    def _committed(self) -> Call[dict[TopicPartition, int]]:
        """The group's committed offsets of what this consumer owns, where there are some."""
        self._check_open()
        owned = self._participant.state.owned
        return (yield from self._patiently(lambda: self._member.committed(owned))) if owned else {}

    def _positions(self) -> Call[dict[TopicPartition, int]]:
        """The offset of the next record that is handed out, for each partition that this consumer owns."""
        found = (yield from self._committed()) | self._participant.state.next_offsets
        for at in self._participant.state.owned - found.keys():
            found[at] = yield from self._place(at, "earliest")
        return {at: found[at] for at in sorted(found)}

    def _seek(self, topic: str, partition: int, offset: int | str) -> Call[None]:
        """Go on from `offset`: a number, earliest or latest. Raises NotAssigned, InvalidArgument."""
        at = self._owned(topic, partition)
        there = offset if isinstance(offset, int) else (yield from self._place(at, offset))
        if there < 0:
            raise InvalidArgument(f"offset {offset} of {topic}-{partition} is negative; name one from 0")
        self._participant.seek(at, there)

    def _seek_to_time(self, topic: str, partition: int, timestamp_ms: int) -> Call[None]:
        """Go on from the first record of a time (milliseconds since 1970 UTC) or later, the end where there
        is none. Raises NotAssigned.
        """
        at = self._owned(topic, partition)
        found = yield from self._patiently(lambda: self._calls.offsets(topic, partition, timestamp_ms))
        self._participant.seek(at, found.end if found.at is None else found.at)

    def _subscription(self) -> Call[frozenset[str]]:
        """The topics that it shares; for a pattern, those that match now."""
        if self._choice.pattern:
            return (yield from self._patiently(self._member.subscription))
        return self._choice.topics

    def _leave(self, *, in_order: bool) -> Call[None]:
        """Leave the group; with auto-commit, commit all that was handed out. Closing twice is fine.

        A `with` block that ends by an exception, which is not `in_order`, commits only the records processed
        before it: those handed out last are given again, and the gateway is asked once. Raises Unreachable
        and others when that could not be done.
        """
        if in_order:
            self._participant.process()
        else:
            self._retry_s = 0
        try:
            yield from self._patiently(self._participant.leave)
        except UnknownMember:
            yield from self._participant.lose()

    def _step(self, timeout_ms: int, max_bytes: int | None) -> Call[pa.Table]:
        """One poll, repeated while no gateway answers; nothing once it is stopped."""
        while not self._stopped.is_set():
            try:
                return (
                    yield from self._patiently(
                        lambda: self._participant.poll(timeout_ms, max_bytes), self._stopped.is_set
                    )
                )
            except UnknownMember:
                yield from self._participant.lose()
            except (Retriable, OutcomeUnknown):
                if not self._stopped.is_set():
                    raise
        return POLL_SCHEMA.empty_table()

    def _patiently(
        self, attempt: Callable[[], Call[Result]], ended: Callable[[], bool] = lambda: False
    ) -> Call[Result]:
        """The result of `attempt`, tried again for `retry_ms` after it has failed for no fault of ours."""

        def may_repeat(error: LakelogError) -> bool:
            return isinstance(error, Retriable | OutcomeUnknown) and not ended()

        return call_retried(attempt, may_repeat, self._retry_s, self._clock)

    def _resolve_transaction(self) -> Call[None]:
        """Know what became of the last transaction: refused, it is as if it had not been."""
        with suppress(*REFUSED):  # its own block has raised
            yield from self._transactions.resolve(self._patiently)

    def _place(self, at: TopicPartition, name: str) -> Call[int]:
        if name not in ("earliest", "latest"):
            raise InvalidArgument(f"offset {name!r} is not known; use a number, earliest or latest")
        found = yield from self._patiently(lambda: self._calls.offsets(*at))
        return found.beginning if name == "earliest" else found.end

    def _owned(self, topic: str, partition: int) -> TopicPartition:
        self._check_open()
        at = TopicPartition(topic, partition)
        if at not in self._participant.state.owned:
            raise NotAssigned(
                f"this consumer does not own partition {partition} of topic {topic!r} (now); poll, and go by "
                "its assignment"
            )
        return at

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the consumer is closed; create another")
        self._check_joined()

    def _check_joined(self) -> None:
        """Raise InvalidArgument for a consumer that is not in use yet."""


def _choice(topics: str | Iterable[str], pattern: str, partitions: Iterable[tuple[str, int]]) -> Choice:
    names = frozenset([topics] if isinstance(topics, str) and topics else topics)
    chosen = Choice(names, pattern, frozenset(TopicPartition(*at) for at in partitions))
    if sum(map(bool, (chosen.topics, chosen.pattern, chosen.partitions))) != 1:
        raise InvalidArgument("a consumer reads topics, or a pattern, or partitions; name one of these")
    return chosen


def _by_partition(offsets: OffsetsOf) -> dict[TopicPartition, int]:
    """`offsets` by TopicPartition; they may come by plain pairs."""
    return {TopicPartition(*at): offset for at, offset in offsets.items()}
