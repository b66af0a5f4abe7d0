"""Commits of a standby that share their waits: none holds up others for longer than needed, in order, and on
a disk that loses its power.
"""

from pathlib import Path

import pytest

from jobs.replica.carrier import Carrier
from jobs.replica.tables import Kind, TableCopy, Waiting
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import read_mark
from log_tables.layout import commit_path, partition_directory
from log_tables.root.fsck import check
from log_tables.store.file import Flush
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, HoldingStore
from tests.kit.disk import Disk, death
from tests.kit.partitions import append, append_each
from tests.kit.power import HERE, everything, nothing
from tests.kit.standby import copied, follow, logs, newest_versions
from tests.kit.standby_workload import Workload
from tests.kit.stores import paths
from tests.kit.unfolding import QuickClock, Written

TURNS = 8


def place(number: int) -> str:
    return partition_directory("topics/t", number)


def made_with(partitions: int) -> Cluster:
    cluster = Cluster.open(open_store("memory://original"))
    create_topic(cluster, "t", partitions)
    return cluster


class Watching:
    """A flush that does nothing, and notes which commits a reader of `root` finds at each."""

    def __init__(self, root: Path) -> None:
        self._root, self.seen = root, list[set[str]]()

    def is_cheap(self) -> bool:
        return True

    def __call__(self, descriptor: int) -> None:  # noqa: ARG002 -- there is nothing to wait for
        self.seen.append({str(path.relative_to(self._root)) for path in self._root.rglob("*.json")})


def batch_of(carrier: Carrier, tables: int) -> list[tuple[TableCopy, list[Waiting]]]:
    copies = [TableCopy(place(number), Kind.PARTITION) for number in range(tables)]
    return [(copy, [Waiting(read, 0.0, []) for read in carrier.look(copy, 0)]) for copy in copies]


def test_a_table_with_many_commits_holds_up_the_others_for_a_few_waits(tmp_path: Path) -> None:
    """A commit may be seen only when that of the version before it is durable, and its segment."""
    cluster = made_with(64)
    append_each(cluster.claim(cluster.topic("t"), 0), [b"%d" % number for number in range(30)])
    flush = Watching(tmp_path)
    target = LocalStore(tmp_path, SystemClock(), flush=flush)
    carrier = Carrier(cluster.store, target, SystemClock())
    assert carrier.put_together(batch_of(carrier, 64)) == [TURNS] + 63 * [1]
    assert len(flush.seen) == 1 + TURNS
    first = {commit_path(place(number), 0) for number in range(64)}
    assert flush.seen[:2] == [set(), first]
    for version in range(1, TURNS):
        assert flush.seen[version + 1] - flush.seen[version] == {commit_path(place(0), version)}


def test_a_large_file_that_is_there_already_does_not_count(tmp_path: Path) -> None:
    """Its look has brought it over: the commits of all tables are put together all the same."""
    cluster = made_with(3)
    append(cluster.claim(cluster.topic("t"), 0), ManualClock().random_hex(20 << 20).encode())
    carrier = Carrier(
        cluster.store, LocalStore(tmp_path, SystemClock(), flush=Watching(tmp_path)), SystemClock()
    )
    assert carrier.put_together(batch_of(carrier, 3)) == [3, 1, 1]


def test_a_table_whose_disk_hangs_holds_up_no_other(seed: int) -> None:
    cluster, target = made_with(64), open_store("memory://standby")
    for number in range(64):
        append(cluster.claim(cluster.topic("t"), number), b"before")
    follow(cluster.store, target, clock=QuickClock())
    slow = place(seed % 64)
    held = HoldingStore(target, f"{slow}/", {"put_if_absent"})
    held.hold()
    for partition in cluster.topic("t").partitions():
        append(partition, b"more")
    goal, waited = newest_versions(cluster.store), list[bool]()

    def others_are_there() -> bool:
        there = newest_versions(target)
        if held.held and all(there[at] == goal[at] for at in goal.keys() - {slow}):
            waited.append(there[slow] < goal[slow])
            held.let_go()
        return there == goal

    follow(cluster.store, held, others_are_there, QuickClock())
    assert waited == [True]
    assert check(target).problems == []


class Dying:
    """The flush of a process that dies in its `nth` one."""

    def __init__(self, disk: Disk, flush: Flush, nth: int) -> None:
        self._disk, self._flush, self._left = disk, flush, nth

    def is_cheap(self) -> bool:
        return True

    def __call__(self, descriptor: int) -> None:
        self._left -= 1
        if not self._left:
            self._disk.fails = death(self._disk.syncs + 1)
        self._flush(descriptor)


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8])
def test_a_power_cut_amid_any_wait_leaves_a_standby_that_is_whole(
    tmp_path: Path, worked: tuple[Workload, list[Written]], nth: int, seed: int
) -> None:
    made, later = worked
    source = open_store("memory://original")
    for each in made.written[: made.first]:
        each.repeat(source)
    disk, chance = Disk(tmp_path, HERE), ManualClock(seed=seed)
    process = disk.process()
    root, clock = tmp_path / HERE, SystemClock()
    follow(source, LocalStore(root, clock, sync=process), clock=QuickClock())
    for each in later:
        each.repeat(source)
    dying = Dying(disk, process.flush, nth)
    with pytest.raises(Crash):
        follow(source, LocalStore(root, clock, sync=process, flush=dying), clock=QuickClock())
    for kept in (nothing, everything, *[lambda _: chance.random() < 0.5] * 3):
        left = copied(disk.cut(HERE, kept))
        check_whole(left)
        follow(source, left, clock=QuickClock())
        assert logs(left).items() <= logs(source).items()
        assert newest_versions(left) == newest_versions(source)
        assert check(left).problems == []
    disk.close()


@pytest.fixture(scope="module")
def worked() -> tuple[Workload, list[Written]]:
    made = Workload(keeps=True)
    made.work(8)
    return made, made.written[made.first :]


def check_whole(left: Store) -> None:
    mark = read_mark(left)
    assert mark is not None
    assert mark.is_level
    assert check(left).problems == []
    assert paths(left, "topics")
