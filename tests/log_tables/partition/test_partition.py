"""One partition: appends, reads, times, truncation; who leads, who is fenced, and what a repeat is."""

import itertools
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.errors import (
    CorruptSegment,
    InvalidArgument,
    InvalidOffset,
    LakelogError,
    NotLeader,
    OffsetMismatch,
    OffsetOutOfRange,
    OutcomeUnknown,
    PutRefused,
    SequenceGap,
    StaleProducerEpoch,
    StoreUnavailable,
)
from log_tables.layout import producer_end_txn, producer_sequence_txn
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig
from log_tables.record import RECORD_SCHEMA, Record, input_batch, to_records
from log_tables.root.fsck import check_partition
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Commit, Txn, read_commit
from log_tables.table.invariant import broken_state
from log_tables.table.snapshot import ProducerState
from log_tables.table.table import commit_info
from log_tables.testing import (
    ClockedStore,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)
from log_tables.topic_partition import partition_for_key
from tests.kit.partitions import (
    TABLE,
    another,
    append,
    append_each,
    entry,
    held,
    new_partition,
    records,
    thin_out,
    values,
    with_sizes,
)

COMMITS = {"put_if_absent"}
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    return new_partition(store, clock)


def sound(partition: Partition) -> bool:
    """Whether fsck has nothing to say about the table."""
    return check_partition(partition.table.store, partition.directory).problems == []


# Appending and reading.


def test_records_are_read_back_in_order_with_their_offsets(partition: Partition) -> None:
    rows = [
        Record(b"v0", b"k", (("h", b"1"), ("h", None)), 5),
        Record(None, b"k", (), 4),
        Record(b"", None, (), 9_000_000),
    ]
    made = partition.append(
        [AppendRequest(input_batch(rows[:2], 0)), AppendRequest(input_batch(rows[2:], 0))]
    )
    assert [(item.base_offset, item.count) for item in made] == [(0, 2), (2, 1)]
    expected = [Record(r.value, r.key, r.headers, r.timestamp_us, n) for n, r in enumerate(rows)]
    assert records(partition) == expected
    assert records(another(partition)) == expected
    assert (partition.log_start, partition.high_watermark, partition.log_end) == (0, 3, 3)


def test_entries_that_are_committed_together_share_one_commit(partition: Partition) -> None:
    version = partition.snapshot.version
    partition.append([entry(b"a"), entry(b"b", b"c"), entry(b"d")])
    assert partition.snapshot.version == version + 1
    assert [segment.records for segment in partition.snapshot.segments] == [4]


def test_what_is_sequenced_is_not_readable_until_it_is_committed(partition: Partition) -> None:
    first, second = partition.sequence(entry(b"a")), partition.sequence(entry(b"b"))
    assert (partition.high_watermark, partition.log_end) == (0, 2)
    partition.commit([first])
    assert (partition.high_watermark, partition.log_end) == (1, 2)
    partition.commit([second])
    assert values(partition) == [b"a", b"b"]


def test_what_is_committed_out_of_turn_is_refused_and_nothing_written(partition: Partition) -> None:
    one, two, three = (partition.sequence(entry(value)) for value in (b"1", b"2", b"3"))
    with pytest.raises(NotLeader):
        partition.commit([one, three])
    assert not partition.leading
    assert values(another(partition)) == []
    partition.claim("http://first")
    one, two = partition.sequence(entry(b"1")), partition.sequence(entry(b"2"))
    with pytest.raises(NotLeader):
        partition.commit([two])
    assert values(another(partition)) == []


def test_an_append_of_which_one_entry_is_refused_leaves_nothing_behind(partition: Partition) -> None:
    with pytest.raises(SequenceGap):
        partition.append([entry(b"good"), entry(b"bad", producer=ProducerStamp(7, 0, 5))])
    if not partition.leading:
        partition.claim("http://first")
    assert append(partition, b"next") == 0
    assert values(partition) == [b"next"]


def test_an_append_without_records_is_refused(partition: Partition) -> None:
    with pytest.raises(InvalidArgument, match="at least one record"):
        append(partition)


@pytest.mark.parametrize("compression", segments.COMPRESSIONS)
def test_segments_are_compressed_as_configured(store: Store, clock: ManualClock, compression: str) -> None:
    partition = new_partition(store, clock, PartitionConfig(compression=compression))
    append(partition, b"x" * 1000)
    assert values(another(partition)) == [b"x" * 1000]
    assert (partition.snapshot.segments[0].size > 1000 + 800) == (compression == "uncompressed")


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


# Gaps, as a compaction by key leaves them.


@pytest.fixture
def sparse(partition: Partition) -> Partition:
    """Offsets 2, 5, 7 | 10, 11 | and none of 12-14, of fifteen; the high watermark is 15."""
    for base in (0, 5, 10):
        append(partition, *(b"%d" % n for n in range(base, base + 5)))
    first, second, third = partition.snapshot.segments
    thin_out(partition, [first, second], lambda offset: offset in (2, 5, 7))
    thin_out(partition, [third], lambda offset: offset in (10, 11))
    return partition


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 1_000])
def test_a_read_inside_a_gap_goes_on_at_the_next_record(sparse: Partition, max_bytes: int) -> None:
    for reader in (sparse, another(sparse)):
        for start, following in [(0, 2), (3, 5), (6, 7), (8, 10), (11, 11)]:
            assert reader.fetch(start, max_bytes).column("offset")[0].as_py() == following
        for start in (12, 14, 15):
            plan = reader.plan_read(start, max_bytes)
            assert (plan.end, reader.fetch(start, max_bytes).num_rows) == (15, 0)
        assert list(held(reader, max_bytes)) == [2, 5, 7, 10, 11]


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
    assert list(held(another(sparse))) == [2, 5, 7, 10, 11, 15]
    assert sparse.position(2_000_000) is None
    assert sound(sparse)


def test_a_truncation_into_a_gap_starts_at_the_next_record(sparse: Partition) -> None:
    assert sparse.truncate(8) == 8
    assert list(held(another(sparse))) == [10, 11]
    assert sparse.truncate(13) == 13
    assert list(held(another(sparse))) == []
    assert append(sparse, b"15") == 15
    assert list(held(another(sparse))) == [15]


def test_gaps_in_a_large_segment_are_found_by_row_groups(store: Store, clock: ManualClock) -> None:
    partition = with_sizes(store, clock, group_rows=2, whole_bytes=0)
    append(partition, *(b"%d" % n for n in range(50)))
    thin_out(partition, partition.snapshot.segments, lambda offset: offset % 7 == 3)
    reader = another(partition)
    for start in range(46):
        assert reader.fetch(start, 1).column("offset")[0].as_py() == start + (3 - start) % 7
    assert list(held(reader, 1)) == [3, 10, 17, 24, 31, 38, 45]


# Times.


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


def test_log_append_time_is_the_time_of_the_append_and_never_decreases(
    store: Store, clock: ManualClock
) -> None:
    partition = new_partition(store, clock, PartitionConfig(log_append_time=True))
    times: list[int] = []
    for jump in (0, 1_000, -3_600_000, 10, 7_200_000):
        clock.jump(jump)
        made = partition.sequence(entry(b"a", b"b", at_us=42))
        times.append(partition.commit([made]) or 0)
        assert [record.timestamp_us for record in records(partition)][-2:] == [times[-1], times[-1]]
    assert times == sorted(times)
    assert times[0] == 1_700_000_000_000_000
    other = another(partition)
    clock.jump(-10_000_000)
    other.claim("http://second")
    append(other, b"c")
    stamps = [record.timestamp_us or 0 for record in records(other)]
    assert stamps == sorted(stamps)


def test_create_time_is_the_producers(partition: Partition) -> None:
    assert partition.commit([partition.sequence(entry(b"a", at_us=42))]) is None
    assert [record.timestamp_us for record in records(partition)] == [42]


def test_modification_time_grows_though_the_clock_jumps_back(
    partition: Partition, clock: ManualClock
) -> None:
    for jump in (0, 500, -3_600_000, -5, 0, 7_200_000):
        clock.jump(jump)
        append(partition, b"a")
    times = [segment.modification_time for segment in partition.snapshot.segments]
    assert all(early < late for early, late in itertools.pairwise(times))
    merged = rewrite.merge(partition.table.store, TABLE, partition.snapshot.segments[1:4], "zstd", clock)
    assert rewrite.commit_merge(partition.table, partition.snapshot.segments[1:4], merged)
    assert broken_state(partition.snapshot) == []
    assert sound(partition)


# Deleting records.


def test_a_truncation_inside_a_segment_hides_what_is_below(partition: Partition) -> None:
    for base in (0, 3, 6):
        append(partition, *(b"%d" % n for n in range(base, base + 3)))
    assert partition.truncate(4) == 4
    for reader in (partition, another(partition)):
        assert list(held(reader)) == [4, 5, 6, 7, 8]
        assert [segment.base_offset for segment in reader.snapshot.segments] == [3, 6]
        with pytest.raises(OffsetOutOfRange) as raised:
            reader.plan_read(3, 100)
        assert raised.value.details == {"log_start_offset": 4, "high_watermark": 9}
    assert sound(partition)


def test_a_truncation_never_moves_the_log_start_back(partition: Partition) -> None:
    append(partition, *[b"x"] * 9)
    assert partition.truncate(5) == 5
    version = partition.snapshot.version
    assert partition.truncate(2) == 5
    assert partition.truncate(5) == 5
    assert partition.snapshot.version == version


def test_everything_may_be_truncated_and_offsets_go_on(partition: Partition) -> None:
    append(partition, b"a", b"b")
    assert partition.truncate(2) == 2
    assert another(partition).fetch(2, 100).num_rows == 0
    assert append(partition, b"c") == 2
    assert held(another(partition)) == {2: b"c"}
    assert sound(partition)


@pytest.mark.parametrize(("before", "error"), [(-1, InvalidOffset), (3, OffsetOutOfRange)])
def test_a_truncation_out_of_range_is_refused(
    partition: Partition, before: int, error: type[LakelogError]
) -> None:
    append(partition, b"a", b"b")
    partition.sequence(entry(b"not committed yet"))
    with pytest.raises(error):
        partition.truncate(before)
    assert partition.log_start == 0


# Conditional appends.


def test_a_conditional_append_happens_only_at_the_expected_end(partition: Partition) -> None:
    append(partition, b"a", expected_offset=0)
    with pytest.raises(OffsetMismatch) as raised:
        append(partition, b"b", expected_offset=0)
    assert raised.value.details == {"log_end_offset": 1}
    assert partition.leading
    append(partition, b"b", expected_offset=1)
    assert values(partition) == [b"a", b"b"]


def test_a_conditional_append_counts_what_is_sequenced(partition: Partition) -> None:
    first = partition.sequence(entry(b"a"))
    with pytest.raises(OffsetMismatch):
        partition.sequence(entry(b"b", expected_offset=0))
    second = partition.sequence(entry(b"b", expected_offset=1))
    partition.commit([first, second])
    assert values(partition) == [b"a", b"b"]


# Leading.


def test_who_has_not_claimed_cannot_append(store: Store, partition: Partition) -> None:
    other = another(partition)
    assert not other.leading
    with pytest.raises(NotLeader):
        append(other, b"x")
    with pytest.raises(NotLeader):
        other.commit([partition.sequence(entry(b"x"))])


def test_a_fenced_leader_cannot_append(partition: Partition) -> None:
    append(partition, b"mine")
    other = another(partition)
    other.claim("http://second")
    with pytest.raises(NotLeader, match="leader epoch 2"):
        append(partition, b"lost")
    assert not partition.leading
    append(other, b"theirs")
    assert values(another(partition)) == [b"mine", b"theirs"]
    assert (other.snapshot.leader_epoch, other.log_end) == (2, 2)


def test_a_fenced_leader_cannot_append_after_the_new_one_has(partition: Partition) -> None:
    other = another(partition)
    other.claim("http://second")
    append_each(other, [b"a", b"b"])
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    partition.claim("http://first")
    assert append(partition, b"c") == 2
    assert values(another(partition)) == [b"a", b"b", b"c"]


def test_a_claim_says_who_leads_and_where(partition: Partition) -> None:
    another(partition).claim("http://second:8082")
    commit = read_commit(partition.table.store, TABLE, 2)
    assert commit is not None
    assert (commit.info.operation, commit.info.leaderUrl, commit.info.leaderEpoch) == (
        "CLAIM", "http://second:8082", 2,
    )  # fmt: skip
    assert [*commit.adds, *commit.removes] == []


def test_who_leads_is_known_until_the_next_claim_whatever_the_age_of_the_log(
    partition: Partition, clock: ManualClock
) -> None:
    assert partition.snapshot.leader_broker == 0
    partition.claim("http://third", 3)
    append(partition, b"a")
    clock.advance(30 * 24 * 60 * 60 * 1000)
    for checkpointed in (False, True):
        if checkpointed:
            partition.checkpoint()
            assert check_partition(partition.table.store, TABLE).problems == []
        assert another(partition).snapshot.leader_broker == 3
    another(partition).claim("http://job")
    assert partition.refresh().leader_broker == 0


def test_a_claim_again_by_the_leader_voids_what_it_had_sequenced(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    partition.claim("http://first")
    assert partition.log_end == 0
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    assert partition.leading
    assert append(partition, b"kept") == 0
    assert values(another(partition)) == [b"kept"]


def test_what_was_sequenced_in_an_earlier_term_is_void(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    other = another(partition)
    other.claim("http://second")
    partition.refresh()
    assert not partition.leading
    partition.claim("http://first")
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    assert values(another(partition)) == []


def test_a_leader_that_hears_of_another_stops_by_itself(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    another(partition).claim("http://second")
    partition.refresh()
    assert not partition.leading
    assert partition.log_end == partition.high_watermark == 0
    attempts: list[Callable[[], object]] = [
        lambda: partition.sequence(entry(b"x")),
        lambda: partition.commit([waiting]),
    ]
    for attempt in attempts:
        with pytest.raises(NotLeader):
            attempt()


def test_a_leader_that_resigns_leads_no_more(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    partition.resign()
    assert not partition.leading
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    with pytest.raises(NotLeader):
        append(partition, b"x")


def test_maintenance_between_two_appends_does_not_disturb_them(partition: Partition) -> None:
    append_each(partition, [b"0", b"1", b"2"])
    other = another(partition)
    inputs = other.snapshot.segments
    merged = rewrite.merge(other.table.store, TABLE, inputs, "lz4", other.clock)
    assert rewrite.commit_merge(other.table, inputs, merged)
    assert append(partition, b"3") == 3
    other.truncate(2)
    assert append(partition, b"4") == 4
    other.set_properties({"delta.checkpointInterval": "7"})
    waiting = partition.sequence(entry(b"5"))
    other.truncate(3)
    partition.commit([waiting])
    assert partition.leading
    assert values(another(partition)) == [b"3", b"4", b"5"]
    assert sound(partition)


def test_maintenance_is_not_disturbed_by_appends(store: Store, partition: Partition) -> None:
    append_each(partition, [b"0", b"1", b"2"])

    def meanwhile(perform: Callable[[], object]) -> object:
        append(partition, b"3")
        return perform()

    other = another(partition, FaultyStore(store, [Fault(1, meanwhile, COMMITS)]))
    inputs = other.snapshot.segments
    merged = rewrite.merge(store, TABLE, inputs, "zstd", other.clock)
    assert rewrite.commit_merge(other.table, inputs, merged)
    assert [segment.records for segment in other.snapshot.segments] == [3, 1]
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]


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


# Repeats.


def test_a_repeat_writes_nothing_and_gets_its_offsets_again(partition: Partition) -> None:
    once = entry(b"a", b"b", producer=ProducerStamp(7, 0, 0))
    append(partition, b"before")
    first = partition.append([once])[0]
    version = partition.snapshot.version
    again = partition.append([once])[0]
    assert (first.base_offset, again.base_offset, again.duplicate) == (1, 1, True)
    assert partition.snapshot.version == version


def test_a_repeat_survives_a_claim_a_checkpoint_and_another_process(partition: Partition) -> None:
    once = entry(b"a", b"b", producer=ProducerStamp(7, 3, 0))
    partition.append([once])
    following = entry(b"c", producer=ProducerStamp(7, 3, 2))
    for checkpointed in (False, True, True):
        if checkpointed:
            partition.checkpoint()
        other = another(partition)
        other.claim("http://second")
        assert other.append([once])[0].base_offset == 0
        partition = other
    assert partition.append([following, following])[1].duplicate
    assert partition.append([once])[0].base_offset is None
    assert values(another(partition)) == [b"a", b"b", b"c"]
    with pytest.raises(SequenceGap) as gap:
        append(partition, b"x", producer=ProducerStamp(7, 3, 4))
    assert gap.value.details == {"expected": 3}
    with pytest.raises(StaleProducerEpoch):
        append(partition, b"x", producer=ProducerStamp(7, 2, 3))
    assert append(partition, b"d", producer=ProducerStamp(7, 4, 0)) == 3
    assert sound(partition)


def test_a_repeat_of_what_is_not_committed_yet_waits_for_it(partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    first, again = partition.sequence(once), partition.sequence(once)
    assert (again.base_offset, again.duplicate) == (0, True)
    partition.commit([first, again])
    assert values(partition) == [b"a"]


def test_a_repeat_is_not_acknowledged_before_the_first_is_durable(partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    first, again = partition.sequence(once), partition.sequence(once)
    with pytest.raises(NotLeader):
        partition.commit([again])
    with pytest.raises(NotLeader):
        partition.commit([first])
    assert values(another(partition)) == []


def test_a_repeat_of_what_failed_is_appended(store: Store, partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    other = another(partition, FaultyStore(store, [Fault(1, refused, {"put_new"})]))
    other.claim("http://second")
    first, again = other.sequence(once), other.sequence(once)
    with pytest.raises(PutRefused):
        other.commit([first])
    with pytest.raises(NotLeader):
        other.commit([again])
    other.claim("http://second")
    placed = [other.append([once])[0] for _ in range(2)]
    assert [(item.base_offset, item.duplicate) for item in placed] == [(0, False), (0, True)]
    assert values(other) == [b"a"]


def test_a_producer_that_was_idle_for_long_is_forgotten(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock, PartitionConfig(producer_expiration_ms=DAY_MS))
    append(partition, b"old", producer=ProducerStamp(1, 5, 0))
    clock.advance(DAY_MS - 1)
    append(partition, b"young", producer=ProducerStamp(2, 0, 0))
    partition.checkpoint()
    assert another(partition).snapshot.producer(1) is not None
    clock.advance(1)
    partition.checkpoint()
    other = another(partition)
    assert other.snapshot.producer(1) is None
    assert other.snapshot.producer(2) is not None
    other.claim("http://second")
    with pytest.raises(SequenceGap) as raised:
        append(other, b"x", producer=ProducerStamp(1, 5, 1))
    assert raised.value.details == {"expected": 0}
    assert append(other, b"anew", producer=ProducerStamp(1, 0, 0)) == 2
    assert sound(other)


def test_sequences_wrap_around_in_the_log_too(partition: Partition, clock: ManualClock) -> None:
    last = SEQUENCE_MODULUS - 2
    known = ProducerState(0, last, 0)
    numbers = {producer_sequence_txn(7): known.packed, producer_end_txn(7): known.end_offset}
    txns = tuple(Txn(name, version, clock.now_ms()) for name, version in numbers.items())
    partition.table.transact(lambda _: Commit(commit_info(clock, "TWO BILLION RECORDS LATER"), txns=txns))
    partition.claim("http://first")
    wrapping = entry(b"a", b"b", b"c", producer=ProducerStamp(7, 0, last))
    assert partition.append([wrapping])[0].base_offset == 0
    other = another(partition)
    other.claim("http://second")
    assert other.append([wrapping])[0].base_offset == 0
    assert append(other, b"d", producer=ProducerStamp(7, 0, 1)) == 3
    assert values(another(partition)) == [b"a", b"b", b"c", b"d"]
    assert sound(other)


# What the store may do.


@pytest.mark.parametrize("failure", [answer_lost, repeated])
def test_an_append_whose_answer_was_lost_is_acknowledged_once(
    store: Store, partition: Partition, failure: Failure
) -> None:
    other = another(partition, FaultyStore(store, [Fault(2, failure, COMMITS)]))
    other.claim("http://second")
    assert append(other, b"a") == 0
    assert other.leading
    assert append(other, b"b") == 1
    assert values(another(partition)) == [b"a", b"b"]


@pytest.mark.parametrize("failure", [answer_lost, repeated, unavailable, nothing_landed])
def test_a_claim_survives_what_an_append_does(store: Store, partition: Partition, failure: Failure) -> None:
    other = another(partition, FaultyStore(store, [Fault(1, failure, COMMITS)]))
    other.claim("http://second")
    assert other.snapshot.leader_epoch == 2
    assert append(other, b"a") == 0


@pytest.mark.parametrize("failure", [unavailable, nothing_landed])
def test_an_append_that_did_not_land_is_repeated_as_it_was(
    store: Store, partition: Partition, failure: Failure
) -> None:
    other = another(partition, FaultyStore(store, [Fault(n, failure, COMMITS) for n in (2, 3)]))
    other.claim("http://second")
    assert append(other, b"a") == 0
    assert [segment.records for segment in another(partition).snapshot.segments] == [1]


def test_an_append_whose_outcome_stays_unknown_ends_the_leadership(
    store: Store, partition: Partition
) -> None:
    faulty = FaultyStore(store, [Fault(n, unavailable, COMMITS) for n in range(2, 40)])
    other = another(partition, faulty)
    other.claim("http://second")
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    waiting = [other.sequence(once), other.sequence(entry(b"b"))]
    with pytest.raises(OutcomeUnknown):
        other.commit(waiting[:1])
    assert not other.leading
    with pytest.raises(NotLeader):
        other.commit(waiting[1:])
    healthy = another(partition)
    healthy.claim("http://third")
    assert healthy.append([once])[0].base_offset == 0
    assert healthy.append([once])[0].duplicate
    assert values(another(partition)) == [b"a"]


def test_an_append_that_lands_after_all_is_not_doubled_by_its_repeat(
    store: Store, partition: Partition
) -> None:
    late: list[Callable[[], object]] = []

    def delayed(perform: Callable[[], object]) -> object:
        late.append(perform)
        raise StoreUnavailable("the put is still on its way; wait")

    other = another(partition, FaultyStore(store, [Fault(n, delayed, COMMITS) for n in range(2, 40)]))
    other.claim("http://second")
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    with pytest.raises(OutcomeUnknown):
        other.append([once])
    late[0]()
    healthy = another(partition)
    healthy.claim("http://third")
    assert healthy.append([once])[0] == healthy.append([once])[0]
    assert healthy.append([once])[0].duplicate
    assert values(another(partition)) == [b"a"]
    with pytest.raises(LakelogError):
        late[1]()


def test_a_full_disk_ends_the_leadership_and_nothing_is_written(store: Store, partition: Partition) -> None:
    for fault in (Fault(1, refused, {"put_new"}), Fault(2, refused, COMMITS)):
        other = another(partition, FaultyStore(store, [fault]))
        other.claim("http://second")
        with pytest.raises(PutRefused):
            append(other, b"a")
        assert not other.leading
        other.claim("http://second")
        assert other.high_watermark == 0
    assert append(other, b"a") == 0
    assert sound(other)


def test_a_segment_that_is_missing_is_named_by_its_path_under_the_root(
    partition: Partition, store: Store
) -> None:
    append(partition, b"a")
    path = f"{TABLE}/{partition.snapshot.segments[0].path}"
    store.delete(path)
    with pytest.raises(CorruptSegment, match=f"segment {path} is missing"):
        another(partition).fetch(0, 100)
    assert partition.fetch(0, 100).num_rows == 1  # it is in memory


# Races.


def race(partition: Partition, name: str, count: int) -> dict[int, bytes]:
    """Append `count` numbered values, claiming as often as it takes; what was acknowledged, by offset."""
    acknowledged: dict[int, bytes] = {}
    for number in range(count):
        value = f"{name}-{number}".encode()
        while True:
            try:
                base = append(partition, value)
                break
            except NotLeader:
                partition.claim(f"http://{name}")
        assert base is not None
        assert base not in acknowledged
        acknowledged[base] = value
    return acknowledged


def race_in_a_process(
    root: str, name: str, count: int, results: "multiprocessing.Queue[dict[int, bytes]]"
) -> None:
    results.put(race(Partition(open_store(root), TABLE, SystemClock()), name, count))


def check_race(partition: Partition, acknowledged: list[dict[int, bytes]], count: int) -> None:
    """All was acknowledged once, and is there, with no offset missing or given twice."""
    together = {offset: value for found in acknowledged for offset, value in found.items()}
    assert sum(map(len, acknowledged)) == len(together) == count * len(acknowledged)
    assert held(another(partition)) == dict(sorted(together.items()))
    assert sorted(together) == list(range(len(together)))
    assert sound(partition)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_leaders_that_race_in_threads_never_double_or_lose(store_root: Path, kind: str) -> None:
    store = open_store(store_root if kind == "local" else "memory://")
    partition = new_partition(store, SystemClock())
    racers = [another(partition) for _ in range(3)]
    start = threading.Barrier(3)

    def run(number: int) -> dict[int, bytes]:
        start.wait()
        return race(racers[number], str(number), 20)

    with ThreadPoolExecutor(3) as pool:
        check_race(partition, list(pool.map(run, range(3))), 20)


def test_leaders_that_race_in_processes_never_double_or_lose(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[dict[int, bytes]] = context.Queue()
    racers = [
        context.Process(target=race_in_a_process, args=(str(store_root), str(number), 40, results))
        for number in range(2)
    ]
    for racer in racers:
        racer.start()
    acknowledged = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    check_race(partition, acknowledged, 40)


def test_one_leader_may_be_used_by_many_threads(store_root: Path) -> None:
    """Sequencing and committing from threads of one process: each commits what it alone has sequenced."""
    partition = new_partition(open_store(store_root), SystemClock())
    turn = threading.Lock()

    def run(number: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for value in (f"{number}-{n}".encode() for n in range(10)):
            with turn:
                base = append(partition, value)
            assert base is not None
            found[base] = value
            reader = another(partition)
            assert reader.high_watermark > base
            assert reader.fetch(base, 1).column("value")[0].as_py() == value
        return found

    with ThreadPoolExecutor(4) as pool:
        check_race(partition, list(pool.map(run, range(4))), 10)


# Keys.


@pytest.mark.parametrize(
    ("key", "hashed"),
    # Of murmur3 for x86 in 32 bits with seed 0, from its reference implementation; the sign bit is masked.
    [(b"", 0), (b"a", 0x3C2569B2), (b"abc", 0xB3DD93FA), (b"Hello, world!", 0xC0363E43)],
)
def test_the_partition_of_a_key_is_its_murmur3(key: bytes, hashed: int) -> None:
    for count in (1, 2, 7, 1000, 10_000):
        assert partition_for_key(key, count) == (hashed & 0x7FFFFFFF) % count


def test_a_table_is_what_arrow_makes_of_a_fetch(partition: Partition) -> None:
    append_each(partition, [b"a", b"b"])
    assert isinstance(partition.fetch(0, 1000), pa.Table)
    assert partition.fetch(0, 1000).column("value").to_pylist() == [b"a", b"b"]


def test_a_producer_that_is_kept_is_never_forgotten(partition: Partition, clock: ManualClock) -> None:
    for stamp in (ProducerStamp(1, 0, 0, kept=True), ProducerStamp(2, 0, 0)):
        partition.append([entry(b"x", producer=stamp)])
    clock.advance(2 * DAY_MS)
    partition.checkpoint()
    assert partition.snapshot.producer(1) is not None
    assert partition.snapshot.producer(2) is None
