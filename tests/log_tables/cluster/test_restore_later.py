"""Deleted records come back as long as their files are there, after the log of the table was cleaned."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import Conflict
from log_tables.limits import FILE_RETENTION_MS, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import Store
from log_tables.table.restore import look_back, restore
from log_tables.table.vacuum import vacuum
from log_tables.testing import Crash, Failure, Fault, FaultyStore, crash_after, crash_before
from tests.kit.clusters import another
from tests.kit.partitions import append, values

VALUES = [b"%d" % number for number in range(8)]
NEW = [b"new", b"newer"]
HOURS_20 = 20 * 60 * 60 * 1000


@pytest.fixture
def log(cluster: Cluster) -> Partition:
    """Eight records, in segments of two, led here."""
    led = cluster.claim(create_topic(cluster, "t"), 0)
    for at in range(0, len(VALUES), 2):
        append(led, *VALUES[at : at + 2])
    return led


@pytest.fixture
def deleted(log: Partition, clock: ManualClock) -> list[int]:
    """Times before each of three deletions, 20 hours ago, of which the log knows nothing more."""
    times = list[int]()
    for start in (2, 3, 6):
        times.append(clock.now_ms())
        clock.advance(1000)
        log.truncate(start)
        clock.advance(1000)
    vacuum(log.table)
    clock.advance(HOURS_20)
    clean_log(log, clock)
    assert log.snapshot.log_start == 6
    return times


def clean_log(log: Partition, clock: ManualClock) -> None:
    """Nothing from before now is in the log of the table."""
    append(log, b"new")
    append(log, b"newer")
    log.checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    assert log.table.delete_expired_log() > 0


def test_all_comes_back(
    cluster: Cluster, log: Partition, deleted: list[int], clock: ManualClock, store: Store
) -> None:
    fold(cluster.topic("t"))
    restored = restore_topic(cluster.topic("t"), clock.now_ms(), wanted(None, deleted[0]))
    assert [(each.log_start, each.past.log_start, each.past.records) for each in restored] == [(6, 0, 6)]
    assert values(log) == [*VALUES, *NEW]
    fold(cluster.topic("t"))
    assert check(store).problems == []
    clock.advance(2 * FILE_RETENTION_MS)
    vacuum(log.table)
    assert values(another(cluster).topic("t").partition(0)) == [*VALUES, *NEW]
    log.truncate(5)
    assert values(log) == [*VALUES[5:], *NEW]
    assert check(store).problems == []


def test_a_start_inside_of_a_file_is_where_the_next_deletion_of_files_found_it(
    log: Partition, deleted: list[int], store: Store
) -> None:
    for at_ms, start in ((deleted[2], 3), (deleted[1], 3), (deleted[0], 0)):
        log.restore(look_back(log.table, wanted(None, at_ms)))
        assert values(log) == [*VALUES[start:], *NEW]
        assert check(store).problems == []


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_restore_that_dies_at_any_write_is_repeated(
    cluster: Cluster, log: Partition, deleted: list[int], store: Store, failure: Failure, nth: int
) -> None:
    dying = another(cluster, FaultyStore(store, [Fault(nth, failure)]))
    table = dying.topic("t").partition(0).table
    with pytest.raises(Crash):
        restore(table, look_back(table, wanted(None, deleted[0])), most=2)
    assert check(store).problems == []
    log.refresh()
    assert values(log) == [*VALUES, *NEW][log.log_start :]
    restore(log.table, look_back(log.table, wanted(None, deleted[0])), most=2)
    assert values(log) == [*VALUES, *NEW]
    assert check(store).problems == []


def test_what_was_deleted_again_comes_back_from_either(
    log: Partition, deleted: list[int], clock: ManualClock, store: Store
) -> None:
    log.restore(look_back(log.table, wanted(None, deleted[1])))
    again = clock.now_ms()
    clock.advance(1000)
    log.truncate(8)
    clock.advance(LOG_RETENTION_MS // 4)
    clean_log(log, clock)
    log.restore(look_back(log.table, wanted(None, again)))
    assert values(log) == [*VALUES, *NEW, *NEW][3:]
    log.restore(look_back(log.table, wanted(None, deleted[0])))
    assert values(log) == [*VALUES, *NEW, *NEW]
    assert check(store).problems == []


def test_it_is_refused_beyond_a_day(
    log: Partition, deleted: list[int], clock: ManualClock, store: Store
) -> None:
    with pytest.raises(Conflict, match="knows what was deleted since"):
        look_back(log.table, wanted(0, None))
    clock.advance(5 * LOG_RETENTION_MS // 2)
    past = look_back(log.table, wanted(None, deleted[2]))
    with pytest.raises(Conflict, match="is about to be deleted"):
        log.restore(past)
    clock.advance(LOG_RETENTION_MS)
    with pytest.raises(Conflict, match="knows what was deleted since"):
        look_back(log.table, wanted(None, deleted[2]))
    vacuum(log.table)
    with pytest.raises(Conflict, match="with the records 2 to 3, is gone"):
        log.restore(past)
    assert check(store).problems == []
