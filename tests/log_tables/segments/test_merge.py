"""A merge holds what its inputs hold, and takes their place whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, CorruptSegment, InvalidArgument
from log_tables.limits import KIB, MIB
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.record import RECORD_SCHEMA
from log_tables.root.table_check import check_partition
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.segments.segment import COMPRESSIONS, SegmentLimits
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Segment
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.partitions import TABLE, another, append, append_each, held, new_partition, records, thin_out
from tests.kit.rewrites import HOUR_MS, clean, merged


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("first", "end"), [(0, 5), (0, 1), (1, 4), (3, 5)])
def test_a_merge_changes_nothing_that_a_reader_sees(
    partition: Partition, compression: str, first: int, end: int
) -> None:
    before, inputs = records(another(partition)), partition.snapshot.segments[first:end]
    made = merged(partition, inputs, compression)
    assert records(another(partition)) == before
    assert rewrite.commit_merge(partition.table, inputs, made)
    assert records(another(partition)) == before
    assert len(partition.snapshot.segments) == 5 - (end - first) + 1
    assert append(partition, b"next", producer=ProducerStamp(7, 0, 10)) == 10
    assert check_partition(partition.table.store, TABLE).problems == []


def test_the_stats_of_a_merge_are_those_of_its_inputs_together(partition: Partition) -> None:
    inputs = partition.snapshot.segments
    made = merged(partition, inputs)
    assert (made.base_offset, made.last_offset, made.records) == (0, 9, 10)
    assert made.min_timestamp == min(item.min_timestamp for item in inputs)
    assert made.max_timestamp == max(item.max_timestamp for item in inputs)
    assert made.nulls == (5, 5, 5)
    assert inputs[-1].modification_time == made.modification_time
    assert partition.position(5_000_003) == 7


def test_a_merge_keeps_gaps_as_they_are(partition: Partition) -> None:
    thin_out(partition, partition.snapshot.segments[1:4], lambda offset: offset in (3, 6))
    before, inputs = records(partition), partition.snapshot.segments
    assert rewrite.commit_merge(partition.table, inputs, merged(partition, inputs))
    assert records(another(partition)) == before
    assert list(held(another(partition), max_bytes=1)) == [0, 1, 3, 6, 8, 9]


def test_merges_of_merges_and_of_what_is_below_the_log_start(partition: Partition) -> None:
    partition.truncate(3)
    inputs = partition.snapshot.segments[:2]
    assert rewrite.commit_merge(partition.table, inputs, merged(partition, inputs))
    inputs = partition.snapshot.segments
    assert rewrite.commit_merge(partition.table, inputs, merged(partition, inputs))
    assert list(held(another(partition))) == [3, 4, 5, 6, 7, 8, 9]
    partition.truncate(10)
    assert partition.snapshot.segments == ()


def test_a_merge_holds_a_row_group_and_not_all_records(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    for _ in range(64):
        append(partition, *[b"x" * KIB] * 64)
    held_bytes: list[int] = []

    def look(perform: Callable[[], object]) -> object:
        held_bytes.append(pa.total_allocated_bytes())
        return perform()

    watched = FaultyStore(store, [Fault(n, look, {"get", "put_new"}) for n in range(1, 66)])
    inputs = partition.snapshot.segments
    made = rewrite.merge(watched, TABLE, inputs, "zstd", clock, SegmentLimits(group_bytes=256 * KIB))
    assert len(held_bytes) == 65
    assert max(held_bytes) - held_bytes[0] < MIB < made.raw_bytes / 4
    groups = [part.num_rows for part in segments.decode(pa.py_buffer(store.get(f"{TABLE}/{made.path}")))]
    assert len(groups) == pytest.approx(made.raw_bytes / (256 * KIB), abs=2)
    assert max(groups[:-1]) - min(groups[:-1]) <= 2


def test_what_does_not_follow_in_order_cannot_be_merged(partition: Partition) -> None:
    first, second, *_ = partition.snapshot.segments
    wrong: list[tuple[Segment, ...]] = [(), (second, first), (first, first)]
    for inputs in wrong:
        with pytest.raises(InvalidArgument, match="in offset order"):
            merged(partition, inputs)


def test_a_merge_that_skips_a_segment_is_refused_before_it_is_committed(partition: Partition) -> None:
    first, _, third, *_ = partition.snapshot.segments
    version = partition.snapshot.version
    made = merged(partition, (first, third))
    with pytest.raises(CorruptLog, match="refused to commit to topics/t/partition=0"):
        rewrite.commit_merge(partition.table, (first, third), made)
    assert another(partition).snapshot.version == version


def test_a_merge_of_a_segment_that_is_broken_makes_nothing(partition: Partition, store: Store) -> None:
    inputs = partition.snapshot.segments
    path = f"{TABLE}/{inputs[2].path}"
    data = store.get(path)
    before = len(list(store.list(TABLE)))
    for broken in (b"", data[:-1], store.get(f"{TABLE}/{inputs[1].path}")):
        store.put(path, broken)
        with pytest.raises(CorruptSegment, match=path):
            merged(partition, inputs)
    assert len(list(store.list(TABLE))) == before


@pytest.fixture(params=["a record less", "a record twice", "another order", "other values", "a broken file"])
def miswriting(
    partition: Partition, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Partition:
    """A partition whose next Parquet files do not hold what they are given."""
    write, end = pq.ParquetWriter.write_table, pq.ParquetWriter.close

    def wrong(writer: pq.ParquetWriter, rows: pa.Table, row_group_size: int) -> None:
        every = [*range(rows.num_rows)]
        taken = {"a record less": every[1:], "a record twice": [0, *every], "another order": every[::-1]}
        rows = rows.take(taken.get(request.param, every))
        if request.param == "other values":
            rows = rows.set_column(3, RECORD_SCHEMA.field(3), rows["key"])
        write(writer, rows, row_group_size=row_group_size)

    def broken(writer: pq.ParquetWriter) -> None:
        ending = writer.is_open
        end(writer)
        if ending and request.param == "a broken file":
            writer.where.write(b"more")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", wrong)
    monkeypatch.setattr(pq.ParquetWriter, "close", broken)
    return partition


def test_what_does_not_read_back_is_not_even_put(miswriting: Partition, store: Store) -> None:
    before = list(store.list(TABLE))
    with pytest.raises(CorruptSegment, match="does not read back"):
        merged(miswriting, miswriting.snapshot.segments)
    with pytest.raises(CorruptSegment, match="does not read back"):
        clean(miswriting)
    assert list(store.list(TABLE)) == before


def test_a_merge_of_a_segment_whose_stats_lie_makes_nothing(partition: Partition, store: Store) -> None:
    first, second, third, *_ = partition.snapshot.segments
    thin_out(partition, [second, third], lambda offset: offset in (3, 4))
    _, sparse, *_ = partition.snapshot.segments
    for wrong in (
        replace(sparse, base_offset=2),
        replace(sparse, last_offset=5),
        replace(sparse, records=3),
        replace(first, last_offset=2),
        replace(first, records=3),
    ):
        before = list(store.list(TABLE))
        with pytest.raises(CorruptSegment, match=wrong.path):
            merged(partition, [wrong])
        assert list(store.list(TABLE)) == before


def test_of_two_merges_of_the_same_segments_one_is_committed(partition: Partition) -> None:
    inputs, other = partition.snapshot.segments, another(partition)
    one, two = merged(partition, inputs), merged(other, inputs[1:3])
    assert rewrite.commit_merge(partition.table, inputs, one)
    assert not rewrite.commit_merge(other.table, inputs[1:3], two)
    assert [item.path for item in other.snapshot.segments] == [one.path]
    assert check_partition(partition.table.store, TABLE).problems == []


def test_a_merge_of_segments_that_were_deleted_ends_without_harm(partition: Partition) -> None:
    inputs, other = partition.snapshot.segments[:3], another(partition)
    made = merged(other, inputs)
    partition.truncate(3)
    assert not rewrite.commit_merge(other.table, inputs, made)
    assert list(held(another(partition))) == [3, 4, 5, 6, 7, 8, 9]


def test_a_merge_that_slept_past_a_cleanup_ends_without_harm(
    partition: Partition, clock: ManualClock
) -> None:
    inputs, other = partition.snapshot.segments[:3], another(partition)
    made = merged(other, inputs)
    partition.truncate(3)
    append_each(partition, [b"a", b"b"])
    clock.advance(HOUR_MS + 1)
    partition.refresh()
    partition.checkpoint()
    assert partition.table.delete_expired_log() > 0
    assert not rewrite.commit_merge(other.table, inputs, made)
    assert list(held(another(partition))) == list(range(3, 12))
    assert another(partition).snapshot == another(other).snapshot


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_a_merge_that_is_killed_leaves_all_records_where_they_are(
    partition: Partition, store: Store, nth: int, failure: object
) -> None:
    before = records(partition)
    dying = another(partition, FaultyStore(store, [Fault(nth, failure)]))  # type: ignore[arg-type]
    inputs = dying.snapshot.segments
    with pytest.raises(Crash):
        rewrite.commit_merge(dying.table, inputs, merged(dying, inputs))
    survivor = another(partition)
    assert records(survivor) == before
    assert len(survivor.snapshot.segments) == (1 if (nth, failure) == (2, crash_after) else 5)
    survivor.claim("http://second")
    assert append(survivor, b"next") == 10
    assert check_partition(store, TABLE).problems == []


def test_a_merge_on_a_disk_survives_a_new_start(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), ManualClock())
    append_each(partition, [b"a", b"b", b"c"])
    inputs = partition.snapshot.segments
    assert rewrite.commit_merge(partition.table, inputs, merged(partition, inputs))
    fresh = Partition(open_store(store_root), TABLE, ManualClock())
    assert list(held(fresh).values()) == [b"a", b"b", b"c"]
