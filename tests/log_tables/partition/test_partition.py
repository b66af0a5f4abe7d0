"""One partition: appends, their times and conditions, and the deletion of records."""

import itertools

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import (
    InvalidArgument,
    InvalidOffset,
    LakelogError,
    NotLeader,
    OffsetMismatch,
    OffsetOutOfRange,
    SequenceGap,
)
from log_tables.limits import COMPRESSED_MIN_BYTES
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig
from log_tables.record import Record, input_batch
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.store.store import Store
from log_tables.table.invariant import broken_state
from tests.kit.partitions import TABLE, another, append, entry, held, new_partition, records, sound, values


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
    append(partition, b"x" * COMPRESSED_MIN_BYTES)
    assert values(another(partition)) == [b"x" * COMPRESSED_MIN_BYTES]
    compressed = partition.snapshot.segments[0].size < COMPRESSED_MIN_BYTES
    assert compressed == (compression != "uncompressed")


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
