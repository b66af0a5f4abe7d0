"""Deleted records come back, whole and in order, as long as the log and the files know them."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import plan_restore, restore_topic, wanted
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import Conflict, InvalidArgument
from log_tables.limits import FILE_RETENTION_MS, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import Store
from log_tables.table.restore import look_back, restore
from log_tables.table.vacuum import vacuum
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.clusters import another
from tests.kit.failures import before
from tests.kit.partitions import append, values

VALUES = [b"%d" % number for number in range(6)]


@pytest.fixture
def log(cluster: Cluster) -> Partition:
    """Six records, each in a segment, led here."""
    led = cluster.claim(create_topic(cluster, "t"), 0)
    for value in VALUES:
        append(led, value)
    return led


def test_the_log_starts_where_it_did(
    cluster: Cluster, log: Partition, clock: ManualClock, store: Store
) -> None:
    fold(cluster.topic("t"))
    began, at_ms = log.snapshot.version, clock.now_ms()
    clock.advance(1000)
    log.truncate(2)
    log.truncate(4)
    fold(cluster.topic("t"))
    assert values(log) == VALUES[4:]
    for state in (wanted(began, None), wanted(None, at_ms)):
        (plan,) = plan_restore(cluster.topic("t"), clock.now_ms(), state)
        assert (plan.log_start, plan.past.log_start, plan.past.records) == (4, 0, 4)
    restore_topic(cluster.topic("t"), clock.now_ms(), wanted(began, None))
    assert values(log) == VALUES
    append(log, b"new")
    assert values(another(cluster).topic("t").partition(0)) == [*VALUES, b"new"]
    fold(cluster.topic("t"))
    log.checkpoint()
    assert log.snapshot.tombstones == {}
    assert check(store).problems == []
    log.truncate(3)
    assert values(log) == [*VALUES[3:], b"new"]
    assert check(store).problems == []


def test_a_start_inside_of_a_segment_comes_back_too(cluster: Cluster, store: Store) -> None:
    log = cluster.claim(create_topic(cluster, "t"), 0)
    append(log, *VALUES)
    began = log.snapshot.version
    log.truncate(2)
    middle = log.snapshot.version
    log.truncate(5)
    log.restore(look_back(log.table, wanted(middle, None)))
    assert values(log) == VALUES[2:]
    log.truncate(6)
    assert values(log) == []
    log.restore(look_back(log.table, wanted(began, None)))
    assert values(log) == VALUES
    assert check(store).problems == []


def test_what_was_appended_to_an_empty_log_by_a_slow_clock_comes_after_it(
    cluster: Cluster, log: Partition, clock: ManualClock, store: Store
) -> None:
    began = log.snapshot.version
    log.truncate(6)
    clock.jump(-10_000)
    append(log, b"new")
    log.restore(look_back(log.table, wanted(began, None)))
    assert values(log) == [*VALUES, b"new"]
    fold(cluster.topic("t"))
    assert check(store).problems == []


def test_a_restore_that_dies_at_any_write_leaves_a_sound_log(
    cluster: Cluster, log: Partition, store: Store
) -> None:
    began = log.snapshot.version
    log.truncate(6)
    for failure in (crash_before, crash_after):
        for nth in range(1, 3):
            dying = another(cluster, FaultyStore(store, [Fault(nth, failure)]))
            table = dying.topic("t").partition(0).table
            with pytest.raises(Crash):
                restore(table, look_back(table, wanted(began, None)), most=2)
            assert check(store).problems == []
            log.refresh()
            assert values(log) == VALUES[log.log_start :]
    restore(log.table, look_back(log.table, wanted(began, None)), most=2)
    assert values(log) == VALUES
    assert check(store).problems == []


def test_it_is_refused_where_files_are_gone_or_about_to_go(
    cluster: Cluster, log: Partition, clock: ManualClock, store: Store
) -> None:
    began, gone = log.snapshot.version, log.snapshot.segments[0]
    log.truncate(3)
    vacuum(log.table)
    clock.advance(FILE_RETENTION_MS - LOG_RETENTION_MS + 1)
    with pytest.raises(Conflict, match="is about to be deleted"):
        log.restore(look_back(log.table, wanted(began, None)))
    clock.advance(2 * LOG_RETENTION_MS)
    vacuum(log.table)
    with pytest.raises(Conflict, match=f"{gone.path}, with the records 0 to 0, is gone"):
        log.restore(look_back(log.table, wanted(began, None)))
    assert values(log) == VALUES[3:]
    with pytest.raises(Conflict, match="reaches back to version 0, and knows what was deleted since"):
        look_back(log.table, wanted(None, 5))
    with pytest.raises(InvalidArgument, match="a version or a time"):
        wanted(1, 5)


def test_what_was_marked_and_came_back_is_not_vacuumed(
    cluster: Cluster, log: Partition, clock: ManualClock, store: Store
) -> None:
    """Nor is it, when it is deleted again, before its time: the old mark does not count."""
    began = log.snapshot.version
    log.truncate(3)
    vacuum(log.table)
    clock.advance(FILE_RETENTION_MS // 2)
    slept = before(lambda: vacuum(another(cluster).topic("t").partition(0).table))
    table = another(cluster, FaultyStore(store, [Fault(1, slept, {"put_if_absent"})])).topic("t").partition(0)
    table.restore(look_back(table.table, wanted(began, None)))
    log.refresh()
    log.truncate(3)
    clock.advance(FILE_RETENTION_MS // 2 + 1)
    assert vacuum(log.table).deleted == 0
    log.restore(look_back(log.table, wanted(began, None)))
    clock.advance(2 * FILE_RETENTION_MS)
    vacuum(log.table)
    assert values(another(cluster).topic("t").partition(0)) == VALUES
    assert check(store).problems == []


def test_a_deletion_at_the_same_time_leaves_no_gap(cluster: Cluster, log: Partition, store: Store) -> None:
    began = log.snapshot.version
    log.truncate(2)
    truncated = before(lambda: another(cluster).topic("t").partition(0).truncate(4))
    slow = (
        another(cluster, FaultyStore(store, [Fault(1, truncated, {"put_if_absent"})])).topic("t").partition(0)
    )
    with pytest.raises(Conflict, match="at the same time"):
        slow.restore(look_back(slow.table, wanted(began, None)))
    log.refresh()
    assert values(log) == VALUES[4:]
    log.restore(look_back(log.table, wanted(began, None)))
    assert values(log) == VALUES
    assert check(store).problems == []


def test_what_retention_would_take_again_is_refused(
    cluster: Cluster, log: Partition, clock: ManualClock
) -> None:
    began = log.snapshot.version
    log.truncate(2)
    clock.advance(10_000)
    topic = alter_topic(cluster, "t", {"retention.ms": "1000"})
    with pytest.raises(Conflict, match=r"retention\.ms=1000 of topic t would delete"):
        restore_topic(topic, clock.now_ms(), wanted(began, None))
    assert values(log) == VALUES[2:]
