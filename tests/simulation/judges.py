"""The judgement when a world has ended, and before."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from log_tables.layout import partition_directory, topic_directory
from log_tables.root.fsck import check as fsck
from log_tables.store.store import Store
from log_tables.table.table import Table
from log_tables.topic_table.topic_snapshot import same
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.history import At, Commit, Delete, Operation, Poll, Row, Rows, Write
from tests.kit.history_checker import Log, check
from tests.kit.workload import concerns
from tests.simulation.clock import SimulatedClock
from tests.simulation.faults import Kind

if TYPE_CHECKING:
    from tests.simulation.world import World


def judge(world: "World", log: Log) -> None:
    """Judge what is there, and what was said. Raises AssertionError."""
    groups = [task.group for task in world.plan.tasks]
    operations = [op for op in world.history.operations() if concerns(op, topics_of(log), groups)]
    judge_history(kept(world, operations, log), log)
    judge_owners(world.history.operations())
    for scene in world.scenes:
        scene.judge()
    for actor in world.actors:
        actor.judge()
    judge_root(world.stores.main())


def kept(world: "World", operations: Sequence[Operation], log: Log) -> list[Operation]:
    """`operations` without the rows that a power cut has taken: they were read before the world healed, were
    not acknowledged, and are not there (docs/guarantees.md, "Readers").
    """
    if not any(fault.kind is Kind.POWER for fault in world.plan.faults):
        return [*operations]
    writes = [op.asked for op in operations if op.ok and isinstance(op.asked, Write)]
    acknowledged = {value for write in writes for part in write.parts for value in part.values}

    def is_taken(row: Row) -> bool:
        there = log.records.get(row.at, {}).get(row.offset)
        return there != row.value and row.value not in acknowledged

    def whole(op: Operation) -> Operation:
        answer = op.answer
        if not isinstance(answer, Rows) or op.end >= world.healed_s:
            return op
        left = tuple(row for row in answer.rows if not is_taken(row))
        if len(left) == len(answer.rows):
            return op
        ended = None if answer.next_offset is None else min(r.offset for r in answer.rows if r not in left)
        return replace(op, answer=Rows(left, ended))

    return [whole(op) for op in operations]


def topics_of(log: Log) -> dict[str, int]:
    """The topics of a log, with their numbers of partitions."""
    return {at.topic: sum(each.topic == at.topic for each in log.records) for at in log.records}


def judge_history(operations: Sequence[Operation], log: Log) -> None:
    """Judge the operations of topics by what these have in the end."""
    for finding in check(operations, log):
        raise AssertionError(f"{finding.kind}: {finding.text}")


def judge_owners(operations: Sequence[Operation]) -> None:
    """Judge that no two members of a group own a partition at once. Raises AssertionError.

    A member that commits what it was given owned the partition since it was given that: it gets one only when
    it asks, which it does not between the two. A topic that is made again is another one: its partitions are
    left out.
    """
    again = {op.asked.topic for op in operations if isinstance(op.asked, Delete)}
    given: dict[tuple[str, str, At], float] = {}
    owned: dict[tuple[str, At], list[tuple[float, float, str]]] = defaultdict(list)
    for op in sorted((op for op in operations if op.ok), key=lambda op: op.begin):
        asked = op.asked
        if isinstance(asked, Poll) and isinstance(op.answer, Rows):
            given |= {(asked.group, asked.member, row.at): op.end for row in op.answer.rows}
        for group, member, at in _committed(op):
            since = given.pop((group, member, at), math.inf)
            if since < op.begin and at.topic not in again:
                owned[group, at].append((since, op.begin, member))
    for (group, at), spans in owned.items():
        for one, other in pairwise(sorted(spans)):
            text = f"{one[2]} and {other[2]} of group {group} own {at} at once: {one[:2]}, {other[:2]}"
            assert other[0] >= one[1] or one[2] == other[2], text


def _committed(op: Operation) -> list[tuple[str, str, At]]:
    """The group, the member and the partitions of a commit, or of a transaction."""
    asked = op.asked
    if isinstance(asked, Commit):
        return [(asked.group, asked.member, place.at) for place in asked.places]
    if isinstance(asked, Write):
        return [(asked.group, asked.producer, span.at) for span in asked.consumed]
    return []


def judge_root(store: Store) -> None:
    """Judge all files of a root."""
    report = fsck(store, deep=True)
    assert not report.problems, report.problems


def unfolded(store: Store, clock: SimulatedClock, topics: Mapping[str, int]) -> list[str]:
    """The partitions of `topics` of whose files their table lacks some, or has others."""
    return [at for name, count in topics.items() for at in _unfolded(store, clock, name, count)]


def _unfolded(store: Store, clock: SimulatedClock, name: str, partitions: int) -> Iterator[str]:
    directory = topic_directory(name)
    folded = TopicTable(store, directory, clock).snapshot
    for number in range(partitions):
        table = Table(store, partition_directory(directory, number), clock)
        if not same(folded.of(number), table.snapshot.segments):
            yield f"{name}/{number} at version {table.snapshot.version}"
