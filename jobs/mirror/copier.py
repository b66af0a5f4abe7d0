"""The copy of the partitions that this process has: records are read on while others are committed.

A partition's high watermark is its position in the source, so there is nothing else to keep. Whatever goes
wrong, a partition is let go, and taken again from its high watermark.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from jobs.mirror.columns import records_of, runs, size_of
from jobs.mirror.source import Source, error_of
from log_tables.clock import timer
from log_tables.errors import AuthorizationFailed, Conflict, InvalidRecord, LakelogError, Retriable
from log_tables.layout import OFFSET
from log_tables.limits import MIB
from log_tables.partition.partition import Partition
from log_tables.record import RECORD_SCHEMA, int64s
from log_tables.topic_partition import TopicPartition as Place

_log = logging.getLogger(__name__)

LINGER_S = 0.05
"""How long a record waits for more of its partition, and how long one call reads."""

COMMIT_BYTES = 4 * MIB
"""So much of a partition is committed without waiting for more."""

HELD_BYTES = 32 * MIB
"""With so much in memory nothing more is read until a commit is done."""

_MANY = 10_000
_COMMITTERS = 4
_AGAIN_S = 1.0
"""How long commits wait after the source could not say whose records they are."""

_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""The source no longer has the position."""

_UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_OF_THE_GROUP = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""The group of the consumer has no members, so nobody needs it."""


@dataclass(eq=False)
class Copy:
    """One partition of the source, `place`, and its copy, the partition `log`, which this process leads.

    `messages` were read, and are not committed: they and gaps lead up to offset `end`. `last` is the last
    record of the copy, if the source may still have it: it is read again there, as others may have replaced
    it while no mirror ran.
    """

    place: Place
    log: Partition
    topic_id: str
    end: int
    last: pa.RecordBatch | None = None
    messages: list[Message] = field(default_factory=list)
    bytes: int = 0
    since: float = 0.0
    committing: "Future[None] | None" = None
    committing_bytes: int = 0

    @property
    def held(self) -> int:
        """The bytes that are in memory."""
        return self.bytes + self.committing_bytes

    @property
    def begin(self) -> int:
        """The offset from where it is read."""
        return self.end if self.last is None else _first_offset(self.last)

    def without_last(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages that were read first, without the record that both sides have; the source may have
        compacted it away. Raises LogReplaced if it has another one there.
        """
        known, self.last = self.last, None
        new = bisect_left(messages, self.end, key=_offset)
        if known is not None and new and _offset(messages[0]) == _first_offset(known):
            there = records_of(messages[:1])
            if not there.equals(known):
                raise LogReplaced(
                    f"the source has another record at offset {_offset(messages[0])} than was copied: it "
                    "lost records, and others took their offsets"
                )
        return messages[new:]

    def is_due(self, now: float) -> bool:
        """Whether something waits that is not to wait for more."""
        if self.committing is not None or self.end <= self.log.high_watermark:
            return False
        return self.bytes >= COMMIT_BYTES or now - self.since >= LINGER_S

    def read_up_to(self, end: int, now: float) -> None:
        """Note that the source has nothing more below `end`."""
        if end > self.end:
            if not self.bytes:
                self.since = now
            self.end = end

    def hold(self, messages: Sequence[Message], now: float) -> int:
        """Take what was read next; returns its bytes."""
        last = messages[-1].offset()
        assert last is not None
        self.read_up_to(last + 1, now)
        self.messages.extend(messages)
        size = size_of(messages)
        self.bytes += size
        return size

    def commit(self, pool: ThreadPoolExecutor) -> None:
        """Begin to commit all that waits."""
        messages, self.messages = self.messages, []
        self.committing_bytes, self.bytes = self.bytes, 0
        self.committing = pool.submit(_commit, self.log, messages, self.committing_bytes, self.end)


def last_record(log: Partition) -> pa.RecordBatch | None:
    """The last record of a log, None where there is none, or its file cannot be read now."""
    segments = log.snapshot.segments
    if not segments or segments[-1].last_offset < log.log_start:
        return None
    try:
        *_, last = log.read(log.plan_read(segments[-1].last_offset, 1))
    except LakelogError as error:
        _log.warning("the last record of %s is not compared with its source: %s", log.directory, error)
        return None
    return last.slice(last.num_rows - 1).select(RECORD_SCHEMA.names)


def _first_offset(records: pa.RecordBatch) -> int:
    return int(int64s(records.column(OFFSET))[0])


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _commit(log: Partition, messages: Sequence[Message], size: int, end: int) -> None:
    waiting: Sequence[Message] = []
    for run in runs(messages, size):
        if waiting:
            log.mirror(records_of(waiting), run[0].offset() or 0)
        waiting = run
    log.mirror(records_of(waiting), end)


class Copier:
    """Reads the partitions that it was given, and commits what it has read. Of one thread."""

    def __init__(self, source: Source) -> None:
        """Raises InvalidArgument."""
        self._source, self._consumer = source, source.consumer()
        self._pool = ThreadPoolExecutor(_COMMITTERS, thread_name_prefix="mirror")
        self._copies: dict[Place, Copy] = {}
        self._waiting: dict[Copy, None] = {}
        self._held, self._ask_after = 0, 0.0
        self.failed: dict[Place, Exception] = {}
        """The partitions that were let go, and why; whoever takes note empties it."""
        self.look_now = False
        """Whether the source has to be looked at before its time."""

    def __enter__(self) -> "Copier":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._pool.shutdown()

    @property
    def copies(self) -> Mapping[Place, Copy]:
        """The partitions that it has, by source."""
        return self._copies

    def take(self, copies: Iterable[Copy]) -> None:
        """Begin to read partitions, each at the high watermark of its copy."""
        taken = [*copies]
        self._copies.update((copy.place, copy) for copy in taken)
        if taken:
            self._consumer.incremental_assign([TopicPartition(*copy.place, copy.begin) for copy in taken])

    def let_go(self, places: Iterable[Place], why: Exception | None = None) -> None:
        """Read these partitions no more, and forget what was not committed of them."""
        gone = [copy for place in places if (copy := self._copies.pop(place, None)) is not None]
        for copy in gone:
            self._waiting.pop(copy, None)
            self._held -= copy.held
            if why is not None:
                self.failed[copy.place] = why
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*copy.place) for copy in gone])

    def step(self) -> None:
        """Read for a moment, and begin the commits that are due."""
        if self._held < HELD_BYTES:
            self._read(self._consumer.consume(_MANY, LINGER_S))
        else:
            under_way = [copy.committing for copy in self._waiting if copy.committing is not None]
            wait(under_way, LINGER_S, FIRST_COMPLETED)
        self._finish()
        self._commit(timer())

    def drain(self) -> None:
        """Commit what was read, and wait for that."""
        while self._waiting:
            under_way = [copy.committing for copy in self._waiting if copy.committing is not None]
            if under_way:
                wait(under_way, return_when=FIRST_COMPLETED)
                self._finish()
            elif not self._commit(timer() + LINGER_S):
                return

    def _read(self, messages: Sequence[Message]) -> None:
        now = timer()
        if any(map(Message.error, messages)):
            for is_error, run in groupby(messages, lambda each: each.error() is not None):
                if is_error:
                    for message in run:
                        self._take_error(message, now)
                else:
                    self._hold([*run], now)
        elif messages:
            self._hold(messages, now)

    def _hold(self, messages: Sequence[Message], now: float) -> None:
        places: Iterable[Any] = zip(
            map(Message.topic, messages), map(Message.partition, messages), strict=True
        )
        at = 0
        for place, run in groupby(places):
            count = len([*run])
            copy = self._copies.get(place)
            if copy is not None:  # else it was let go, and this was on its way
                self._hold_of(copy, messages[at : at + count], now)
            at += count

    def _hold_of(self, copy: Copy, messages: Sequence[Message], now: float) -> None:
        if copy.last is not None:
            try:
                messages = copy.without_last(messages)
            except (LogReplaced, InvalidRecord) as error:
                self.let_go([copy.place], error)
                return
        if messages:
            self._held += copy.hold(messages, now)
            self._waiting[copy] = None

    def _take_error(self, message: Message, now: float) -> None:
        error, place = message.error(), Place(message.topic() or "", message.partition() or 0)
        assert error is not None
        copy, code = self._copies.get(place), error.code()
        if code == KafkaError._PARTITION_EOF:
            if copy is not None:
                copy.read_up_to(message.offset() or 0, now)
                self._waiting[copy] = None
        elif code == KafkaError._LOG_TRUNCATION:
            self.let_go([place], LogReplaced(f"the source lost records that are copied ({error.str()})"))
        elif code in _LOST:
            self.let_go([place], PositionLost(error.str()))
            self.look_now = True
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self.let_go([place], error_of(error, self._source.bootstrap))
        elif code in _UNKNOWN:
            self.look_now = True
        elif code not in _OF_THE_GROUP:
            _log.warning("the source: %s", error.str())

    def _finish(self) -> None:
        """Take note of the commits that are done."""
        for copy in [*self._waiting]:
            done = copy.committing
            if done is not None and done.done():
                self._held -= copy.committing_bytes
                copy.committing, copy.committing_bytes = None, 0
                error = done.exception()
                if isinstance(error, LakelogError):
                    self.let_go([copy.place], error)
                    continue
                done.result()
            if copy.committing is None and copy.end <= copy.log.high_watermark:
                del self._waiting[copy]

    def _commit(self, now: float) -> bool:
        """Begin the commits that are due; returns whether the source said whose records they are."""
        due = [copy for copy in self._waiting if copy.is_due(now)]
        if not due or now < self._ask_after:
            return not due
        try:
            ids = self._source.ids({copy.place.topic for copy in due})
        except (Retriable, AuthorizationFailed) as error:
            _log.warning("%s; nothing is committed before it does", error)
            self._ask_after = now + _AGAIN_S
            return False
        for copy in due:
            if ids.get(copy.place.topic) == copy.topic_id:
                copy.commit(self._pool)
            else:
                self.let_go([copy.place])
                self.look_now = True
        return True


class PositionLost(Retriable):
    """The source has no record at the position, which is not its end."""


class LogReplaced(Conflict):
    """The source no longer has what was copied: another leader has written other records at its offsets."""
