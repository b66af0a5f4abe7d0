"""A topic is deleted, brought back, made again, emptied and restored by two processes, amid writes of each
other, while time passes and files are vacuumed and swept.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import Damaged, LakelogError
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.table.vacuum import vacuum
from log_tables.testing import ClockedStore, Fault, FaultyStore
from tests.kit.clusters import names
from tests.kit.failures import before
from tests.kit.partitions import append, values

HOUR_MS = 60 * 60 * 1000
NAMES = ("t", "u", "v")
T = TypeVar("T")


class World:
    """A root, two processes on it, and what each topic, by its id, was given."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = ClockedStore(open_store("memory://"), self.clock)
        self.stores = [FaultyStore(self.store) for _ in range(2)]
        self.processes = [
            Cluster.open(store, self.clock, f"http://{n}") for n, store in enumerate(self.stores)
        ]
        self.given = defaultdict[str, list[bytes]](list)
        self.done = defaultdict[str, int](int)
        self.is_nested = False
        once = self.make, self.delete, self.empty, self.restore, self.tidy, self.pass_time, self.fold
        self.acts = *once, self.delete, self.empty, *(self.undelete, self.restore, self.give) * 3

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.draw(len(choices))]

    def draw(self, end: int) -> int:
        """A number from 0 to below `end`."""
        return int(self.clock.random() * end)

    def act(self, number: int) -> None:
        """Any act of a process, which the other one may meet amid a write."""
        process, name = self.processes[number], self.pick(NAMES)
        act = self.pick(self.acts)
        if not self.is_nested and self.draw(2):
            self.stores[number].faults[:] = [Fault(1 + self.draw(6), before(lambda: self.other(number)))]
        try:
            self.done[act.__name__] += act(process, name) is not False
        except LakelogError as error:
            if isinstance(error, Damaged):
                raise
        self.stores[number].faults.clear()

    def other(self, number: int) -> None:
        self.is_nested = True
        self.act(1 - number)
        self.is_nested = False

    def make(self, process: Cluster, name: str) -> None:
        create_topic(process, name)

    def delete(self, process: Cluster, name: str) -> None:
        delete_topic(process, name)

    def undelete(self, process: Cluster, name: str) -> bool:
        """Mostly under a name that is free; returns whether there was a deleted topic."""
        process.refresh()
        gone = self.pick(deletions(process) or [None])
        if gone is None:
            return False
        free = [each for each in NAMES if process.cached_topic(each) is None]
        undelete_topic(process, gone.name, gone.topic_id, self.pick(free or [name]))
        return True

    def give(self, process: Cluster, name: str) -> None:
        process.refresh()
        topic = process.topic(name)
        log = process.claim(topic, 0)
        value = b"%d" % self.draw(2**40)
        append(log, value)
        self.given[topic.topic_id].append(value)

    def empty(self, process: Cluster, name: str) -> None:
        log = process.topic(name).partition(0)
        log.refresh()
        log.truncate(log.log_start + self.draw(log.high_watermark - log.log_start + 1))

    def restore(self, process: Cluster, name: str) -> bool:
        """To a time of the last hours; returns whether anything came back."""
        now_ms = self.clock.now_ms()
        state = wanted(None, now_ms - self.draw(self.pick([1, 2, 24]) * HOUR_MS))
        return any(each.past.segments for each in restore_topic(process.topic(name), now_ms, state))

    def tidy(self, process: Cluster, name: str) -> None:
        log = process.topic(name).partition(0)
        log.refresh()
        log.checkpoint()
        log.table.delete_expired_log()
        vacuum(log.table)
        sweep(process)

    def fold(self, process: Cluster, name: str) -> None:
        fold(process.topic(name))

    def pass_time(self, process: Cluster, name: str) -> None:  # noqa: ARG002
        self.clock.advance(self.pick([1_000, HOUR_MS // 2, 3 * HOUR_MS, 10 * HOUR_MS]))

    def look(self) -> None:
        """Each topic has what it was given, from its log start on."""
        fresh = Cluster.open(self.store, self.clock, "http://fresh")
        for name in names(fresh):
            topic = fresh.topic(name)
            log = fresh.with_current_topic(name, lambda topic: topic.partition(0))
            log.refresh()
            assert values(log) == self.given[topic.topic_id][log.log_start :], name


def live(world: World, steps: int) -> None:
    for _ in range(steps):
        world.act(world.draw(2))
        world.look()
    assert check(world.store).problems == []
    fresh = Cluster.open(world.store, world.clock, "http://fresh")
    for gone in deletions(fresh):
        undelete_topic(fresh, gone.name, gone.topic_id, f"back-{gone.topic_id}")
    world.look()
    assert check(world.store).problems == []


def test_no_record_is_lost_or_comes_twice(seed: int) -> None:
    live(World(seed), 150)


@pytest.mark.torture
@pytest.mark.parametrize("number", range(40))
def test_no_record_is_lost_or_comes_twice_by_any_of_many_seeds(seed: int, number: int) -> None:
    world = World(seed * 1_000 + number)
    live(world, 400)
    assert world.done["undelete"] > 20, world.done
    assert world.done["restore"] > 5, world.done
