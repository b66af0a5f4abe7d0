"""A standby that is promoted by a machine whose clock is a year off, and served by it: what that changes, and
what it does not.
"""

import asyncio
from itertools import pairwise

import pytest

from coordinator.groups.shard import Shard
from ingest.settings import Settings
from ingest.writer import Writer
from jobs.housekeeping import TIDY_INTERVAL_MS
from jobs.maintenance import jobs_named
from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, purge_topic, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import GroupKey, GroupValue
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore
from tests.kit.groups import commit, say
from tests.kit.maintenance import errors, run
from tests.kit.partitions import append, entry, values
from tests.kit.standby import YEAR_MS, Apart, apart, files, follow
from tests.kit.standby_workload import HOUR_MS, Workload, index_of

DAY_MS = 24 * HOUR_MS
RETENTION_MS = 7 * DAY_MS
CLEANING = jobs_named(["retention", "housekeeping"])


class Promoted:
    """The standby of a root in use, once it is promoted by a machine whose clock is `apart_ms` off. Its store
    has the right time if it `has_own_clock`, as a bucket has, else that of the machine, as a disk.
    """

    def __init__(self, apart_ms: int, has_own_clock: bool) -> None:
        self.made = Workload()
        self.made_ms = self.made.clock.now_ms()
        self.append(self.made.partition("t"), b"of the original")
        create_topic(self.made.cluster, "gone", 1)
        self.append(self.made.partition("gone"), b"deleted")
        delete_topic(self.made.cluster, "gone")
        self.clock = ManualClock(self.made_ms + apart_ms, seed=7)
        self._store_clock = ManualClock(self.made_ms, seed=8) if has_own_clock else self.clock
        self.store = ClockedStore(open_store("memory://standby"), self._store_clock)
        follow(self.made.store, self.store, clock=Apart(self.made.clock, apart_ms))
        promote(self.store, self.clock)
        self.cluster = Cluster.open(self.store, self.clock, create=False)

    def append(self, partition: Partition, value: bytes) -> None:
        append(partition, value, at_us=partition.clock.now_us())

    def wait(self, ms: int) -> None:
        """Let time pass on all clocks."""
        for clock in {self.clock, self._store_clock}:
            clock.advance(ms)


@pytest.fixture(params=[True, False], ids=["a bucket", "a disk"])
def promoted(apart_ms: int, request: pytest.FixtureRequest) -> Promoted:
    return Promoted(apart_ms, request.param)


@apart
def test_it_has_a_log_epoch_of_its_own_and_goes_on(promoted: Promoted, apart_ms: int) -> None:
    """Also when it is promoted once more, by a clock that is a year off to the other side."""
    first = promoted.cluster.log_epochs.newest
    assert first == promoted.clock.now_ms() // 60_000
    partition = promoted.cluster.claim(promoted.cluster.topic("t"), 0)
    promoted.append(partition, b"of the first standby")
    again, clock = open_store("memory://again"), ManualClock(promoted.made_ms - apart_ms)
    follow(promoted.store, again, clock=Apart(clock, 0))
    promote(again, clock)
    cluster = Cluster.open(again, clock, create=False)
    assert cluster.log_epochs.newest == max(first + 1, clock.now_ms() // 60_000)
    twice = cluster.claim(cluster.topic("t"), 0)
    promoted.append(twice, b"of the second")
    assert values(twice) == [b"first", b"of the original", b"of the first standby", b"of the second"]
    assert all(one < other for one, other in pairwise(twice.snapshot.log_epochs.numbers()))
    assert [each.start for each in twice.snapshot.log_epochs] == [0, 2, 3]
    times = [segment.modification_time for segment in twice.snapshot.segments]
    assert times == sorted(set(times))
    assert check(promoted.store).problems == check(again).problems == []


@apart
def test_a_topic_that_was_deleted_before_can_be_brought_back_for_its_day(promoted: Promoted) -> None:
    for _ in range(23):
        promoted.wait(HOUR_MS)
        sweep(promoted.cluster)
    assert [each.name for each in deletions(promoted.cluster)] == ["gone"]
    assert values(undelete_topic(promoted.cluster, "gone").partition(0)) == [b"deleted"]
    assert check(promoted.store).problems == []


@apart
def test_its_files_go_after_that_day_or_by_purge_if_the_clock_is_behind(
    promoted: Promoted, apart_ms: int
) -> None:
    for _ in range(2):
        promoted.wait(26 * HOUR_MS)
        sweep(promoted.cluster)
    is_left = any(path.startswith("topics/gone/") for path in files(promoted.store))
    assert is_left is (apart_ms < 0)
    if is_left:
        assert deletions(promoted.cluster)[0].until_ms > promoted.clock.now_ms() + YEAR_MS - 3 * DAY_MS
        purge_topic(promoted.cluster, "gone")
    assert not any(path.startswith("topics/gone/") for path in files(promoted.store))
    assert check(promoted.store).problems == []


@apart
def test_retention_goes_by_the_clock_and_what_it_takes_can_be_brought_back(
    promoted: Promoted, apart_ms: int
) -> None:
    """A year ahead all that came before the promotion is a year old, as in Kafka; what came since stays."""
    cluster = promoted.cluster
    partition = cluster.claim(cluster.topic("t"), 0)
    alter_topic(cluster, "t", {"retention.ms": str(RETENTION_MS)})
    promoted.append(partition, b"new")
    version, whole = partition.snapshot.version, values(partition)
    assert errors(run(cluster, jobs=CLEANING)) == {}
    partition.refresh(wait=True)
    assert values(partition) == whole[2 if apart_ms > 0 else 1 :], "the first one is of 1970"
    for _ in range(2):  # a mark, and what is due by the store's clock
        promoted.wait(2 * TIDY_INTERVAL_MS)
        assert errors(run(cluster, jobs=CLEANING)) == {}
    alter_topic(cluster, "t", {"retention.ms": "-1"})
    restore_topic(cluster.topic("t"), promoted.clock.now_ms(), wanted(version, None), 0)
    partition.refresh(wait=True)
    assert values(partition) == whole
    assert check(promoted.store).problems == []


@apart
def test_a_repeat_of_a_producer_is_known_after_the_promotion(apart_ms: int) -> None:
    made, target = Workload(), open_store("memory://standby")
    stamp = ProducerStamp(5, 0, 0)
    append(made.partition("t"), b"once", producer=stamp)
    follow(made.store, target, clock=Apart(made.clock, apart_ms))
    clock = ManualClock(made.clock.now_ms() + apart_ms)
    promote(target, clock)
    cluster = Cluster.open(target, clock, create=False)
    partition = cluster.claim(cluster.topic("t"), 0)
    assert partition.append([entry(b"once", producer=stamp)])[0].duplicate


@apart
def test_idle_groups_are_forgotten_by_the_clock_and_others_stay(apart_ms: int) -> None:
    """Kafka forgets those, too: a group that was idle is a year older by a clock that is a year ahead."""
    made, target = Workload(), open_store("memory://standby")
    idle, told = [name for name in map(str, range(100)) if index_of(name) == 0][:2]
    value = GroupValue(1, idle_ms=made.clock.now_ms() - 60_000)
    say(made.cluster, (GroupKey(idle), value))
    commit(made.cluster, told, "t", 0, 1)
    follow(made.store, target, clock=Apart(made.clock, apart_ms))
    clock = ManualClock(made.clock.now_ms() + apart_ms)
    promote(target, clock)
    cluster = Cluster.open(target, clock, create=False)

    async def main() -> None:
        writer = Writer(cluster, Settings(linger_ms=0, commits_per_second_max=0), clock)
        await writer.start()
        shard = Shard(cluster, await writer.accumulator_for(cluster.topic(CONSUMER_OFFSETS), 0), clock)
        shard.read()
        for _ in range(2):
            shard.expire(RETENTION_MS)
            await shard.wait_all_durable()
        assert shard.group(idle).exists is (apart_ms < 0)
        assert shard.group(told).exists
        await writer.close()

    asyncio.run(main())
    assert check(target).problems == []
