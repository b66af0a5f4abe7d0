"""The audit of a gateway: which of its decisions become events, and how many of them.

Every change is one. Of the same denials, refusals and failures within a minute the first one is an event, and
the number of the others is another, at the minute's end. Of the accesses of a principal to the records of a
topic the first of each hour is one. Who has written which offsets is an event for each author and topic,
every few seconds. Events wait here until `take`, at most so many; those beyond are counted, and that is an
event, too.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from coordinator.access.host import network_of
from coordinator.access.principal import Principal, RequestContext
from coordinator.access.write_ranges import TopicName, WriteRanges, Written
from log_tables.clock import Clock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.audit_record import LOGON, LOST, NAME_MAX_CHARS, AuditKind, AuditRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError
from log_tables.limits import TOPIC_NAME_MAX_CHARS
from log_tables.partition.partition import Author, SequencedAppend

MINUTE_MS, HOUR_MS = 60_000, 3_600_000

WAITING_MAX = 10_000
"""Events that wait, changes and all others each: some ten megabytes."""

COUNTED_MAX = 10_000
"""Denials, refusals and failures of different kinds that are counted within a minute."""

ACCESSES_MAX = 100_000
"""Principals × topics × READ and WRITE that are known within an hour."""

SHARE = 10
"""Principals that fill what is counted and known: one of them alone hides nothing of the others."""

RANGES_MAX = 50_000
"""Ranges of offsets that wait to be told: some ten megabytes. As many again may be in events that wait."""

RANGES_OF_EVENT = 1_000
"""Ranges of offsets that one event tells: some twenty kilobytes."""


class AuditedWrites(StrEnum):
    """How much is told of those who write records."""

    NONE = "none"
    """Nothing."""
    FIRST = "first"
    """The first WRITE of an hour, as with READ."""
    RANGES = "ranges"
    """That, and the offsets of each principal in each partition."""


@dataclass(frozen=True, slots=True)
class Writes:
    """How much is told of those who write records: ranges every `interval_s`; `ranges_max` of them wait."""

    audited: AuditedWrites = AuditedWrites.FIRST
    interval_s: float = 10.0
    ranges_max: int = RANGES_MAX


_FIRST = Writes()


_READ, _DATA = frozenset([Operation.READ]), frozenset([Operation.READ, Operation.WRITE])

Dropped = Callable[[str, int], None]
"""Is called with the reason why events are in no record, and their number."""


class _Repeat:
    """The repeats of an event since its first one."""

    __slots__ = ("count", "first", "first_ms", "last_ms")

    def __init__(self, first: AuditRecord) -> None:
        self.first, self.count, self.first_ms, self.last_ms = first, 0, 0, 0


class Audit:
    """The audit of one gateway. Thread-safe; nothing here waits for a store."""

    def __init__(
        self,
        clock: Clock,
        code_of: Callable[[LakelogError], int] = lambda _: 0,
        dropped: Dropped = lambda *_: None,
        waiting_max: int = WAITING_MAX,
        counted_max: int = COUNTED_MAX,
        accesses_max: int = ACCESSES_MAX,
        share: int = SHARE,
        writes: Writes = _FIRST,
    ) -> None:
        """`code_of` returns the code by which clients know an error. One principal, or address, is counted up
        to a `share`th of `counted_max`, and known up to that of `accesses_max`.
        """
        self._clock, self._code_of, self._dropped = clock, code_of, dropped
        self._waiting_max, self._counted_max, self._accesses_max = waiting_max, counted_max, accesses_max
        self._changes: deque[AuditRecord] = deque()
        self._others: deque[AuditRecord] = deque()
        self._repeated: dict[tuple[object, ...], _Repeat] = {}
        self._accesses: set[tuple[str, str, Operation]] = set()
        self._own_repeated, self._own_accesses, self._share = Counter[str](), Counter[str](), share
        self._minute = self._hour = 0
        self._lost = Counter[str]()
        self._accessed = _READ if writes.audited is AuditedWrites.NONE else _DATA
        self._ranges, self._tells = WriteRanges(writes.ranges_max), writes
        self._writes: deque[AuditRecord] = deque()
        self._told_s = clock.monotonic()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._changes) + len(self._others) + len(self._writes)

    def allowed(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """It may do this. Only records of topics are of interest; called with every request."""
        if operation in self._accessed and resource_type is ResourceType.TOPIC:
            key = (context.principal.name, name, operation)
            if key not in self._accesses:
                self._note_access(key, context)

    def denied(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        error: LakelogError,
    ) -> None:
        """It may not do this."""
        about = {"operation": operation, "resource_type": resource_type, "resource_name": name}
        self._note_repeatable(AuditKind.DENIAL, context, about, self._code_of(error))

    def refused(self, principal: str | None, address: str, error: LakelogError) -> None:
        """A credential is not right. `principal` is whose it would be, None where that is not known."""
        context = None if principal is None else Principal(principal)
        self._note_repeatable(AuditKind.REFUSAL, context, {"operation": LOGON}, self._code_of(error), address)

    def changed(
        self,
        context: RequestContext,
        operation: str,
        resource: tuple[str, str],
        facts: Mapping[str, object],
    ) -> None:
        """It has done this with a resource of a type, by its name."""
        record = self._record(
            AuditKind.CHANGE,
            context.principal,
            context.host,
            operation=operation,
            resource_type=resource[0],
            resource_name=resource[1],
            facts=facts,
        )
        with self._lock:
            self._queue(self._changes, record)

    def failed(
        self, context: RequestContext, operation: str, resource: tuple[str, str], error_code: int
    ) -> None:
        """It was allowed to change this, and could not, or one does not know."""
        about = {"operation": operation, "resource_type": resource[0], "resource_name": resource[1]}
        self._note_repeatable(AuditKind.CHANGE, context, about, error_code)

    def wrote(self, topic: Topic, partition: int, appends: Sequence[SequencedAppend]) -> None:
        """These appends of one commit are durable, in the order of their offsets; some may be repeats."""
        now_ms = self._clock.now_ms()
        with self._lock:
            lost = self._ranges.note((topic.name, topic.topic_id), partition, appends, now_ms)
            if lost:
                self._lose("writes", lost)

    def take(self, most: int) -> list[AuditRecord]:
        """Up to `most` events, changes first; they wait no longer."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._end_windows(now_ms)
            self._tell_writes()
            taken: list[AuditRecord] = []
            if self._lost and most > 0:
                taken.append(self._loss())
            for waiting in (self._changes, self._others, self._writes):
                while waiting and len(taken) < most:
                    taken.append(waiting.popleft())
        return taken

    def put_back(self, records: Sequence[AuditRecord]) -> None:
        """They were taken, and are in no log yet."""
        with self._lock:
            for record in reversed(records):
                if record.kind is AuditKind.LOSS:
                    self._lost["waiting"] += record.count
                elif record.kind is AuditKind.WRITE:
                    self._writes.appendleft(record)
                else:
                    is_change = record.kind is AuditKind.CHANGE and record.success
                    (self._changes if is_change else self._others).appendleft(record)

    def close(self) -> None:
        """Count what was not told yet, as at the end of its minute, and tell who has written what."""
        with self._lock:
            self._end_minute()
            self._tell_writes(at_once=True)

    def _note_access(self, key: tuple[str, str, Operation], context: RequestContext) -> None:
        own, name, operation = key
        if len(name) > TOPIC_NAME_MAX_CHARS:
            return  # there is no such topic, and names of any length would be kept
        about = {"operation": operation, "resource_type": ResourceType.TOPIC, "resource_name": name}
        record = self._record(AuditKind.ACCESS, context.principal, context.host, **about)
        with self._lock:
            self._end_windows(record.time_ms)
            if key in self._accesses:
                return
            if not _has_room(len(self._accesses), self._own_accesses[own], self._accesses_max, self._share):
                self._lose("accesses")
                return
            self._accesses.add(key)
            self._own_accesses[own] += 1
            self._queue(self._others, record)

    def _note_repeatable(
        self,
        kind: AuditKind,
        whose: RequestContext | Principal | None,
        about: Mapping[str, str],
        error_code: int,
        address: str = "",
    ) -> None:
        """The first one of a minute is an event; of the others there is a number at its end."""
        principal = whose.principal if isinstance(whose, RequestContext) else whose
        host = whose.host if isinstance(whose, RequestContext) else address
        now_ms = self._clock.now_ms()
        own = principal.name if principal else network_of(host)
        shown = [text[:NAME_MAX_CHARS] for text in about.values()]
        key = (kind, principal and principal.name, host, error_code, *shown)
        with self._lock:
            self._end_windows(now_ms)
            known = self._repeated.get(key)
            if known is not None:
                known.first_ms, known.last_ms = known.first_ms or now_ms, now_ms
                known.count += 1
                return
            if not _has_room(len(self._repeated), self._own_repeated[own], self._counted_max, self._share):
                self._lose("repeats")
                return
            self._own_repeated[own] += 1
            record = self._record(kind, principal, host, success=False, error_code=error_code, **about)
            self._repeated[key] = _Repeat(record)
            self._queue(self._others, record)

    def _record(
        self, kind: AuditKind, principal: Principal | None, address: str, **about: Any
    ) -> AuditRecord:
        about["resource_name"] = about.get("resource_name", "")[:NAME_MAX_CHARS]
        return AuditRecord(
            uid=self._clock.unique_id(),
            kind=kind,
            time_ms=self._clock.now_ms(),
            principal=principal.name if principal else None,
            groups=principal.groups if principal else (),
            address=address,
            **about,
        )

    def _queue(self, waiting: deque[AuditRecord], record: AuditRecord) -> None:
        if len(waiting) >= self._waiting_max:
            self._lose("waiting", record.count)
        else:
            waiting.append(record)

    def _lose(self, reason: str, count: int = 1) -> None:
        self._lost[reason] += count
        self._dropped(reason, count)

    def _loss(self) -> AuditRecord:
        lost, self._lost = self._lost, Counter()
        return AuditRecord(
            uid=self._clock.unique_id(),
            kind=AuditKind.LOSS,
            time_ms=self._clock.now_ms(),
            operation=LOST,
            success=False,
            count=lost.total(),
            end_ms=self._clock.now_ms(),
        )

    def _tell_writes(self, at_once: bool = False) -> None:
        """Make events of the ranges when it is time for it. While earlier ones wait, ranges go on to grow."""
        now, tells = self._clock.monotonic(), self._tells
        due = now - self._told_s >= tells.interval_s or 2 * self._ranges.ranges >= tells.ranges_max
        if not (at_once or (due and not self._writes)):
            return
        self._told_s = now
        for author, topic, written in self._ranges.take():
            self._writes.extend(self._write(author, topic, each) for each in written.split(RANGES_OF_EVENT))

    def _write(self, author: Author, topic: TopicName, written: Written) -> AuditRecord:
        partitions = {str(partition): ranges for partition, ranges in written.partitions.items()}
        return AuditRecord(
            uid=self._clock.unique_id(),
            kind=AuditKind.WRITE,
            time_ms=written.first_ms,
            end_ms=written.last_ms,
            operation=Operation.WRITE,
            principal=author.principal,
            address=author.address,
            resource_type=ResourceType.TOPIC,
            resource_name=topic[0],
            count=written.records,
            facts={"topic_id": topic[1], "partitions": partitions},
        )

    def _end_windows(self, now_ms: int) -> None:
        if now_ms // MINUTE_MS != self._minute:
            self._minute = now_ms // MINUTE_MS
            self._end_minute()
        if now_ms // HOUR_MS != self._hour:
            self._hour = now_ms // HOUR_MS
            self._accesses, self._own_accesses = set(), Counter()

    def _end_minute(self) -> None:
        ended, self._repeated, self._own_repeated = self._repeated, {}, Counter()
        for repeated in ended.values():
            if repeated.count:
                self._queue(self._others, self._count(repeated))

    def _count(self, repeated: _Repeat) -> AuditRecord:
        return replace(
            repeated.first,
            uid=self._clock.unique_id(),
            time_ms=repeated.first_ms,
            end_ms=repeated.last_ms,
            count=repeated.count,
        )


def _has_room(known: int, own: int, most: int, share: int) -> bool:
    """Whether another one of a principal that has `own` of all that are `known` is remembered."""
    return known < most and own < max(1, most // share)
