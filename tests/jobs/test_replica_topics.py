"""Topics that an operator deletes, brings back and restores at the original: the standby does as they do."""

import pytest

from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from tests.kit.partitions import append, values
from tests.kit.standby import Watched, files, follow, logs
from tests.kit.standby_workload import Workload
from tests.kit.unfolding import QuickClock


@pytest.fixture
def made() -> Workload:
    made = Workload()
    for number in range(2):
        append(made.partition("t", number), b"one", b"two")
    made.fold()
    return made


@pytest.fixture
def target() -> Watched:
    return Watched(open_store("memory://standby"))


def replicate(made: Workload, target: Store) -> None:
    follow(made.recorded.inner, target, clock=QuickClock())


def check_equal(made: Workload, target: Watched) -> None:
    assert target.problems == []
    assert logs(target) == logs(made.recorded.inner)
    assert files(target).items() >= files(made.recorded.inner).items()
    assert check(target).problems == []


def test_a_topic_that_comes_back_does_so_in_the_standby(made: Workload, target: Watched) -> None:
    replicate(made, target)
    delete_topic(made.cluster, "t")
    replicate(made, target)
    assert Cluster.open(target.inner, made.clock, create=False).cached_topic("t") is None
    undelete_topic(made.cluster, "t")
    append(made.partition("t"), b"after")
    replicate(made, target)
    check_equal(made, target)
    delete_topic(made.cluster, "t")
    undelete_topic(made.cluster, "t", new_name="u")
    create_topic(made.cluster, "t", 1)
    append(made.partition("t"), b"another")
    append(made.partition("u"), b"moved")
    made.fold()
    replicate(made, target)
    check_equal(made, target)


def test_a_standby_that_begins_after_a_deletion_can_bring_the_topic_back(
    made: Workload, target: Watched
) -> None:
    before = values(made.partition("t"))
    delete_topic(made.cluster, "t")
    replicate(made, target)
    promote(target.inner, made.clock)
    cluster = Cluster.open(target.inner, made.clock, create=False)
    assert [each.name for each in deletions(cluster)] == ["t"]
    assert values(undelete_topic(cluster, "t").partition(0)) == before
    assert check(target.inner).problems == []


@pytest.mark.parametrize("is_begun", [False, True])
def test_records_that_are_restored_come_back_in_the_standby(
    made: Workload, target: Watched, is_begun: bool
) -> None:
    """Also if the standby began when they were deleted, and has not had their files."""
    partition, before = made.partition("t"), values(made.partition("t"))
    if is_begun:
        replicate(made, target)
    whole = partition.snapshot.version
    partition.truncate(partition.high_watermark)
    made.fold()
    replicate(made, target)
    assert values(Cluster.open(target.inner, made.clock, create=False).topic("t").partition(0)) == []
    restore_topic(made.cluster.topic("t"), made.clock.now_ms(), wanted(whole, None), 0)
    made.fold()
    replicate(made, target)
    check_equal(made, target)
    assert values(Cluster.open(target.inner, made.clock, create=False).topic("t").partition(0)) == before
