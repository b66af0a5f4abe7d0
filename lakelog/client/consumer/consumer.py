"""A member of a consumer group: it reads its share of topics, and commits its offsets."""

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Self

import httpx
import pyarrow as pa

from lakelog.client import Deserializer
from lakelog.client.client import READ_BYTES, Client, OffsetsOf
from lakelog.client.consumer.consumer_record import ConsumerRecord, to_consumer_records
from lakelog.client.consumer.consumer_state import Choice
from lakelog.client.consumer.membership import Heartbeat, Membership
from lakelog.client.consumer.participant import Callback, Callbacks, Participant
from lakelog.client.consumer.transaction import REFUSED, Transaction, TransactionManager
from lakelog.client.request import Answer, retry
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

__all__ = ["Consumer", "ConsumerRecord", "TopicPartition", "to_consumer_records"]

WAIT_MS = 1_000
"""How long one request waits for records: what `stop` may have to wait for."""

BEATS_PER_SESSION = 3


class Consumer:
    """A member of the group `group_id`, at the gateway `url`. Close it, or use it as a context manager.

    It reads `topics`, or those that the regular expression `pattern` matches, and shares them with the
    group's other members; or `partitions`, whatever the others read. Iterate over it for records, or `poll`
    tables. A record counts as processed when the next one is asked for, a table at the next poll, and both
    when the consumer is closed. With `auto_commit` processed records are committed every
    `auto_commit_interval_ms`, when a partition goes to another member, and when the consumer is closed. So
    every record is given at least once. Where an answer is lost or a request fails, none is given twice to a
    member whose instance lives; when the gateway dies between two polls, unnoticed, what was not committed
    comes again. A name is the member: two processes must not use one.

    With `auto_offset_reset` "latest" it begins at the log ends of the moment in which it joins, where the
    group has committed nothing; partitions and topics that come later it reads from their beginning.

    `on_revoked(partitions)` is called before partitions are given up (a commit in it is valid), `on_assigned`
    after some are gained, `on_lost` when they were taken away: the instance was silent for longer than its
    session, or did not poll for `max_poll_interval_ms`. They are called inside of iteration, `poll` and
    `close`. While no gateway answers, requests are repeated for `retry_ms`. Names and meanings are Kafka's.

    In iteration keys and values are bytes, or what `key_deserializer` and `value_deserializer` make of them,
    such as `lakelog.json_deserializer`. Tables of `poll` have bytes.

    Not thread-safe but for `stop`. A thread keeps the instance alive while the program works. `credential`,
    `ssl_context` and `transport` are those of Client.
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
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Joins the group. Raises InvalidRequest, MemberExists, UnknownTopic, UnknownPartition, Retriable."""
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
        self._client = Client(
            url,
            credential=credential,
            ssl_context=ssl_context,
            timeout_s=request_timeout_ms / 1000,
            transport=transport,
            clock=self._clock,
        )
        self._member = Membership(self._client, group_id, self.name, config)
        self._participant = Participant(
            self._member,
            self._choice,
            Callbacks(on_assigned, on_revoked, on_lost),
            earliest=self._earliest,
            auto_commit=auto_commit,
        )
        self._auto_commit = auto_commit
        self._transactions = TransactionManager(self._member, self._participant, self._clock)
        self._stopped = threading.Event()
        self._closed = False
        try:
            self._patiently(self._participant.join)
        except BaseException:
            with suppress(LakelogError):
                self._participant.leave()
            self._client.close()
            raise
        self._heart = Heartbeat(self._member, session_timeout_ms / 1000 / BEATS_PER_SESSION)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self._retry_s = 0
        try:
            self._close()
        except LakelogError as failed:  # it must not hide what ended the block
            error.add_note(f"lakelog.Consumer: it did not leave its group in order: {failed}")

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, waited for until there is one, or `stop` is called.

        Raises as `poll` does, and InvalidRecord for a key or value that its deserializer refuses; the next
        call goes on after that record.
        """
        self._check_open()
        self._resolve_transaction()
        while not self._stopped.is_set():
            record = self._participant.take()
            if record is not None:
                return self._deserialized(record)
            self._participant.process()
            self._participant.rewind()  # an earlier call may have been interrupted after its poll
            self._participant.give(self._step(WAIT_MS, READ_BYTES))
        self._participant.process()
        raise StopIteration

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

    def poll(self, timeout_ms: int = WAIT_MS, max_bytes: int | None = None) -> pa.Table:
        """Records as a table (POLL_SCHEMA), about `max_bytes` of them; empty when none came for `timeout_ms`.

        Raises Unreachable and other Retriable when no gateway could be had for `retry_ms`: then it may be
        called again.
        """
        self._check_open()
        self._resolve_transaction()
        self._participant.process()
        self._participant.rewind()
        deadline = self._clock.monotonic() + timeout_ms / 1000
        table = self._step(self._wait_ms(deadline), max_bytes)
        while not (table.num_rows or self._is_over(deadline) or self._stopped.is_set()):
            table = self._step(self._wait_ms(deadline), max_bytes)
        self._participant.hand_out()
        return table

    def _wait_ms(self, deadline: float) -> int:
        """How long the next request of a poll waits for records."""
        left_ms = int((deadline - self._clock.monotonic()) * 1000)
        return min(max(0, left_ms), WAIT_MS)

    def _is_over(self, deadline: float) -> bool:
        """Whether a poll without records ends: not before it has gone by a new assignment."""
        return self._participant.state.assignment_is_current and self._clock.monotonic() >= deadline

    def commit(self, offsets: OffsetsOf | None = None) -> None:
        """Commit the offsets of the next records; without `offsets`, after all that was handed out.

        Durable on return. Raises Conflict for partitions that this consumer does not own (any more) and
        UnknownMember when its instance is gone: records that were not committed are given again, to it or
        another. OffsetOutOfRange for an offset beyond the end of its log.
        """
        self._check_open()
        self._resolve_transaction()
        wanted = self._participant.state.next_offsets if offsets is None else _by_partition(offsets)
        if wanted:
            self._patiently(lambda: self._participant.commit(wanted))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A block whose records are appended, and all that was handed out is committed, as one: or neither.

            with consumer.transaction() as transaction:
                transaction.send("sums", b"...")

        It happens at the end of the block; then `transaction.offsets` says where the records are. An
        exception in the block ends it with nothing sent. Then, and when the end raises Conflict (the
        assignment has changed), NotFound or InvalidRequest, all that was handed out since the last
        transaction is given again. After Retriable or OutcomeUnknown the consumer asks what became of it
        before it goes on. Raises InvalidArgument for a consumer with auto_commit.
        """
        self._check_open()
        if self._auto_commit:
            raise InvalidArgument(
                "a consumer with auto_commit commits what it has handed out, whatever becomes of a "
                "transaction; create it with auto_commit=False"
            )
        self._resolve_transaction()
        return self._transactions.transaction(self._patiently)

    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets of what this consumer owns, where there are some."""
        self._check_open()
        owned = self._participant.state.owned
        return self._patiently(lambda: self._member.committed(owned)) if owned else {}

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record that is handed out, for each partition that this consumer owns."""
        found = self.committed() | self._participant.state.next_offsets
        for at in self._participant.state.owned - found.keys():
            found[at] = self._place(at, "earliest")
        return {at: found[at] for at in sorted(found)}

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Go on from `offset`: a number, earliest or latest. Raises NotAssigned, InvalidArgument."""
        at = self._owned(topic, partition)
        there = offset if isinstance(offset, int) else self._place(at, offset)
        if there < 0:
            raise InvalidArgument(f"offset {offset} of {topic}-{partition} is negative; name one from 0")
        self._participant.seek(at, there)

    def seek_to_time(self, topic: str, partition: int, timestamp_ms: int) -> None:
        """Go on from the first record of a time (milliseconds since 1970 UTC) or later, the end where there
        is none. Raises NotAssigned.
        """
        at = self._owned(topic, partition)
        found = self._patiently(lambda: self._client.offsets(topic, partition, timestamp_ms))
        self._participant.seek(at, found.end if found.at is None else found.at)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns. They change only inside iteration and `poll`."""
        return self._participant.state.owned

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that it shares; for a pattern, those that match now."""
        if self._choice.pattern:
            return self._patiently(self._member.subscription)
        return self._choice.topics

    def stop(self) -> None:
        """End the iteration, and a `poll` that waits, within about a second. From any thread, for good."""
        self._stopped.set()

    def close(self) -> None:
        """Leave the group; with auto-commit, commit all that was handed out. Closing twice is fine.

        A `with` block that ends by an exception commits only the records processed before it: those handed
        out last are given again. Raises Unreachable and others when that could not be done.
        """
        if not self._closed:
            self._participant.process()
            self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._heart.stop()
        try:
            self._patiently(self._participant.leave)
        except UnknownMember:
            self._participant.lose()
        finally:
            self._closed = True
            self._client.close()

    def _step(self, timeout_ms: int, max_bytes: int | None) -> pa.Table:
        """One poll, repeated while no gateway answers; nothing once it is stopped."""
        while not self._stopped.is_set():
            try:
                return self._patiently(
                    lambda: self._participant.poll(timeout_ms, max_bytes), self._stopped.is_set
                )
            except UnknownMember:
                self._participant.lose()
            except (Retriable, OutcomeUnknown):
                if not self._stopped.is_set():
                    raise
        return POLL_SCHEMA.empty_table()

    def _patiently(self, attempt: Callable[[], Answer], ended: Callable[[], bool] = lambda: False) -> Answer:
        """The result of `attempt`, tried again for `retry_ms` after it has failed for no fault of ours."""

        def may_repeat(error: LakelogError) -> bool:
            return isinstance(error, Retriable | OutcomeUnknown) and not ended()

        return retry(attempt, may_repeat, self._retry_s, self._clock)

    def _resolve_transaction(self) -> None:
        """Know what became of the last transaction: refused, it is as if it had not been."""
        with suppress(*REFUSED):  # its own block has raised
            self._transactions.resolve(self._patiently)

    def _place(self, at: TopicPartition, name: str) -> int:
        if name not in ("earliest", "latest"):
            raise InvalidArgument(f"offset {name!r} is not known; use a number, earliest or latest")
        found = self._patiently(lambda: self._client.offsets(*at))
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


def _choice(topics: str | Iterable[str], pattern: str, partitions: Iterable[tuple[str, int]]) -> Choice:
    names = frozenset([topics] if isinstance(topics, str) and topics else topics)
    chosen = Choice(names, pattern, frozenset(TopicPartition(*at) for at in partitions))
    if sum(map(bool, (chosen.topics, chosen.pattern, chosen.partitions))) != 1:
        raise InvalidArgument("a consumer reads topics, or a pattern, or partitions; name one of these")
    return chosen


def _by_partition(offsets: OffsetsOf) -> dict[TopicPartition, int]:
    """`offsets` by TopicPartition; they may come by plain pairs."""
    return {TopicPartition(*at): offset for at, offset in offsets.items()}
