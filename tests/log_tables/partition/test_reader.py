"""Reading a partition: plans, gaps, offsets by time, and what a reader hears of."""

import pyarrow as pa
import pytest

from log_tables.clock import ManualClock
from log_tables.columns.declaration import parse
from log_tables.errors import CorruptSegment, InvalidOffset, OffsetOutOfRange
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.partition.reader import PartitionConfig, PartitionReader
from log_tables.record import RECORD_SCHEMA, Record, input_batch, to_records
from log_tables.rows import Rows
from log_tables.segments import rewrite
from log_tables.store.store import Store
from log_tables.testing import WRITES, FaultyStore
from tests.kit.partitions import (
    TABLE,
    another,
    append,
    append_each,
    held,
    new_partition,
    sound,
    thin_out,
    values,
    with_sizes,
)


def test_a_reader_follows_a_leader_and_writes_nothing(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    watched = FaultyStore(store)
    reader = PartitionReader(watched, TABLE, clock)
    append(partition, b"a", b"b", at_us=7)
    assert values(reader) == []
    assert reader.refresh().high_watermark == 2
    assert values(reader) == [b"a", b"b"]
    assert (reader.position(7), reader.position(8)) == (0, None)
    assert not {call.operation for call in watched.calls} & WRITES
    assert append(partition, b"c") == 2


@pytest.mark.parametrize("max_bytes", [-5, 0, 1, 7, 30, 1_000])
def test_a_read_gets_on_whatever_it_may_hold(partition: Partition, max_bytes: int) -> None:
    for count in (1, 3, 2):
        append(partition, *(b"%d" % n * 10 for n in range(count)))
    assert list(held(partition, max_bytes)) == [0, 1, 2, 3, 4, 5]
    assert list(held(another(partition), max_bytes)) == [0, 1, 2, 3, 4, 5]
    assert partition.fetch(0, max_bytes).num_rows < 6 or max_bytes == 1_000


def test_a_plan_keeps_to_its_bytes_over_segments(partition: Partition) -> None:
    for _ in range(6):
        append(partition, *[b"x" * 100] * 5)
    width = partition.snapshot.segments[0].raw_bytes // 5
    for count in (1, 4, 5, 6, 11, 29, 30):
        plan = partition.plan_read(2, width * count)
        assert plan.end == min(2 + count, 30)
        assert sum(batch.num_rows for batch in partition.read(plan)) == plan.end - 2
    assert partition.plan_read(0, 1 << 40).end == 30


def test_a_read_at_the_end_is_empty_and_beyond_it_an_error(partition: Partition) -> None:
    append(partition, b"a", b"b")
    plan = partition.plan_read(2, 100)
    assert (plan.start, plan.end, plan.segments) == (2, 2, ())
    assert list(partition.read(plan)) == []
    assert partition.fetch(2, 100).schema.equals(RECORD_SCHEMA)
    with pytest.raises(OffsetOutOfRange) as raised:
        partition.plan_read(3, 100)
    assert raised.value.details == {"log_start_offset": 0, "high_watermark": 2}
    with pytest.raises(InvalidOffset, match="offset -1 is negative"):
        partition.plan_read(-1, 100)


def test_an_empty_partition_is_read_at_zero(partition: Partition) -> None:
    assert partition.fetch(0, 100).num_rows == 0
    assert partition.position(0) is None


def test_a_plan_outlives_what_happens_after_it(partition: Partition) -> None:
    append_each(partition, [b"a", b"b", b"c"])
    plan = another(partition).plan_read(0, 1000)
    inputs = partition.snapshot.segments
    merged = rewrite.merge(partition.table.store, TABLE, inputs, "zstd", partition.clock)
    assert rewrite.commit_merge(partition.table, inputs, merged)
    partition.truncate(3)
    rows = [record.value for batch in another(partition).read(plan) for record in to_records(batch)]
    assert rows == [b"a", b"b", b"c"]


def test_only_the_columns_asked_for_are_read(partition: Partition) -> None:
    append(partition, b"a")
    for reader in (partition, another(partition)):
        batches = list(reader.read(reader.plan_read(0, 100), ["value", "offset"]))
        assert [batch.schema.names for batch in batches] == [["offset", "value"]]


def test_what_comes_from_memory_equals_what_comes_from_the_store(partition: Partition) -> None:
    append_each(partition, [b"a", b"b", b"c"])
    partition.append(
        [AppendRequest(input_batch([Record(None, b"k", (("h", None),), n) for n in range(9)], 0))]
    )
    for start in range(12):
        fresh = another(partition)
        assert partition.fetch(start, 50).equals(fresh.fetch(start, 50))
        assert partition.fetch(start, 50).schema.equals(RECORD_SCHEMA, check_metadata=True)


def test_a_seek_into_a_large_segment_reads_a_part_of_it(store: Store, clock: ManualClock) -> None:
    partition = with_sizes(store, clock, group_rows=4, whole_bytes=0, small_bytes=0)
    append(partition, *(b"%d" % n for n in range(40)))
    watched = FaultyStore(store)
    reader = another(partition, watched)
    watched.calls.clear()
    width = partition.snapshot.segments[0].raw_bytes // 40
    assert reader.fetch(18, 3 * width).column("value").to_pylist() == [b"18", b"19", b"20"]
    assert {call.operation for call in watched.calls} == {"get_range"}


def test_a_small_segment_is_read_once(store: Store, partition: Partition) -> None:
    append(partition, b"a", b"b", b"c")
    watched = FaultyStore(store)
    reader = another(partition, watched)
    watched.calls.clear()
    for offset, there in ((0, [b"a", b"b", b"c"]), (1, [b"b", b"c"]), (2, [b"c"])):
        assert reader.fetch(offset, 1_000_000).column("value").to_pylist() == there
    assert [call.operation for call in watched.calls] == ["get"]


def test_a_row_group_is_read_once_by_who_reads_on(store: Store, clock: ManualClock) -> None:
    partition = with_sizes(store, clock, group_rows=4, small_bytes=0)
    append(partition, *(b"%02d" % n * 20 for n in range(12)))
    watched = FaultyStore(store)
    reader = another(partition, watched)
    watched.calls.clear()
    width = reader.snapshot.segments[0].raw_bytes // 12
    found = [reader.fetch(start, width).column("offset").to_pylist() for start in range(12)]
    assert found == [[offset] for offset in range(12)]
    assert [call.operation for call in watched.calls] == ["get"] * 3
    assert reader.fetch(5, 3 * width).column("offset").to_pylist() == [5, 6, 7]
    assert reader.fetch(6, width).column("offset").to_pylist() == [6]
    assert len(watched.calls) == 5, "a row group that was read to its end is not kept"


def test_arrays_of_a_small_segment_are_read_only_when_they_are_asked_for(
    store: Store, clock: ManualClock
) -> None:
    partition = new_partition(store, clock, PartitionConfig(columns=parse("n bigint, a array<bigint>")))
    append(partition, b'{"n":1,"a":[1,2]}')
    reader = Partition(store, TABLE, clock)
    (segment,) = reader.snapshot.segments
    assert reader.fetch(0, 1_000).column("value").to_pylist() == [b'{"n":1,"a":[1,2]}']
    cached = reader._cache.get(f"{TABLE}/{segment.path}")
    assert cached is not None
    assert cached.schema.names[5:] == ["value_error", "n"]
    rows = [row for batch in reader.read(reader.plan_read(0, 9), ["n", "a"]) for row in batch.to_pylist()]
    assert rows == [{"n": 1, "a": [1, 2]}]


@pytest.fixture
def sparse(partition: Partition) -> Partition:
    """Offsets 2, 5, 7 | 10, 11, 14; the high watermark is 15."""
    for base in (0, 5, 10):
        append(partition, *(b"%d" % n for n in range(base, base + 5)))
    first, second, third = partition.snapshot.segments
    thin_out(partition, [first, second], lambda offset: offset in (2, 5, 7))
    thin_out(partition, [third], lambda offset: offset in (10, 11))
    return partition


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 1_000])
def test_a_read_inside_a_gap_goes_on_at_the_next_record(sparse: Partition, max_bytes: int) -> None:
    for reader in (sparse, another(sparse)):
        for start, following in [(0, 2), (3, 5), (6, 7), (8, 10), (11, 11), (12, 14), (14, 14)]:
            assert reader.fetch(start, max_bytes).column("offset")[0].as_py() == following
        plan = reader.plan_read(15, max_bytes)
        assert (plan.end, reader.fetch(15, max_bytes).num_rows) == (15, 0)
        assert list(held(reader, max_bytes)) == [2, 5, 7, 10, 11, 14]


@pytest.mark.parametrize("small_bytes", [0, 1 << 16])
def test_a_read_of_a_segment_with_gaps_keeps_to_its_bytes(
    store: Store, clock: ManualClock, small_bytes: int
) -> None:
    partition = with_sizes(store, clock, group_rows=4, small_bytes=small_bytes)
    for base in (0, 40):
        append(partition, *(b"%02d" % n for n in range(base, base + 40)))
    thin_out(partition, partition.snapshot.segments[:1], lambda offset: offset < 3 or offset % 3 == 0)
    left = [0, 1, 2, *range(3, 40, 3), *range(40, 80)]
    (first, _), reader = partition.snapshot.segments, another(partition)
    width = first.raw_bytes // first.records
    for start in range(41):
        wanted = [offset for offset in left if offset >= start]
        for count in (1, 2, 3, 7, 20):
            plan = reader.bound(reader.plan_read(start, count * width))
            found = [row.offset or 0 for part in reader.read(plan) for row in to_records(part)]
            assert found == wanted[: len(found)]
            assert 1 <= len(found) <= count
            assert found[-1] < plan.end <= wanted[len(found)]
    whole = reader.plan_read(1, width)
    assert (whole.end, whole.limit, reader.bound(whole).end) == (first.last_offset + 1, 1, 2)
    assert [r.offset for part in reader.read(whole) for r in to_records(part)] == left[1:16]


def test_a_gap_stays_when_the_log_goes_on(sparse: Partition) -> None:
    assert append(sparse, b"15") == 15
    assert list(held(another(sparse))) == [2, 5, 7, 10, 11, 14, 15]
    assert sparse.position(2_000_000) is None
    assert sound(sparse)


def test_a_truncation_into_a_gap_starts_at_the_next_record(sparse: Partition) -> None:
    assert sparse.truncate(8) == 8
    assert list(held(another(sparse))) == [10, 11, 14]
    assert sparse.truncate(13) == 13
    assert list(held(another(sparse))) == [14]
    assert append(sparse, b"15") == 15
    assert list(held(another(sparse))) == [14, 15]


def test_gaps_in_a_large_segment_are_found_by_row_groups(store: Store, clock: ManualClock) -> None:
    partition = with_sizes(store, clock, group_rows=2, whole_bytes=0)
    append(partition, *(b"%d" % n for n in range(50)))
    thin_out(partition, partition.snapshot.segments, lambda offset: offset % 7 == 3)
    reader = another(partition)
    for start in range(46):
        assert reader.fetch(start, 1).column("offset")[0].as_py() == start + (3 - start) % 7
    assert list(held(reader, 1)) == [3, 10, 17, 24, 31, 38, 45, 49]


def test_a_position_is_the_earliest_offset_at_or_after_a_time(partition: Partition) -> None:
    times = [[5, 3], [9_000, 1_000], [2_000], [9_001, 8_000, 20_000], [4]]
    for stamps in times:
        partition.append([AppendRequest(input_batch([Record(b"", timestamp_us=t) for t in stamps], 0))])
    flat = [stamp for stamps in times for stamp in stamps]
    for reader in (partition, another(partition)):
        for sought in {0, 20_001, 10**9, *flat, *(t + 1 for t in flat), *(t - 1 for t in flat)}:
            expected = next((offset for offset, stamp in enumerate(flat) if stamp >= sought), None)
            assert reader.position(sought) == expected, sought


def test_a_position_is_never_below_the_log_start(partition: Partition) -> None:
    append(partition, b"a", b"b", at_us=5_000)
    append(partition, b"c", b"d", at_us=6_000)
    partition.truncate(1)
    assert partition.position(0) == 1
    partition.truncate(3)
    assert partition.position(5_000) == 3


@pytest.mark.parametrize(("sought", "found"), [(-(2**62), 0), (-(10**18), 0), (10**18, None), (2**62, None)])
def test_a_time_outside_of_all_years_is_before_or_after_everything(
    partition: Partition, sought: int, found: int | None
) -> None:
    append(partition, b"a")
    assert partition.position(sought) == found


def test_who_reads_hears_of_a_commit(partition: Partition) -> None:
    heard: list[int] = []
    reader = another(partition)
    ends = [p.on_commit(lambda p=p: heard.append(p.high_watermark)) for p in (partition, reader)]  # type: ignore[misc]
    append(partition, b"a")
    assert heard == [1]
    reader.refresh()
    assert heard == [1, 1]
    reader.refresh()
    partition.truncate(1)
    assert heard == [1, 1]
    for end in ends:
        end()
    append(partition, b"b")
    reader.refresh()
    assert heard == [1, 1]


def test_a_segment_that_is_missing_is_named_by_its_path_under_the_root(
    partition: Partition, store: Store
) -> None:
    append(partition, b"a")
    path = f"{TABLE}/{partition.snapshot.segments[0].path}"
    store.delete(path)
    with pytest.raises(CorruptSegment, match=f"segment {path} is missing"):
        another(partition).fetch(0, 100)
    assert partition.fetch(0, 100).num_rows == 1  # it is in memory


def test_a_table_is_what_arrow_makes_of_a_fetch(partition: Partition) -> None:
    append_each(partition, [b"a", b"b"])
    assert isinstance(partition.fetch(0, 1000), pa.Table)
    assert partition.fetch(0, 1000).column("value").to_pylist() == [b"a", b"b"]


def test_the_record_with_the_latest_time_is_the_first_of_those_that_have_it(partition: Partition) -> None:
    assert partition.latest_record() is None
    for times in ([5_000, 9_000], [9_000, 7_000, 8_999], [1_000]):
        rows = Rows([b"x"] * len(times), times)
        partition.append([AppendRequest(rows)])
    assert partition.latest_record() == (1, 9_000)
    assert [partition.timestamp_at(offset) for offset in range(7)] == [
        5_000,
        9_000,
        9_000,
        7_000,
        8_999,
        1_000,
        None,
    ]
    partition.truncate(2)
    assert partition.latest_record() == (2, 9_000)
    partition.truncate(3)
    assert partition.latest_record() == (4, 8_999)
    for times in ([9_500, 100], [500], [400]):
        partition.append([AppendRequest(Rows([b"x"] * len(times), times))])
    partition.truncate(7)
    assert partition.latest_record() == (8, 500), "the time of a deleted record bounds its segment still"
