"""New segments from old ones hold the very same records, and take their place whole or not at all."""

from pathlib import Path

import pytest

from log_tables import rewrite
from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, CorruptSegment, InvalidArgument
from log_tables.fsck import check_partition
from log_tables.partition import Entry, Partition, Producer
from log_tables.record import Record, input_batch
from log_tables.segment import COMPRESSIONS
from log_tables.snapshot import Segment
from log_tables.store import Store, open_store
from log_tables.testing import ClockedStore, Crash, Fault, FaultyStore, crash_after, crash_before
from tests.partitions import TABLE, another, append, append_each, held, new_partition, records, thin_out

HOUR_MS = 60 * 60 * 1000


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    partition = new_partition(store, clock)
    for number in range(5):
        rows = [
            Record(b"%d" % number, b"key", (("h", b"%d" % number),), 1_000 - number),
            Record(None, None, (), 5_000_000 + number),
        ]
        partition.append([Entry(input_batch(rows, 0), Producer(7, 0, 2 * number))])
    return partition


def merged(partition: Partition, inputs: tuple[Segment, ...], compression: str = "zstd") -> Segment:
    return rewrite.merge(partition.table.store, TABLE, inputs, compression, partition.clock)


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
    assert append(partition, b"next", producer=Producer(7, 0, 10)) == 10
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
    with pytest.raises(CorruptLog, match="refused to commit to topics/t/0"):
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


def test_a_merge_that_does_not_read_back_is_not_committed(partition: Partition, store: Store) -> None:
    inputs = partition.snapshot.segments[:2]
    other = store.get(f"{TABLE}/{inputs[0].path}")

    def rotten(perform: object) -> None:
        path = faulty.calls[-1].path
        store.put(path, other)

    faulty = FaultyStore(store, [Fault(1, rotten, {"put_new"})])
    with pytest.raises(CorruptSegment):
        rewrite.merge(faulty, TABLE, inputs, "zstd", partition.clock)


def test_of_two_merges_of_the_same_segments_one_is_committed(partition: Partition) -> None:
    inputs, other = partition.snapshot.segments, another(partition)
    one, two = merged(partition, inputs), merged(other, inputs[1:3])
    assert rewrite.commit_merge(partition.table, inputs, one)
    assert not rewrite.commit_merge(other.table, inputs[1:3], two)
    assert [item.path for item in other.snapshot.segments] == [one.path]
    assert check_partition(partition.table.store, TABLE).problems == []


def test_a_merge_of_what_was_deleted_meanwhile_ends_without_harm(partition: Partition) -> None:
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
    assert partition.clean_log() > 0
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
