"""A vacuum deletes what nobody needs, in its time after it was marked by the store's clock, and nothing else.

An hour is the time of what a merge has replaced, a day that of deleted records.

The clock of the store and that of the machine are two, and the machine's may be wrong by days.
"""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, InvalidArgument
from log_tables.layout import PROPERTY_FILE_RETENTION, ledger_path, vacuum_directory
from log_tables.limits import (
    FILE_RETENTION_MS,
    LOG_RETENTION_MS,
    REPLACED_FILE_RETENTION_MS,
    VACUUM_MARK_AGE_MS,
)
from log_tables.root.table_check import check_partition
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import open_store
from log_tables.table.commit import read_commit
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, vacuum
from log_tables.testing import ClockedStore, FaultyStore
from tests.kit.partitions import TABLE, another, append, append_each, new_partition, values
from tests.kit.support import S3Server
from tests.kit.vacuums import DAY_MS, NOTHING, ORPHAN, World, due_and_unmarked

# What goes, and when.


def test_files_that_a_merge_replaced_go_an_hour_after_they_were_marked(merged: World) -> None:
    check_goes_after(merged, REPLACED_FILE_RETENTION_MS)
    assert values(another(merged.partition)) == [b"0", b"1", b"2"]


def test_files_of_deleted_records_go_a_day_after_they_were_marked(deleted: World) -> None:
    check_goes_after(deleted, FILE_RETENTION_MS)


def check_goes_after(world: World, stay_ms: int) -> None:
    """The three removed files of `world` go when they were marked so long ago, and not before."""
    size = sum(remove.size or 0 for remove in world.partition.snapshot.tombstones.values())
    assert world.vacuum() == VacuumResult(3, 0, 0, 0)
    assert world.vacuum() == VacuumResult(0, 3, 0, 0)
    world.wait(stay_ms)
    assert world.vacuum() == VacuumResult(0, 3, 0, 0)
    assert len(world.files()) == 3 + len(world.live())
    world.wait(1)
    assert world.vacuum() == VacuumResult(0, 0, 3, size)
    assert world.files() == world.live()
    assert world.ledgers() == []
    assert world.vacuum() == NOTHING


@pytest.mark.parametrize(("told_ms", "stay_ms"), [(2 * DAY_MS, 2 * DAY_MS), (1, REPLACED_FILE_RETENTION_MS)])
def test_files_that_a_merge_replaced_stay_as_long_as_the_topic_says_and_an_hour_at_least(
    merged: World, told_ms: int, stay_ms: int
) -> None:
    assert vacuum(merged.partition.table, replaced_ms=told_ms).marked == 3
    merged.wait(stay_ms)
    assert vacuum(merged.partition.table, replaced_ms=told_ms).waiting == 3
    merged.wait(1)
    assert vacuum(merged.partition.table, replaced_ms=told_ms).deleted == 3


def test_what_was_replaced_goes_in_its_time_though_its_records_are_deleted_meanwhile(merged: World) -> None:
    """The records live on for a day in the file that replaced theirs."""
    size = sum(remove.size or 0 for remove in merged.partition.snapshot.tombstones.values())
    assert merged.vacuum().marked == 3
    assert merged.partition.truncate(3) == 3
    merged.wait(REPLACED_FILE_RETENTION_MS + 1)
    assert merged.vacuum() == VacuumResult(1, 0, 3, size)
    merged.wait(FILE_RETENTION_MS)
    assert merged.vacuum().waiting == 1
    merged.wait(1)
    assert merged.vacuum().deleted == 1
    assert merged.files() == set()


def test_a_file_that_may_be_about_to_be_committed_is_not_marked(world: World) -> None:
    """A file that a commit removed is marked at once, because nobody can be about to commit it."""
    append_each(world.partition, [b"0", b"1"])
    world.store.put_new(f"{TABLE}/{ORPHAN}", b"somebody's")
    world.merge()
    assert world.vacuum().marked == 2
    world.wait(VACUUM_MARK_AGE_MS)
    assert world.vacuum().marked == 0
    world.wait(1)
    assert world.vacuum().marked == 1


def test_what_leaders_left_goes_when_the_log_has_grown_beyond_it(world: World) -> None:
    world.store.put_new(f"{TABLE}/{ORPHAN}", b"never committed")
    for _ in range(3):
        world.wait(10 * DAY_MS)
        assert world.vacuum() == NOTHING
    append(world.partition, b"0")
    assert world.vacuum().marked == 1
    world.wait(DAY_MS + 1)
    assert world.vacuum().deleted_bytes == len(b"never committed")
    assert world.files() == world.live()


def test_what_is_not_a_segment_of_the_table_is_left_alone(merged: World) -> None:
    strangers = [
        "README.md",
        "part-00000-c000.snappy.parquet",
        f"copy/{ORPHAN}",
        f"{ORPHAN}.bak",
        "_vacuum/notes.txt",
        f"_delta_log/{ORPHAN}",
    ]
    for name in strangers:
        merged.store.put(f"{TABLE}/{name}", b"a stranger's")
    for _ in range(3):
        merged.vacuum()
        merged.wait(DAY_MS + 1)
    assert len(merged.live()) == 1
    assert all(merged.store.get(f"{TABLE}/{name}") == b"a stranger's" for name in strangers)


def test_a_dry_run_says_what_would_be_and_changes_nothing(deleted: World) -> None:
    for _ in range(3):
        watched = FaultyStore(deleted.store)
        table = Table(watched, TABLE, deleted.clock)
        said = vacuum(table, dry_run=True)
        assert watched.writes() == 0
        assert vacuum(table) == said
        assert (watched.writes() > 0) == (said != VacuumResult(0, 3, 0, 0))
        deleted.wait(DAY_MS // 2 + 1)
    assert deleted.files() == deleted.live()


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 24 hours", 1),
        ("interval 1 week", 7),
        ("INTERVAL 2880 Minutes", 2),
        ("3 days", 3),
        ("interval 1 second", 1),
    ],
)
def test_deleted_ones_stay_as_long_as_the_table_says_and_a_day_at_least(
    deleted: World, text: str, days: int
) -> None:
    deleted.partition.set_properties({PROPERTY_FILE_RETENTION: text})
    assert deleted.vacuum().marked == 3
    deleted.wait(days * DAY_MS)
    assert deleted.vacuum().waiting == 3
    deleted.wait(1)
    assert deleted.vacuum().deleted == 3


def test_a_table_that_does_not_say_keeps_files_for_a_day(deleted: World) -> None:
    path = f"{TABLE}/_delta_log/{0:020}.json"
    data = deleted.store.get(path)
    deleted.store.put(path, data.replace(PROPERTY_FILE_RETENTION.encode(), b"delta.other"))
    assert deleted.vacuum().marked == 3
    deleted.wait(DAY_MS + 1)
    assert deleted.vacuum().deleted == 3


def test_a_time_that_cannot_be_read_ends_a_vacuum_before_it_does_anything(deleted: World) -> None:
    deleted.partition.set_properties({PROPERTY_FILE_RETENTION: "a while"})
    with pytest.raises(InvalidArgument, match=r"'a while'; set it to `interval 24 hours`"):
        deleted.vacuum()
    assert deleted.ledgers() == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'["cut'])
def test_a_ledger_that_cannot_be_read_is_named(merged: World, data: bytes) -> None:
    path = ledger_path(TABLE, 1, "0123abcd")
    merged.store.put(path, data)
    with pytest.raises(CorruptLog, match=f"the ledger {path} is not a list of file names"):
        merged.vacuum()
    merged.store.delete(path)
    assert merged.vacuum().marked == 3


def test_many_files_have_several_ledgers(merged: World) -> None:
    assert merged.vacuum(ledger_names_max=2).marked == 3
    assert len(merged.ledgers()) == 2
    assert merged.vacuum(ledger_names_max=2) == VacuumResult(0, 3, 0, 0)
    merged.wait(DAY_MS + 1)
    assert merged.vacuum(ledger_names_max=2).deleted == 3
    assert (merged.files(), merged.ledgers()) == (merged.live(), [])


# Others on the same files.


def age(root: Path, ms: int) -> None:
    """Make every file below `root` older."""
    for file in (path for path in root.rglob("*") if path.is_file()):
        at = file.stat().st_mtime - ms / 1000
        os.utime(file, (at, at))


def test_others_read_a_table_with_ledgers_on_a_disk(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    append_each(partition, [b"0", b"1", b"2"])
    store, inputs = partition.table.store, partition.snapshot.segments
    assert commit_merge(partition.table, inputs, merge(store, TABLE, inputs, "zstd", partition.clock))
    assert vacuum(partition.table).marked == 3
    assert DeltaTable(store.delta_location(TABLE)[0]).to_pyarrow_table().num_rows == 3
    found = check_partition(store, TABLE)
    assert (found.problems, found.unreferenced) == ([], 3)
    age(store_root, REPLACED_FILE_RETENTION_MS + 1_000)
    assert vacuum(partition.table).deleted == 3
    assert not (store_root / vacuum_directory(TABLE)).exists()
    append(partition, b"3")
    assert DeltaTable(store.delta_location(TABLE)[0]).to_pyarrow_table().num_rows == 4
    assert check_partition(store, TABLE).problems == []
    assert check_partition(store, TABLE).unreferenced == 0


def test_a_vacuum_of_a_bucket(s3: S3Server) -> None:
    world = World(open_store(s3.bucket("vacuum"), s3.options))
    due_and_unmarked(world)
    done = world.vacuum()
    assert (done.marked, done.deleted) == (2, 3)
    world.wait(DAY_MS + 1)
    assert world.vacuum().deleted == 2
    assert (world.files(), world.ledgers()) == (world.live(), [])
    assert values(another(world.partition)) == [b"%d" % number for number in range(5)]


def test_the_commit_of_a_vacuum_says_what_it_is(merged: World) -> None:
    merged.vacuum()
    merged.wait(DAY_MS + 1)
    merged.vacuum()
    version = another(merged.partition).snapshot.version
    commit = read_commit(merged.store, TABLE, version)
    assert commit is not None
    assert (commit.info.operation, commit.actions()) == ("VACUUM", [commit.info])
    assert append(merged.partition, b"3") == 3


def test_the_ledgers_of_a_deleted_topic_go_with_it() -> None:
    clock = ManualClock()
    store = ClockedStore(open_store("memory://"), clock)
    cluster = Cluster.open(store, clock, "http://first")
    partition = create_topic(cluster, "t", 1, {"topic.delete.delay.ms": "0"}).partition(0)
    partition.claim("http://first")
    store.put(f"{partition.directory}/{ORPHAN}", b"never committed")
    append(partition, b"0")
    clock.advance(VACUUM_MARK_AGE_MS + 1)
    assert vacuum(partition.table).marked == 1
    delete_topic(cluster, "t")
    clock.advance(LOG_RETENTION_MS)
    sweep(cluster)
    assert [item.path for item in store.list(vacuum_directory(partition.directory))] == []
    clock.advance(LOG_RETENTION_MS)
    assert sweep(cluster) == ["topics/t"]
    assert list(store.list("topics/t/")) == []
