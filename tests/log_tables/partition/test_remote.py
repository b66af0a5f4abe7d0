"""Readers cross the border between the two tiers, and say so when the remote root is away."""

import shutil
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, CorruptSegment, StoreUnavailable
from log_tables.layout import REMOTE_MARK
from log_tables.limits import REMOTE_LOOK_S
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import open_store
from log_tables.testing import Fault, FaultyStore, unavailable
from tests.kit.partitions import TABLE, another, append, new_partition
from tests.kit.partitions import held as values_held
from tests.kit.tiers import VALUES, bases, check_whole, move, numbered_partition, remote_root, with_tier


@pytest.fixture
def partition(store_root: Path, clock: ManualClock) -> Partition:
    return numbered_partition(open_store(store_root), clock)


def test_a_read_from_the_beginning_crosses_the_border(partition: Partition, root: RemoteRoot) -> None:
    reader = with_tier(partition, root)
    move(partition.table, root, 3)
    assert [segment.remote for segment in reader.log_from(0).segments] == [False] * 6  # as it knew it
    reader.refresh()
    assert not reader.reaches(0)
    assert [segment.remote for segment in reader.log_from(0).segments] == [True] * 3 + [False] * 3
    assert reader.reaches(0)
    assert list(values_held(reader, 1).values()) == VALUES
    assert list(values_held(reader).values()) == VALUES
    assert reader.log_from(6) is reader.snapshot
    assert reader.log_from(5) is reader.log_from(0)


def test_a_reader_follows_the_border(partition: Partition, root: RemoteRoot) -> None:
    reader = with_tier(partition, root)
    for moved in range(5):
        move(partition.table, root, 1)
        reader.refresh()
        assert reader.snapshot.tiered == 2 * (moved + 1)
        assert list(values_held(reader).values()) == VALUES


def test_a_reader_looks_at_the_remote_table_again_before_a_vacuum_can_have_passed(
    partition: Partition, root: RemoteRoot, clock: ManualClock
) -> None:
    reader = with_tier(partition, root)
    move(partition.table, root, 4)
    reader.refresh()
    known = [segment.path for segment in reader.log_from(0).segments]
    there = root.table(TABLE)
    inputs = there.snapshot.segments
    assert commit_merge(there, inputs, merge(root.store, TABLE, inputs, "zstd", clock))
    assert [segment.path for segment in reader.log_from(0).segments] == known
    clock.advance(REMOTE_LOOK_S * 1000 + 1)
    assert not reader.reaches(0)
    for segment in inputs:
        root.store.delete(f"{TABLE}/{segment.path}")
    assert bases(reader.log_from(0).segments) == [0, 8, 10]
    assert list(values_held(reader).values()) == VALUES


def test_a_time_is_found_in_the_remote_part(store_root: Path, root: RemoteRoot, clock: ManualClock) -> None:
    made = new_partition(open_store(store_root), clock)
    for number in range(6):
        append(made, b"", at_us=1_000_000 * (10 + number))
    move(made.table, root, 3)
    reader = with_tier(made, root)
    assert [reader.position(1_000_000 * second) for second in (0, 10, 12, 13, 15, 16)] == [
        0,
        0,
        2,
        3,
        5,
        None,
    ]
    assert reader.position(11_000_001) == 2
    made.truncate(2)
    reader.refresh()
    assert reader.position(0) == 2


def test_deleting_records_reaches_into_the_remote_part(partition: Partition, root: RemoteRoot) -> None:
    move(partition.table, root, 3)
    reader = with_tier(partition, root)
    assert reader.truncate(3) == 3
    check_whole(partition_now(partition), root)
    assert list(values_held(reader)) == [*range(3, 12)]
    assert bases(reader.snapshot.segments) == [6, 8, 10]
    assert reader.truncate(7) == 7  # beyond the border: nothing remote is asked for any more
    root.store.delete(f"{TABLE}/_delta_log/{0:020}.json")
    assert list(values_held(with_tier(partition, root))) == [*range(7, 12)]


def partition_now(partition: Partition) -> Partition:
    partition.refresh()
    return partition


def test_without_the_remote_root_the_local_part_is_read_on(
    partition: Partition, away: Path, clock: ManualClock
) -> None:
    root = remote_root(away, clock)
    move(partition.table, root, 3)
    opened = with_tier(partition, root)
    assert opened.log_from(0).segments[0].remote
    away.rename(away.with_name("gone"))
    unopened = with_tier(partition, remote_root(away, clock))
    for reader in (opened, unopened):
        assert reader.fetch(6, 1 << 20).num_rows == 6
        with pytest.raises(StoreUnavailable, match="the remote root"):
            reader.fetch(5, 1 << 20)
    with pytest.raises(StoreUnavailable, match="the remote root is missing"):
        unopened.position(0)
    away.with_name("gone").rename(away)
    for reader in (opened, unopened):
        assert list(values_held(reader).values()) == VALUES


@pytest.mark.parametrize(("left", "said"), [((), REMOTE_MARK), ((REMOTE_MARK,), f"table {TABLE}")])
def test_a_lost_mount_that_leaves_an_empty_directory_is_an_error_to_repeat(
    partition: Partition, away: Path, clock: ManualClock, left: tuple[str, ...], said: str
) -> None:
    """So is one that leaves all but the tables."""
    reader = with_tier(partition, remote_root(away, clock))
    move(partition.table, remote_root(away, clock), 2)
    reader.refresh()
    assert reader.log_from(0).segments[0].remote
    move(partition.table, remote_root(away, clock), 1)
    reader.refresh()
    away.rename(away.with_name("gone"))
    away.mkdir()
    for name in left:
        shutil.copy(away.with_name("gone") / name, away)
    with pytest.raises(StoreUnavailable, match=f"the remote root has no {said}"):
        reader.fetch(0, 1 << 20)
    shutil.rmtree(away)
    away.with_name("gone").rename(away)
    assert list(values_held(reader).values()) == VALUES


def test_a_remote_store_that_does_not_answer_is_named(
    partition: Partition, away: Path, clock: ManualClock
) -> None:
    move(partition.table, remote_root(away, clock), 3)
    faulty = FaultyStore(
        open_store(away), [Fault(1, unavailable, {"get"}), Fault(1, unavailable, {"get"}, "parquet")]
    )
    reader = with_tier(partition, remote_root(away, clock, faulty))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the remote root does not answer"):
            reader.fetch(0, 1)
    assert list(values_held(reader).values()) == VALUES


def test_a_remote_segment_that_is_missing_is_damage(partition: Partition, root: RemoteRoot) -> None:
    move(partition.table, root, 3)
    reader = with_tier(partition, root)
    root.store.delete(f"{TABLE}/{reader.log_from(0).segments[0].path}")
    with pytest.raises(CorruptSegment, match="is missing"):
        reader.fetch(0, 1 << 20)


def test_without_the_name_of_a_remote_root_nothing_below_the_border_is_read(
    partition: Partition, root: RemoteRoot
) -> None:
    move(partition.table, root, 3)
    lost = another(partition)
    assert lost.fetch(6, 1 << 20).num_rows == 6
    with pytest.raises(CorruptLog, match="the metadata log names none"):
        lost.fetch(0, 1)
