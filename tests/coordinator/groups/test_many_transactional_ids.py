"""Very many transactional ids over time, each of one transaction: what they leave in the tables, in the log
of the coordinator, in its memory and among the staged files does not grow with them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from api.process.duties import clean, compact
from coordinator.groups.producers.producer_wire import (
    Admit,
    Answer,
    Batch,
    EndTransaction,
    InitProducer,
    Outcomes,
    Producer,
    Request,
    Staged,
)
from coordinator.groups.shard import Shard
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import DELETE_RETENTION_MS, DIRTY_RECORDS_MIN
from log_tables.segments.producer_staging import ProducerRecords
from log_tables.segments.rewrite import compact_by_key
from tests.kit.producers_world import OUT, PARTITIONS, Node, World, values_batch

HOUR_MS, EXPIRATION_MS = 3_600_000, 7_200_000
AT_ONCE = 100
COORDINATORS = 1
"""The partitions of `__consumer_offsets` of a world."""


SAID_OF_FEW = 20
"""The records of three ids and of the group that applies their transactions, at most."""


class State(NamedTuple):
    """How much is left of all ids: in memory, in the log, in the tables, and as files."""

    ids: int
    known: int
    groups: int
    records: int
    segments: int
    producers: int
    staged: int


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    taken_over(made)
    yield made
    made.end()


def taken_over(world: World) -> None:
    world.nodes.pop().die()
    world.nodes.append(Node(world, transactional_id_expiration_ms=EXPIRATION_MS))


def asked(world: World, requests: Sequence[Request]) -> list[Answer]:
    """The answers to requests that come at once."""
    node = world.nodes[-1]
    waiting = [node.ask(request) for request in requests]
    return [world.finish(each, node) for each in waiting]


def transact(world: World, names: Sequence[str]) -> None:
    """A transaction of each of some ids, of a record for each partition."""
    begun = asked(world, [InitProducer(name, 60_000, -1, -1, "") for name in names])
    held = [(name, *_place(each)) for name, each in zip(names, begun, strict=True)]
    at = [world.at(partition) for partition in range(PARTITIONS)]
    (admitted,) = asked(world, [Admit(tuple(Batch(*each, 0, to, True) for each in held for to in at))])
    assert admitted == Outcomes((1,) * PARTITIONS * len(names))
    value = values_batch([b"v"])
    file = world.stage([ProducerRecords(*each, 1, 0, to, value) for each in held for to in at])
    asked(world, [Staged(file)])
    ended = asked(world, [EndTransaction(*each, True, True) for each in held])
    assert all(isinstance(each, Producer) for each in ended)


def _place(answer: Answer) -> tuple[int, int]:
    assert isinstance(answer, Producer)
    return answer.producer_id, answer.epoch


def shard_of(world: World) -> Shard:
    (shard,) = world.nodes[-1].gateway.shard_manager.shards
    return shard


def looked_after(world: World) -> None:
    """An hour passes, in which the gateway does its duties."""
    node = world.nodes[-1]
    for _ in range(4):
        world.advance(HOUR_MS // 4)
        node.go_on(10_000)
        compact(node.gateway.cluster)
        clean(node.gateway.cluster)


def state_of(world: World) -> State:
    shard, cluster = shard_of(world), world.cluster
    logs = {name: cluster.topic(name).partition(0) for name in (CONSUMER_OFFSETS, OUT)}
    for log in logs.values():
        log.refresh(wait=True)
    segments = logs[CONSUMER_OFFSETS].snapshot.segments
    return State(
        len(shard.producers),
        len(shard.open._known),
        len(shard.groups()),
        sum(segment.records for segment in segments),
        len(segments),
        len({*logs[OUT].snapshot.txns.producer_ids()}),
        len([*world.store.list("staging/")]),
    )


def live(world: World, ids: int, for_each_hour: int) -> list[State]:
    """So many ids come, so many of them each hour; the state after every tenth of them."""
    states = []
    for first in range(0, ids, for_each_hour):
        for start in range(first, first + for_each_hour, AT_ONCE):
            transact(world, [f"id-{number}" for number in range(start, start + AT_ONCE)])
        looked_after(world)
        if (first + for_each_hour) % (ids // 10) == 0:
            states.append(state_of(world))
            print(states[-1])  # noqa: T201 -- figures
    return states


def check_bounded(world: World, ids: int, for_each_hour: int) -> None:
    """An id lives for EXPIRATION_MS. Behind it come two tombstones, its own and that of its transaction,
    which are kept for DELETE_RETENTION_MS, and as many records again before the log is compacted.
    """
    states = live(world, ids, for_each_hour)
    alive = (EXPIRATION_MS // HOUR_MS + 1) * for_each_hour
    kept = alive + 2 * DELETE_RETENTION_MS // HOUR_MS * for_each_hour
    for each in states:
        assert max(each.ids, each.known) <= alive
        assert each.records <= 2 * kept + DIRTY_RECORDS_MIN
        assert (each.groups, each.producers, each.staged) == (COORDINATORS, COORDINATORS, 0)
    for _ in range(30):
        looked_after(world)
    left = state_of(world)
    assert (left.ids, left.known, left.staged) == (0, 0, 0)
    taken_over(world)
    log = world.cluster.topic(CONSUMER_OFFSETS).partition(0)
    for number in range(3):  # a tombstone is kept for that long after it was compacted first
        transact(world, [f"last-{number}"])
        compact_by_key(log.table, "zstd")
        world.advance(DELETE_RETENTION_MS + HOUR_MS)
        world.nodes[-1].go_on(1_000)
    end = state_of(world)
    print(left, end)  # noqa: T201
    assert end.ids <= 1
    assert end.records <= SAID_OF_FEW


def test_ids_leave_nothing_when_they_have_expired(world: World) -> None:
    check_bounded(world, 1_000, 100)


@pytest.mark.torture
def test_very_many_ids_leave_nothing_when_they_have_expired(world: World) -> None:
    check_bounded(world, 100_000, 2_000)
