"""A fold whose store fails: at every write, before and after it, for lack of room, and at one put in ten."""

from contextlib import suppress

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.topic_fold import fold
from log_tables.errors import LakelogError, StoreUnavailable
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    WRITES,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.clusters import another
from tests.kit.folds import DeltaStream, FoldedTopic, merge_folded

COMMITS = 3
LOG = "topics/t/_delta_log"
FAILURES = (unavailable, refused, answer_lost, repeated, nothing_landed)


@pytest.fixture
def world(clock: ManualClock) -> FoldedTopic:
    """A topic in which a fold has to rewrite, to remove and to append: three commits."""
    world = FoldedTopic(open_store("memory://"), clock, 3)
    for number in world.numbers:
        world.append(number, 3)
    world.fold()
    merge_folded(world, 0)
    world.topic.partition(1).truncate(2)
    world.append(2, 2)
    return world


def check(world: FoldedTopic) -> None:
    """After a fold that does not fail it is level, and a stream has had each record once."""
    world.topic.forget_table()
    world.fold()
    world.check_level()
    stream = DeltaStream(world.cluster.store, world.topic.directory)
    stream.read()
    wanted = [(number, offset) for number, end in enumerate((3, 3, 5)) for offset in range(end)]
    assert sorted(stream.seen) == wanted


def fold_through(world: FoldedTopic, store: Store) -> None:
    TopicTable(store, world.topic.directory, world.cluster.clock).fold(world.snapshots())


def test_a_fold_of_three_kinds_is_three_commits(world: FoldedTopic) -> None:
    assert world.fold() == COMMITS
    check(world)


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_a_process_that_dies_at_a_write_leaves_the_rest_to_the_next(
    world: FoldedTopic, nth: int, failure: Failure
) -> None:
    store = FaultyStore(world.cluster.store, [Fault(nth, failure, WRITES, LOG)])
    with pytest.raises(Crash):
        fold_through(world, store)
    check(world)


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@pytest.mark.parametrize("failure", [unavailable, answer_lost, repeated, nothing_landed])
def test_a_write_whose_answer_says_little_is_looked_up(
    world: FoldedTopic, nth: int, failure: Failure
) -> None:
    fold_through(world, FaultyStore(world.cluster.store, [Fault(nth, failure, WRITES, LOG)]))
    assert TopicTable(world.cluster.store, "topics/t", world.cluster.clock).snapshot.version == 1 + COMMITS
    check(world)


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
def test_a_full_disk_ends_the_fold_and_harms_nothing(world: FoldedTopic, nth: int) -> None:
    store = FaultyStore(world.cluster.store, [Fault(nth, refused, WRITES, LOG)])
    with pytest.raises(StoreUnavailable):
        fold_through(world, store)
    check(world)


def test_a_store_that_fails_one_put_in_ten_ends_level(world: FoldedTopic, clock: ManualClock) -> None:
    faults = [Fault(nth, unavailable, WRITES, LOG) for nth in range(5, 400, 10)]
    store = FaultyStore(world.cluster.store, faults)
    for round_number in range(40):
        world.append(round_number % 3)
        with suppress(LakelogError):
            fold_through(world, store)
        clock.pause(1)
    world.table.refresh()
    world.fold()
    world.check_level()


def check_two_folds(seed: int, rounds: int) -> None:
    """Two processes fold in turn while records come, are merged and deleted; a put in ten fails, somehow."""
    clock = ManualClock(seed=seed)
    world = FoldedTopic(open_store("memory://"), clock, 3)
    stream = DeltaStream(world.cluster.store, world.topic.directory)

    def draw(below: int) -> int:
        return int(clock.random() * below)

    faults = [
        [Fault(nth * 10 + draw(10), FAILURES[draw(len(FAILURES))], WRITES, LOG) for nth in range(1, rounds)]
        for _ in range(2)
    ]
    folds = [another(world.cluster, FaultyStore(world.cluster.store, some)) for some in faults]
    for _ in range(rounds):
        world.append(draw(3), 1 + draw(3))
        world.table.refresh()
        if draw(4) == 0 and world.table.snapshot.end(0):
            merge_folded(world, 0)
        if draw(4) == 0:
            partition = world.topic.partition(1)
            partition.truncate(min(partition.log_start + draw(4), world.table.snapshot.end(1)))
        with suppress(LakelogError):
            fold(folds[draw(2)].topic("t"))
    world.table.refresh()
    world.fold()
    world.check_level()
    stream.read()
    ends = [partition.high_watermark for partition in world.topic.partitions()]
    assert sorted(stream.seen) == [(number, at) for number, end in enumerate(ends) for at in range(end)]


@pytest.mark.parametrize("part", range(3))
def test_two_folds_at_a_store_that_fails_one_put_in_ten_end_level(seed: int, part: int) -> None:
    check_two_folds(seed + part, 60)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(20))
def test_two_folds_at_a_store_that_fails_end_level_for_long(seed: int, part: int) -> None:
    check_two_folds(seed + part, 1_000)


def test_a_checkpoint_that_fails_is_written_by_the_next(world: FoldedTopic) -> None:
    world.fold()
    for failure in (crash_before, crash_after):
        store = FaultyStore(world.cluster.store, [Fault(1, failure, WRITES, LOG)])
        with pytest.raises(Crash):
            TopicTable(store, world.topic.directory, world.cluster.clock).checkpoint(0)
        check(world)
