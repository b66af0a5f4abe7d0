"""Compare a history with what each life of a topic held, which was deleted and re-created meanwhile.

The tables of a deleted topic stay for its `file.delete.delay.ms`: they are read at the end, as they are. One
client alone makes and deletes the topic, so that its lives follow one another. As in the history checker
every finding is a fault, whatever came of the operations that are unknown.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord, decode
from log_tables.errors import ObjectMissing
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.record import to_records
from log_tables.store.store import Store
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.history import (
    Absent,
    At,
    Changed,
    Create,
    Delete,
    Fetch,
    Operation,
    Outcome,
    Poll,
    Rows,
    Write,
)
from tests.kit.history_checker import Finding


class Kind(StrEnum):
    LOST = "an acknowledged value is in no life"
    DOUBLED = "a value is there more than once"
    FAILED_YET_THERE = "a write that failed is there"
    MISPLACED = "a value is elsewhere than it was acknowledged"
    OUT_OF_TIME = "a value was written to a life that had ended before, or begun after"
    MISREAD = "a read returned what no life holds there"
    MIXED = "a read of a partition returned records of several lives"
    DEAD = "a read returned records of a life that had ended before it began"
    SKIPPED = "a read passed over records"
    ABSENT = "the topic was said not to exist while it did"
    STALE = "a fetch gave nothing, where a record had been acknowledged before"


@dataclass(frozen=True)
class Life:
    """The records of one incarnation of a topic, by partition and offset.

    It may have existed from `begin` on, surely existed from `born` to `end`, and surely not from `over` on.
    """

    records: Mapping[At, Mapping[int, str]]
    begin: float
    born: float
    end: float = math.inf
    over: float = math.inf

    def may_have_been(self, op: Operation) -> bool:
        """Whether the topic may have existed at some time of the operation."""
        return self.begin <= op.end and op.begin < self.over

    def surely_was(self, op: Operation) -> bool:
        """Whether the topic existed during the whole operation."""
        return self.born <= op.begin and op.end <= self.end


def lives(operations: Sequence[Operation], store: Store, topic: str) -> list[Life]:
    """The lives of `topic`, in order, as the history and the tables in `store` tell."""
    changes = sorted((op for op in operations if _changes(op, topic)), key=lambda op: op.begin)
    births = [op for op in changes if isinstance(op.asked, Create)]
    numbers = _incarnations(store, topic)
    assert all(op.ok for op in changes), "who makes and deletes the topic ends in order"
    assert len(births) == len(numbers), f"{len(births)} lives were asked for, there are {numbers}"
    found = []
    for number, birth in zip(numbers, births, strict=True):
        after = [op for op in changes if op.begin > birth.begin]
        end, over = (after[0].begin, _over(after)) if after else (math.inf, math.inf)
        found.append(Life(_records(store, topic, number), birth.begin, birth.end, end, over))
    return found


def _changes(op: Operation, topic: str) -> bool:
    return isinstance(op.asked, Create | Delete) and op.asked.topic == topic


def _over(after: Sequence[Operation]) -> float:
    """When a deletion, the first of these changes, is promised to be over: with its own answer, else with
    that of the creation that follows.
    """
    first = after[0]
    if isinstance(first.answer, Changed) and first.answer.sure:
        return first.end
    return after[1].end if len(after) > 1 else math.inf


def _incarnations(store: Store, topic: str) -> list[int]:
    """The numbers of the incarnations that the metadata log names."""
    log = Cluster.open(store, create=False).metadata_log.partition
    records = (decode(record) for record in to_records(log.fetch(log.log_start, 1 << 30)))
    named = [r.incarnation for r in records if isinstance(r, TopicRecord) and r.name == topic and r.live]
    return sorted({*named})


def _records(store: Store, topic: str, number: int) -> dict[At, dict[int, str]]:
    found: dict[At, dict[int, str]] = {}
    for index in range(100):
        directory = partition_directory(topic_directory(topic, number), index)
        try:
            partition = Partition(store, directory, Cluster.open(store, create=False).clock)
        except ObjectMissing:
            break
        rows = enumerate(to_records(partition.fetch(0, 1 << 30)))  # from 0 on and without a gap
        found[At(topic, index)] = {offset: (row.value or b"").decode().strip('"') for offset, row in rows}
    return found


@dataclass(frozen=True)
class _Place:
    life: int
    at: At
    offset: int


_Places = Mapping[str, Sequence[_Place]]


def not_emptied(store: Store, topic: str) -> list[str]:
    """The tables over earlier lives of `topic` that still have a file, or may get one later."""
    clock = Cluster.open(store, create=False).clock
    found = []
    for number in _incarnations(store, topic)[:-1]:
        table = TopicTable(store, topic_directory(topic, number), clock).snapshot
        if not table.deleted or any(table.segments.values()):
            found.append(f"the table at {topic_directory(topic, number)} is not empty for good")
    return found


def check(operations: Sequence[Operation], found: Sequence[Life], topic: str) -> list[Finding]:
    """All findings about `topic`; empty if nothing is wrong."""
    places: dict[str, list[_Place]] = {}
    for number, life in enumerate(found):
        for at, records in life.records.items():
            for offset, value in records.items():
                places.setdefault(value, []).append(_Place(number, at, offset))
    findings: list[Finding] = []
    for op in operations:
        asked = op.asked
        if isinstance(asked, Write) and asked.parts[0].at.topic == topic:
            findings += _fate(op, asked, found, places)
            findings += _absence(op, found)
        elif isinstance(asked, Fetch) and asked.at.topic == topic:
            findings += [*_reading(op, found, places, topic), *_absence(op, found)]
            findings += _staleness(op, asked, found, operations)
        elif isinstance(asked, Poll):
            findings += _reading(op, found, places, topic)
    return findings


def _fate(op: Operation, write: Write, found: Sequence[Life], places: _Places) -> Iterator[Finding]:
    told = iter(getattr(op.answer, "offsets", ()))
    for at, value in ((part.at, value) for part in write.parts for value in part.values):
        offset, there = next(told, None), places.get(value, ())
        if len(there) > 1:
            yield Finding(Kind.DOUBLED, f"{value!r}: {there}")
        if op.ok and not there:
            yield Finding(Kind.LOST, f"{value!r}, acknowledged at {at}@{offset}")
        if op.outcome is Outcome.FAILED and there:
            yield Finding(Kind.FAILED_YET_THERE, f"{value!r}: {there}")
        for place in there:
            if place.at != at or offset not in (None, place.offset):
                yield Finding(Kind.MISPLACED, f"{value!r} is at {place}, not at {at}@{offset}")
            if not found[place.life].may_have_been(op):
                yield Finding(Kind.OUT_OF_TIME, f"{value!r} is at {place}, {_when(op, found[place.life])}")


def _when(op: Operation, life: Life) -> str:
    return f"asked {op.begin:.3f} to {op.end:.3f}; that life {life.begin:.3f} to {life.over:.3f}"


def _absence(op: Operation, found: Sequence[Life]) -> Iterator[Finding]:
    if isinstance(op.answer, Absent):
        for number, life in enumerate(found):
            if life.surely_was(op):
                yield Finding(Kind.ABSENT, f"{op.asked}: life {number}, {_when(op, life)}")


def _reading(op: Operation, found: Sequence[Life], places: _Places, topic: str) -> Iterator[Finding]:
    """Findings about a read, for each partition alone: rows of no life, of several lives, or with a gap."""
    rows = [row for row in op.answer.rows if row.at.topic == topic] if isinstance(op.answer, Rows) else []
    for at in {row.at: None for row in rows}:
        offsets = [row.offset for row in rows if row.at == at]
        seen: Counter[int] = Counter()
        for row in (row for row in rows if row.at == at):
            where = [p.life for p in places.get(row.value, ()) if (p.at, p.offset) == (at, row.offset)]
            seen.update(where)
            if not where:
                yield Finding(Kind.MISREAD, f"{row} by {op.asked}, but {places.get(row.value)}")
        if len(seen) > 1:
            yield Finding(Kind.MIXED, f"{at}@{offsets}: lives {[*seen]}")
        if offsets != [*range(offsets[0], offsets[0] + len(offsets))]:
            yield Finding(Kind.SKIPPED, f"{at}: {offsets}")
        for number in seen:
            if not found[number].may_have_been(op):
                yield Finding(Kind.DEAD, f"{at}@{offsets} of life {number}, {_when(op, found[number])}")


def _staleness(
    op: Operation, asked: Fetch, found: Sequence[Life], operations: Sequence[Operation]
) -> Iterator[Finding]:
    if not isinstance(op.answer, Rows) or op.answer.rows:
        return
    life = next((life for life in found if life.surely_was(op)), None)
    held = {} if life is None else life.records.get(asked.at, {})
    for before in operations:
        if isinstance(before.asked, Write) and before.ok and before.end < op.begin:
            values = {v for part in before.asked.parts if part.at == asked.at for v in part.values}
            missed = [offset for offset, value in held.items() if value in values and offset >= asked.offset]
            if missed:
                yield Finding(Kind.STALE, f"{asked}: {missed} were acknowledged before")
