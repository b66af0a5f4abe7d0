"""A fold that is held up at any of its calls to the store, while others go on with its topic."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import LakelogError, OutcomeUnknown, TopicDeleted
from log_tables.limits import LOG_RETENTION_MS, TOPIC_LOG_RETENTION_MS
from log_tables.root.fsck import check as fsck
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore, Crash, Failure, Fault, FaultyStore, crash_before
from log_tables.topic_table.topic_table import TopicTable, refold
from tests.kit.clusters import another
from tests.kit.failures import after, before
from tests.kit.folds import DeltaStream, FoldedTopic, merge_folded
from tests.kit.partitions import append
from tests.kit.topic_in_use import clean

ANY = frozenset({"get", "list", "list_dirs", "head", "put_if_absent", "put", "make_durable"})
"""What a fold asks of a store."""

CALLS_MAX = 100
PARTITIONS = 3


class World(FoldedTopic):
    """A topic in which a fold has to rewrite, to remove and to append: three commits; and a stream of it."""

    def __init__(self) -> None:
        clock = ManualClock()
        super().__init__(ClockedStore(open_store("memory://"), clock), clock, PARTITIONS)
        self.stream = DeltaStream(self.cluster.store, self.topic.directory)
        for number in self.numbers:
            self.append(number, 3)
        self.fold()
        merge_folded(self, 0)
        self.topic.partition(1).truncate(2)
        self.append(2, 2)

    def check(self) -> None:
        """After one more fold it is level and sound, and the stream has had each record once."""
        self.topic.forget_table()
        fold(self.topic)
        self.check_level()
        self.stream.read()
        ends = [partition.high_watermark for partition in self.topic.partitions()]
        wanted = [(number, offset) for number, end in enumerate(ends) for offset in range(end)]
        assert sorted(self.stream.seen) == wanted
        assert fsck(self.cluster.store).problems == []


Step = Callable[[World], object]
"""What happens meanwhile."""

When = Callable[[Callable[[], object]], Failure]
"""Before the call is carried out, or before it is answered."""


def fold_further(world: World) -> None:
    """Let another process fold, append, merge, delete, and fold again."""
    world.fold()
    world.append(1, 2)
    world.fold()
    merge_folded(world, 2)
    world.topic.partition(0).truncate(3)
    world.append(2)
    world.fold()


def fold_partly(world: World) -> None:
    """Let another process fold newer commits, and die after its first one."""
    merge_folded(world, 2)
    world.append(1, 2)
    world.topic.partition(0).truncate(3)
    store = FaultyStore(world.cluster.store, [Fault(2, crash_before, {"put_if_absent"}, "t/_delta_log")])
    with suppress(Crash):
        fold(another(world.cluster, store).topic("t"))


def clean_for_an_hour(world: World) -> None:
    """The logs of the partitions go, and nobody folds."""
    for number in world.numbers:
        world.append(number, 2)
    world.topic.partition(0).truncate(1)
    world.cluster.clock.pause(LOG_RETENTION_MS / 1000 + 1)
    for partition in world.topic.partitions():
        clean(partition)


def clean_for_a_day(world: World) -> None:
    """Let another process fold, and let the table's own log expire."""
    fold_further(world)
    world.cluster.clock.pause(TOPIC_LOG_RETENTION_MS / 1000 + 1)
    clean_for_an_hour(world)
    world.stream.read()
    world.table.refresh(wait=True)
    world.table.checkpoint(0)
    assert world.table.clean() > 0
    world.fold()


def begin_again(world: World) -> None:
    """An operator has the table begun again."""
    refold(world.cluster.store, world.topic.directory, world.cluster.clock)
    world.topic.forget_table()


def each_call(step: Step, when: When) -> Iterator[tuple[World, LakelogError | None]]:
    """A fold of another process, held up at its first call while `step` happens, then one at its second, and
    so on until it has no more: the world after each, and the error of the fold.
    """
    for nth in range(1, CALLS_MAX):
        world = World()
        store = FaultyStore(world.cluster.store)
        topic = another(world.cluster, store).topic("t")
        topic.table()
        topic.partitions()
        store.faults.append(Fault(nth, when(partial(step, world)), ANY))
        failed = None
        try:
            fold(topic)
        except LakelogError as error:
            failed = error
        if store.faults[0].nth:
            return
        yield world, failed
    raise AssertionError(f"a fold has more than {CALLS_MAX} calls")


@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize("step", [fold_further, fold_partly, clean_for_an_hour, clean_for_a_day])
def test_a_fold_that_slept_adds_nothing_twice(step: Step, when: When) -> None:
    for world, error in each_call(step, when):
        assert error is None or isinstance(error, OutcomeUnknown)
        world.check()


@pytest.mark.parametrize("when", [before, after])
def test_a_fold_that_meets_a_refold_harms_nothing(when: When) -> None:
    for world, error in each_call(begin_again, when):
        assert error is None
        world.topic.forget_table()
        fold(world.topic)
        world.check_level()
        assert fsck(world.cluster.store).problems == []


def make_again(world: World) -> None:
    delete_topic(world.cluster, "t")
    topic = create_topic(world.cluster, "t", PARTITIONS)
    for partition in topic.partitions():
        partition.claim("http://first")
        append(partition, b"of the new life")
    fold(topic)


@pytest.mark.parametrize("when", [before, after])
def test_a_fold_of_a_topic_that_is_made_again_meanwhile_leaves_the_new_one_alone(
    when: When,
) -> None:
    for world, error in each_call(make_again, when):
        assert error is None or isinstance(error, TopicDeleted)
        store, clock = world.cluster.store, world.cluster.clock
        old = TopicTable(store, "topics/t", clock).snapshot
        assert old.deleted
        assert not any(old.segments.values())
        world.stream.read()
        assert len(world.stream.seen) == len({*world.stream.seen})
        assert all(offset < (3, 3, 5)[number] for number, offset in world.stream.seen)
        new = TopicTable(store, "topics/t~2", clock).snapshot
        assert [new.end(number) for number in range(PARTITIONS)] == [1] * PARTITIONS
        assert fsck(store).problems == []
