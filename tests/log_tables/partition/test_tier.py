"""Segments move to the remote root one way, once, whole, whoever is killed or comes between."""

import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, CorruptSegment, StoreUnavailable
from log_tables.layout import PROPERTY_CLUSTER
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import CopyTask, remove_expired, run_copy
from log_tables.record import to_records
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.segment import read
from log_tables.store.store import Data, open_store
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table, create_table
from log_tables.testing import Crash, Failure, Fault, FaultyStore, crash_after, crash_before
from tests.kit import tiers
from tests.kit.partitions import TABLE, another, append, append_each
from tests.kit.partitions import held as values_held
from tests.kit.tiers import (
    VALUES,
    bases,
    check_whole,
    commit_move,
    move,
    numbered_partition,
    remote_root,
    tiered,
    with_tier,
)


@pytest.fixture
def partition(store_root: Path, clock: ManualClock) -> Partition:
    return numbered_partition(open_store(store_root), clock)


def held(root: RemoteRoot, segments: tuple[Segment, ...]) -> list[bytes | None]:
    """The values that some remote segments hold."""
    return [
        record.value
        for item in segments
        for batch in read(root.store, TABLE, item, 0, 1 << 40)
        for record in to_records(batch)
    ]


def test_a_move_puts_the_segments_there_and_takes_them_away_here(
    partition: Partition, root: RemoteRoot
) -> None:
    gone = move(partition.table, root, 4)
    assert bases(gone) == [0, 2, 4, 6]
    there = root.table(TABLE).snapshot
    assert (there.log_start, there.high_watermark, there.cluster) == (0, 8, tiers.CLUSTER)
    assert held(root, there.segments) == VALUES[:8]
    assert [item.modification_time for item in there.segments] == [item.modification_time for item in gone]
    here = partition.snapshot
    assert (bases(here.segments), here.tiered, here.log_start) == ([8, 10], 8, 0)


def test_moves_go_on_where_the_last_one_ended(partition: Partition, root: RemoteRoot) -> None:
    assert tiered(partition, root, 2) == ([0, 2], [4, 6, 8, 10])
    assert tiered(partition, root, 1) == ([0, 2, 4], [6, 8, 10])
    assert tiered(partition, root, 0) == ([0, 2, 4], [6, 8, 10])
    assert held(root, root.table(TABLE).snapshot.segments) == VALUES[:6]


def test_the_newest_segment_stays(partition: Partition, root: RemoteRoot) -> None:
    assert tiered(partition, root, 6) == ([0, 2, 4, 6, 8, 10], [10])
    append(partition, b"12")
    assert tiered(partition, root, 0) == ([0, 2, 4, 6, 8, 10], [12])
    assert partition.snapshot.tiered == 12


def test_what_comes_after_all_was_deleted_may_be_older_than_what_is_there(
    partition: Partition, root: RemoteRoot, clock: ManualClock
) -> None:
    tiered(partition, root, 6)
    partition.truncate(12)
    clock.jump(-60_000)
    append(partition, b"12")
    append(partition, b"13")
    assert tiered(partition, root, 1) == ([0, 2, 4, 6, 8, 10, 12], [13])


def test_appends_go_on_beside_moves(partition: Partition, root: RemoteRoot) -> None:
    remote = root.make_table(TABLE)
    made = tiers.copied(partition.table, root, partition.snapshot.segments[:2])
    assert append(another_leads(partition), b"12") == 12
    assert bases(commit_move(partition.table, remote, made)) == [0, 2]
    assert partition.snapshot.high_watermark == 13


def another_leads(partition: Partition) -> Partition:
    other = another(partition)
    other.claim("http://second")
    return other


def copy_task(partition: Partition, away: Path, count: int = 3) -> CopyTask:
    return CopyTask(
        local=partition.table.store.url,
        remote=away.as_uri(),
        options=(("secret_key", "hush"),),
        directory=TABLE,
        segments=partition.snapshot.segments[:count],
        held=0,
        compression="zstd",
    )


def test_a_copy_task_holds_all_that_it_needs(partition: Partition, root: RemoteRoot, away: Path) -> None:
    remote = root.make_table(TABLE)
    task = copy_task(partition, away)
    assert "hush" not in repr(task)  # Spark may log it
    made = run_copy(task)
    assert bases(commit_move(partition.table, remote, made)) == [0, 2, 4]
    assert held(root, root.table(TABLE).snapshot.segments) == VALUES[:6]


def test_a_worker_that_goes_on_copies_to_a_remote_root_that_was_mounted_anew(
    partition: Partition, root: RemoteRoot, away: Path
) -> None:
    """A worker of Spark lives for many runs."""
    root.make_table(TABLE)
    assert bases(run_copy(copy_task(partition, away, 1))) == [0]
    away.rename(away.with_name("gone"))
    shutil.copytree(away.with_name("gone"), away)
    assert bases(run_copy(copy_task(partition, away, 2))) == [0, 2]


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("side", ["local", "remote"])
def test_a_move_that_is_killed_anywhere_is_completed_by_the_next(
    partition: Partition, root: RemoteRoot, away: Path, failure: Failure, side: str, clock: ManualClock
) -> None:
    """Each write of a move is a place to die: the next life finds every record in one of the two tables."""
    root.make_table(TABLE)
    follower = with_tier(partition, root)
    for number in range(1, 100):
        start = partition.refresh().segments[0].base_offset
        fault = [Fault(number, failure)]
        here = FaultyStore(partition.table.store, fault if side == "local" else ())
        there = FaultyStore(open_store(away), fault if side == "remote" else ())
        with suppress(Crash):
            move(Table(here, TABLE, clock), remote_root(away, clock, there), 1)
        check_whole(partition, root)
        follower.refresh()
        check_whole(follower, root)  # one that reads from before the first move on
        move(partition.table, root, 0 if partition.refresh().tiered > start else 1)
        check_whole(partition, root)
        assert partition.refresh().tiered == start + 2
        if not (here.dead or there.dead):
            break
        end = partition.high_watermark
        append(partition, str(end).encode(), str(end + 1).encode())
    # A segment and a commit there, a commit here; before each and, but for the last, after each.
    assert number == (2 if side == "local" else 3)


def test_two_movers_at_once_move_each_segment_once(partition: Partition, root: RemoteRoot) -> None:
    remote, other = root.make_table(TABLE), another(partition)
    first = tiers.copied(partition.table, root, partition.snapshot.segments[:2])
    second = tiers.copied(other.table, root, other.snapshot.segments[:3])
    assert bases(commit_move(partition.table, remote, first)) == [0, 2]
    assert bases(commit_move(other.table, root.table(TABLE), second)) == [4]
    assert commit_move(partition.table, remote, first) == ()
    assert tiered(partition, root, 1) == ([0, 2, 4, 6], [8, 10])
    check_whole(partition, root)


def test_a_mover_that_comes_late_completes_what_another_left(partition: Partition, root: RemoteRoot) -> None:
    remote = root.make_table(TABLE)
    made = tiers.copied(partition.table, root, partition.snapshot.segments[:2])
    local = Table(FaultyStore(partition.table.store, [Fault(1, crash_before)]), TABLE, partition.clock)
    with pytest.raises(Crash):
        commit_move(local, remote, made)
    assert bases(commit_move(partition.table, root.table(TABLE), made)) == [0, 2]
    check_whole(partition, root)


def test_only_the_rest_of_a_segment_that_was_merged_since_is_copied(
    partition: Partition, root: RemoteRoot
) -> None:
    """A merge joined what one mover had copied with what it had not."""
    remote, table = root.make_table(TABLE), partition.table
    made = tiers.copied(table, root, table.snapshot.segments[:2])
    inputs = table.snapshot.segments[1:4]
    assert commit_merge(table, inputs, merge(table.store, TABLE, inputs, "zstd", partition.clock))
    assert bases(commit_move(table, remote, made)) == [0]
    assert bases(partition.refresh().segments) == [2, 8, 10]
    check_whole(partition, root)
    assert tiered(partition, root, 1) == ([0, 2, 4], [8, 10])
    (_, _, tail) = root.table(TABLE).snapshot.segments
    assert (tail.base_offset, tail.last_offset, tail.modification_time) == (
        4,
        7,
        inputs[-1].modification_time,
    )
    check_whole(partition, root)


def test_nothing_is_moved_over_a_gap(partition: Partition, root: RemoteRoot) -> None:
    """A task that failed leaves a hole: what lies behind it waits for the next run."""
    remote, segments = root.make_table(TABLE), partition.snapshot.segments
    made = tiers.copied(partition.table, root, [segments[0], segments[2]])
    assert commit_move(partition.table, remote, made) == ()
    assert commit_move(partition.table, remote, made[1:]) == ()
    assert remote.snapshot.segments == ()
    assert bases(commit_move(partition.table, remote, made[:1])) == [0]


def test_what_was_deleted_is_not_moved_and_its_gap_is_none(partition: Partition, root: RemoteRoot) -> None:
    made = tiers.copied(partition.table, root, partition.snapshot.segments[:3])
    partition.truncate(3)
    assert bases(commit_move(partition.table, root.make_table(TABLE), made)) == [2, 4]
    there = root.table(TABLE).snapshot
    assert (bases(there.segments), there.high_watermark) == ([2, 4], 6)


def test_what_lies_below_the_log_start_is_removed_there(partition: Partition, root: RemoteRoot) -> None:
    move(partition.table, root, 4)
    remote = root.table(TABLE)
    assert partition.truncate(5) == 5
    assert bases(remove_expired(remote, partition.log_start)) == [0, 2]
    assert (bases(remote.snapshot.segments), remote.snapshot.log_start) == ([4, 6], 5)
    assert remove_expired(remote, partition.log_start) == ()
    partition.truncate(11)
    assert bases(remove_expired(remote, partition.log_start)) == [4, 6]
    assert (remote.snapshot.segments, remote.snapshot.log_start) == ((), 8)
    append_each(partition, [b"12", b"13"])
    assert tiered(partition, root, 2) == ([10, 12], [13])


def test_a_segment_that_is_not_what_the_log_says_is_not_moved(partition: Partition, root: RemoteRoot) -> None:
    segment = partition.snapshot.segments[0]
    path = f"{TABLE}/{segment.path}"
    data = partition.table.store.get(path)
    partition.table.store.put(path, data[:-1])
    with pytest.raises(CorruptSegment, match=f"{segment.path} has {len(data) - 1} bytes"):
        move(partition.table, root, 1)
    partition.table.store.delete(path)
    with pytest.raises(CorruptSegment, match="is missing"):
        move(partition.table, root, 1)
    assert root.table(TABLE).snapshot.segments == ()


def test_damage_is_not_moved(partition: Partition, root: RemoteRoot) -> None:
    """A damaged file of the right size must not move: the local file is deleted after a move, and the damage
    would be final.
    """
    segment = partition.snapshot.segments[0]
    path = f"{TABLE}/{segment.path}"
    data = partition.table.store.get(path)
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    at = column.data_page_offset + column.total_compressed_size - 1  # the last byte of a page
    other = partition.table.store.get(f"{TABLE}/{partition.snapshot.segments[1].path}")
    for damaged in (data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :], data[::-1], other):
        assert len(damaged) == segment.size
        partition.table.store.put(path, damaged)
        with pytest.raises(CorruptSegment, match=f"segment {path} .*restore it from a backup"):
            move(partition.table, root, 1)
    assert [*root.store.list(f"{TABLE}/0")] == []
    partition.table.store.put(path, data)
    assert bases(move(partition.table, root, 1)) == [0]


def test_what_does_not_read_back_is_not_committed(
    partition: Partition, away: Path, clock: ManualClock
) -> None:
    with pytest.raises(CorruptSegment, match="did not read back from the remote root as written"):
        move(partition.table, remote_root(away, clock, _Rotting(open_store(away))), 1)
    assert partition.refresh().tiered == 0


class _Rotting(FaultyStore):
    """A store that loses the last byte of every segment."""

    def put_new(self, path: str, data: Data) -> None:
        super().put_new(path, bytes(memoryview(data))[:-1])


def test_a_remote_table_of_another_cluster_is_refused(
    partition: Partition, away: Path, clock: ManualClock
) -> None:
    store = open_store(away)
    create_table(store, TABLE, clock, {PROPERTY_CLUSTER: "another"})
    with pytest.raises(CorruptLog, match="is of cluster another, not of cluster a-cluster"):
        move(partition.table, remote_root(away, clock), 1)
    create_table(store, "topics/u/partition=0", clock)
    with pytest.raises(CorruptLog, match="is of no remote tier"):
        remote_root(away, clock).table("topics/u/partition=0")


def test_a_remote_root_that_lost_what_it_held_takes_nothing_more(
    partition: Partition, root: RemoteRoot, tmp_path: Path, clock: ManualClock
) -> None:
    move(partition.table, root, 2)
    (tmp_path / "empty").mkdir()
    other = remote_root(tmp_path / "empty", clock)
    with pytest.raises(StoreUnavailable, match="ends at offset 0, and the local one begins at 4"):
        move(partition.table, other, 1)
    partition.truncate(4)
    assert bases(move(partition.table, other, 1)) == [4]  # nothing of what is lost is asked for any more


def test_a_log_that_is_older_than_what_was_copied_of_it_loses_nothing_more(
    partition: Partition, root: RemoteRoot, store_root: Path, tmp_path: Path
) -> None:
    """The log was restored from a backup: its newer records have the offsets of other records in the remote
    root.
    """
    shutil.copytree(store_root, tmp_path / "backup")
    append_each(partition, [b"lost", b"newest"])
    move(partition.table, root, 7)
    shutil.rmtree(store_root)
    shutil.copytree(tmp_path / "backup", store_root)
    restored = another(partition, open_store(store_root))
    with pytest.raises(CorruptLog, match="ends at offset 13, and the log of which it was copied at 12"):
        move(restored.table, root, 0)
    assert list(values_held(restored).values()) == VALUES
    restored.claim("")
    append_each(restored, [b"other", b"records", b"since"])
    with pytest.raises(CorruptLog, match=r"offsets 12-12 of .* are other records in the remote root"):
        move(restored.table, root, 0)
    assert list(values_held(restored).values()) == [*VALUES, b"other", b"records", b"since"]


def test_a_remote_root_that_is_not_there_may_come_back(
    partition: Partition, away: Path, clock: ManualClock
) -> None:
    root = remote_root(away, clock)
    shutil.rmtree(away)
    with pytest.raises(StoreUnavailable, match="the remote root is missing"):
        root.table(TABLE)
    away.mkdir()
    for ask in (root.table, root.find, root.make_table, root.remove):
        with pytest.raises(StoreUnavailable, match="it is lost or not mounted"):
            ask(TABLE)
    assert [*away.iterdir()] == []
    root.mark()
    with pytest.raises(StoreUnavailable, match=f"the remote root has no table {TABLE}"):
        root.table(TABLE)
    assert bases(move(partition.table, root, 1)) == [0]
