"""Checkpoints and cleanups of a log, by several processes, and what other readers find then."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from log_tables.clock import SystemClock
from log_tables.errors import NotLeader, OutcomeUnknown
from log_tables.layout import checkpoint_path, commit_path, commit_version, last_checkpoint_path
from log_tables.limits import FILE_RETENTION_MS, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.table_check import check_partition
from log_tables.store.store import Store, open_store
from log_tables.table.table import Table
from log_tables.testing import Fault, FaultyStore, ManualClock
from tests.kit.failures import before
from tests.kit.partitions import (
    TABLE,
    another,
    append,
    append_each,
    bury,
    log_versions,
    new_partition,
    values,
)


def test_a_checkpoint_is_due_after_so_many_commits(partition: Partition) -> None:
    due = []
    for _ in range(10):
        due.append(partition.table.checkpoint_due(4))
        if due[-1]:
            partition.checkpoint()
        append(partition, b"x")
    assert due == [False, False, False, True, False, False, False, True, False, False]
    assert not another(partition).table.checkpoint_due(4)


def test_a_slow_writer_that_sets_the_hint_back_misleads_nobody(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    """The writer wakes up after a cleanup, and puts a commit at a version that was cleaned."""
    append_each(partition, [b"0", b"1"])
    slow = another(partition)
    append_each(partition, [b"2", b"3"])
    ghost = store.get(commit_path(TABLE, slow.snapshot.version + 1))
    bury(partition)
    slow.checkpoint()
    store.put_if_absent(commit_path(TABLE, slow.snapshot.version + 1), ghost)
    assert b'"version":3' in store.get(last_checkpoint_path(TABLE))
    assert another(partition).snapshot.version == partition.snapshot.version
    opened = another(partition)
    opened.claim("http://second")
    assert append(opened, b"4") == 4
    assert values(another(partition)) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_old_hint_before_the_append_of_a_fenced_leader_misleads_nobody(
    store: Store, partition: Partition
) -> None:
    """A leader wakes in its put, and a slow writer in its checkpoint, after a cleanup of their versions."""
    other = another(partition)

    def asleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        bury(other)
        slow.checkpoint()

    faulty = FaultyStore(store, [Fault(2, before(asleep), {"put_if_absent"}, "_delta_log/")])
    sleepy = another(partition, faulty)
    sleepy.claim("http://sleepy")
    slow = another(partition)
    with pytest.raises(OutcomeUnknown):
        append(sleepy, b"mine")
    assert values(another(partition)) == [b"theirs"]
    assert append(other, b"after") == 1
    assert values(another(partition)) == [b"theirs", b"after"]
    assert check_partition(store, TABLE).problems == []


def test_what_is_younger_than_an_hour_or_not_below_an_old_checkpoint_is_never_cleaned(
    clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1"])
    clock.advance(LOG_RETENTION_MS)
    append_each(partition, [b"2", b"3"])
    assert partition.table.delete_expired_log() == 0
    partition.checkpoint()
    assert partition.table.delete_expired_log() == 0
    clock.advance(1)
    assert partition.table.delete_expired_log() == 0, "what is young would have no checkpoint before it"
    clock.advance(LOG_RETENTION_MS)
    assert partition.table.delete_expired_log() == 5
    assert log_versions(partition) == ([5], [5])
    clock.advance(LOG_RETENTION_MS)
    assert partition.table.delete_expired_log() == 0


def test_a_checkpoint_of_an_old_version_lets_go_of_all_before_it(
    clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1"])
    clock.advance(LOG_RETENTION_MS + 1)
    partition.checkpoint()
    append_each(partition, [b"2", b"3"])
    partition.checkpoint()
    assert partition.table.delete_expired_log() == 3
    assert log_versions(partition) == ([3, 4, 5], [3, 5])
    clock.advance(LOG_RETENTION_MS + 1)
    assert partition.table.delete_expired_log() == 3
    assert log_versions(partition) == ([5], [5])


def test_every_version_that_is_younger_than_an_hour_can_be_read(store_root: Path) -> None:
    """Another reader begins at a checkpoint that is no younger than the version that it asks for."""
    partition = new_partition(open_store(store_root), SystemClock())
    append_each(partition, [b"0", b"1"])
    partition.checkpoint()
    append_each(partition, [b"2", b"3"])
    old = partition.snapshot.version
    append_each(partition, [b"4", b"5"])
    partition.checkpoint()
    for path in (store_root / TABLE / "_delta_log").iterdir():
        if (commit_version(path.name) or 0) <= old:
            os.utime(path, (0, 0))
    assert partition.table.delete_expired_log() > 0
    location = partition.table.store.delta_location(TABLE)[0]
    for version in range(old + 1, partition.snapshot.version + 1):
        found = DeltaTable(location, version=version).to_pyarrow_dataset().count_rows()
        assert found == version - 1, version


def test_a_dry_run_of_a_cleanup_says_how_many_and_deletes_none(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1"])
    partition.checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    watched = FaultyStore(store)
    table = Table(watched, TABLE, clock)
    assert table.delete_expired_log(dry_run=True) == 3
    assert watched.writes() == 0
    assert table.delete_expired_log() == 3
    assert watched.writes() == 3
    assert table.delete_expired_log(dry_run=True) == 0


@pytest.mark.parametrize("nth", range(1, 9))
def test_another_process_may_tidy_a_log_beside_its_leader(
    store: Store, clock: ManualClock, partition: Partition, nth: int
) -> None:
    """Both write checkpoints and clean, at any step of the other, and the one that began first ends last."""
    append_each(partition, [b"0", b"1", b"2"])
    clock.advance(LOG_RETENTION_MS + 1)

    def tidy() -> None:
        append(partition, b"3")
        partition.checkpoint()
        partition.table.delete_expired_log()

    operations = {"get", "list", "put", "delete", "now_ms"}
    driver = another(partition, FaultyStore(store, [Fault(nth + 9, before(tidy), operations)]))
    for _ in range(3):
        driver.checkpoint()
        driver.table.delete_expired_log()
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]
    assert append(partition, b"4") == 4
    assert values(another(partition)) == [b"0", b"1", b"2", b"3", b"4"]
    assert check_partition(store, TABLE).problems == []


def test_other_readers_find_the_newest_version_when_the_hint_was_set_back(store_root: Path) -> None:
    """A slow process has set the hint to a checkpoint that was cleaned, or to one before a hole."""
    partition = new_partition(open_store(store_root), SystemClock())
    slow = another(partition)
    append_each(partition, [b"0", b"1", b"2", b"3"])
    partition.checkpoint()
    for path in (store_root / TABLE / "_delta_log").iterdir():
        os.utime(path, (0, 0))
    assert partition.table.delete_expired_log() == 5
    slow.checkpoint()
    location = partition.table.store.delta_location(TABLE)[0]
    assert log_versions(partition) == ([5], [1, 5])
    assert DeltaTable(location).to_pyarrow_table().num_rows == 4
    os.utime(store_root / checkpoint_path(TABLE, 1), (0, 0))
    assert partition.table.delete_expired_log() == 1
    assert b'"version":1' in partition.table.store.get(last_checkpoint_path(TABLE))
    assert DeltaTable(location).version() == 5
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]


def test_a_cleanup_leaves_no_hole_before_a_young_file(clock: ManualClock, partition: Partition) -> None:
    append(partition, b"0")
    partition.checkpoint()
    append_each(partition, [b"1", b"2"])
    partition.checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    partition.table.store.put(commit_path(TABLE, 3), partition.table.store.get(commit_path(TABLE, 3)))
    assert partition.table.delete_expired_log() == 2
    assert log_versions(partition)[0] == [2, 3, 4]


def test_a_cleanup_on_a_disk_judges_by_the_age_of_the_files(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    for value in (b"0", b"1"):
        append(partition, value)
        partition.checkpoint()
    assert partition.table.delete_expired_log() == 0
    old = os.stat(store_root / commit_path(TABLE, 0)).st_mtime - LOG_RETENTION_MS / 1000 - 1
    for version in (0, 1, 2):
        os.utime(store_root / commit_path(TABLE, version), (old, old))
    assert partition.table.delete_expired_log() == 2
    assert log_versions(partition) == ([2, 3], [2, 3])
    fresh = another(partition)
    fresh.claim("http://second")
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert append(fresh, b"2") == 2


def test_old_tombstones_are_left_out_of_checkpoints(clock: ManualClock, partition: Partition) -> None:
    append_each(partition, [b"0", b"1"])
    partition.truncate(1)
    partition.checkpoint()
    assert len(another(partition).snapshot.tombstones) == 1
    clock.advance(FILE_RETENTION_MS + 1)
    append(partition, b"2")
    partition.checkpoint()
    assert not another(partition).snapshot.tombstones
    assert values(another(partition)) == [b"1", b"2"]
