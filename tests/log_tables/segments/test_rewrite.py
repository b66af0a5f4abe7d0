"""New segments from old ones hold what they should, and take their place whole or not at all."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, CorruptSegment, InvalidArgument, LakelogError
from log_tables.layout import commit_path
from log_tables.limits import DELETE_HORIZON_STEPS, DIRTY_RECORDS_MIN, KIB, MIB
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import RECORD_SCHEMA, Record, input_batch
from log_tables.root.fsck import check_partition
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.segments.cleaner import Cleaning
from log_tables.segments.segment import COMPRESSIONS
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import TAG_BYTES, TAG_HORIZONS, Segment
from log_tables.testing import (
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)
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
)

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
        partition.append([AppendRequest(input_batch(rows, 0), ProducerStamp(7, 0, 2 * number))])
    return partition


def merged(partition: Partition, inputs: Sequence[Segment], compression: str = "zstd") -> Segment:
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


def test_a_merge_holds_a_row_group_and_not_all_records(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP_TARGET_BYTES", 256 * KIB)
    partition = new_partition(store, clock)
    for _ in range(64):
        append(partition, *[b"x" * KIB] * 64)
    held_bytes: list[int] = []

    def look(perform: Callable[[], object]) -> object:
        held_bytes.append(pa.total_allocated_bytes())
        return perform()

    watched = FaultyStore(store, [Fault(n, look, {"get", "put_new"}) for n in range(1, 66)])
    inputs = partition.snapshot.segments
    made = rewrite.merge(watched, TABLE, inputs, "zstd", clock)
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


# Compaction by key.

DAY_MS = 24 * HOUR_MS
A, B, C = b"a", b"b", b"c"


def put(partition: Partition, *rows: tuple[bytes | None, bytes | None]) -> None:
    """One commit of these keys and values."""
    partition.append([entry(*(value for _, value in rows), keys=[key for key, _ in rows])])


@pytest.fixture
def keyed(store: Store, clock: ManualClock) -> Partition:
    """Offsets 0 to 8 in four segments: a and b twice, c once and deleted, two without a key."""
    partition = new_partition(store, clock)
    put(partition, (A, b"1"), (B, b"1"))
    put(partition, (None, b"x"), (C, b"1"), (A, b"2"))
    put(partition, (C, None), (None, None))
    put(partition, (B, b"2"), (A, b"3"))
    return partition


LEFT = {2: b"x", 5: None, 6: None, 7: b"2", 8: b"3"}
"""What a first compaction leaves of `keyed`."""


def clean(partition: Partition, lag_ms: int = 0, retention_ms: int = DAY_MS) -> bool:
    return rewrite.compact_by_key(partition.table, "zstd", lag_ms, retention_ms)


def test_the_latest_of_each_key_is_left_at_its_offset(keyed: Partition) -> None:
    last = keyed.snapshot.segments[-1]
    assert clean(keyed)
    for reader in (keyed, another(keyed)):
        assert held(reader) == held(reader, max_bytes=1) == LEFT
        assert (reader.log_start, reader.high_watermark, reader.snapshot.cleaned) == (0, 9, 9)
    (made,) = keyed.snapshot.segments
    assert (made.base_offset, made.last_offset, made.records, made.nulls[1]) == (2, 8, 5, 2)
    assert made.modification_time == last.modification_time
    assert append(keyed, b"next") == 9
    assert check_partition(keyed.table.store, TABLE).problems == []


def test_a_read_from_an_offset_that_is_gone_goes_on_at_the_next(keyed: Partition) -> None:
    clean(keyed)
    for reader in (keyed, another(keyed)):
        found = [reader.fetch(offset, 1 << 20)["offset"].to_pylist() for offset in range(10)]
        assert found == [[o for o in LEFT if o >= offset] for offset in range(10)]


def test_a_tombstone_lives_from_its_first_compaction_through_all_that_follow(
    keyed: Partition, clock: ManualClock
) -> None:
    clean(keyed)
    clock.advance(DAY_MS // 2)
    put(keyed, (A, b"4"), (B, None))
    keyed.checkpoint()
    keyed = another(keyed)
    keyed.claim("http://second")
    assert clean(keyed)
    assert list(held(keyed)) == [2, 5, 6, 9, 10]
    clock.advance(DAY_MS // 2)
    put(keyed, (A, b"5"))
    inputs = keyed.snapshot.segments
    assert rewrite.commit_merge(keyed.table, inputs, merged(keyed, inputs))
    clock.advance(DAY_MS // DELETE_HORIZON_STEPS)
    assert clean(keyed)
    assert list(held(keyed)) == [2, 6, 10, 11]
    clock.advance(DAY_MS // 2)
    assert clean(keyed)
    assert list(held(another(keyed))) == [2, 6, 11]
    assert check_partition(keyed.table.store, TABLE).problems == []


def test_a_log_of_nothing_but_old_tombstones_keeps_its_last_record(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    put(partition, (A, None), (B, None))
    put(partition, (C, None))
    for _ in range(3):
        assert clean(partition, retention_ms=0)
        clock.advance(1)
    assert held(another(partition)) == {2: None}
    put(partition, (A, b"1"))
    assert clean(partition, retention_ms=0)
    assert held(another(partition)) == {3: b"1"}
    assert check_partition(store, TABLE).problems == []


def test_what_is_younger_than_the_lag_stays_and_deletes_nothing_yet(
    keyed: Partition, clock: ManualClock
) -> None:
    now_us = clock.now_us()
    keyed.append([entry(b"4", None, keys=[A, B], at_us=now_us)])
    put(keyed, (C, b"2"))
    clock.advance(99)
    assert clean(keyed, lag_ms=100)
    assert held(keyed) == LEFT | {9: b"4", 10: None, 11: b"2"}
    assert keyed.snapshot.cleaned == 9
    clock.advance(1)
    assert clean(keyed, lag_ms=100)
    assert list(held(keyed)) == [2, 6, 9, 10, 11]


def test_what_is_below_the_log_start_is_left_out(keyed: Partition) -> None:
    keyed.truncate(3)
    assert clean(keyed)
    assert [item.base_offset for item in keyed.snapshot.segments] == [5]
    assert list(held(another(keyed))) == [5, 6, 7, 8]
    assert keyed.log_start == 3


def test_what_nothing_happens_to_is_not_written_again(keyed: Partition) -> None:
    clean(keyed)
    before = keyed.snapshot
    assert clean(keyed)
    assert (keyed.snapshot.segments, keyed.snapshot.version) == (before.segments, before.version + 1)
    table = keyed.table
    for first in range(0, 4, 2):
        put(keyed, (b"%d" % first, b"x"), (b"%d" % (first + 1), b"x"))
    assert rewrite.compact_by_key(table, "zstd", segment_bytes=1)
    assert [(s.base_offset, s.records) for s in keyed.snapshot.segments] == [(2, 5), (9, 2), (11, 2)]
    assert keyed.snapshot.segments[0] == before.segments[0]
    assert keyed.snapshot.cleaned == 13


def test_an_empty_log_is_not_compacted(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    assert not clean(partition)
    assert not rewrite.compact_if_dirty(partition.table, "zstd")


def test_a_log_is_compacted_when_it_is_dirty(keyed: Partition) -> None:
    assert not rewrite.compact_if_dirty(keyed.table, "zstd")
    put(keyed, *[(b"%d" % (n % 7), b"x") for n in range(DIRTY_RECORDS_MIN)])
    assert rewrite.compact_if_dirty(keyed.table, "zstd")
    assert len(held(keyed)) == len(LEFT) + 7
    assert not rewrite.compact_if_dirty(keyed.table, "zstd")


def test_delta_rs_reads_what_is_left_and_the_tags_are_texts(store_root: Path, clock: ManualClock) -> None:
    partition = new_partition(open_store(store_root), clock)
    put(partition, (A, b"1"), (B, None))
    put(partition, (A, b"2"))
    clean(partition, retention_ms=64)
    version = partition.snapshot.version
    lines = (store_root / commit_path(TABLE, version)).read_text().splitlines()
    (add,) = [action["add"] for action in map(json.loads, lines) if "add" in action]
    (bytes_,) = [s.raw_bytes for s in partition.snapshot.segments]
    assert add["tags"] == {TAG_BYTES: str(bytes_), TAG_HORIZONS: f"[[1,{clock.now_ms() + 64}]]"}
    assert add["dataChange"] is True
    for checkpointed in (False, True):
        if checkpointed:
            partition.checkpoint()
        table = DeltaTable(str(store_root / TABLE))
        assert sorted(table.to_pyarrow_table()["offset"].to_pylist()) == [1, 2]
        assert table.transaction_version("lakelog.cleaned") == 3
        assert another(partition).snapshot.segments == partition.snapshot.segments


def staged(partition: Partition) -> tuple[Sequence[Segment], Segment, int]:
    """A compaction that is written and not committed: its inputs, the new segment, and where it ends."""
    store, snapshot = partition.table.store, partition.snapshot
    newest = rewrite.latest(store, TABLE, snapshot.segments, snapshot.log_start)
    cleaning = Cleaning.of(snapshot, partition.clock.now_ms(), DAY_MS)
    inputs = snapshot.segments
    made = rewrite.compact(store, TABLE, inputs, newest, cleaning, "zstd", partition.clock)
    assert made is not None
    return inputs, made, snapshot.high_watermark


def test_appends_during_a_compaction_are_kept(keyed: Partition) -> None:
    inputs, made, end = staged(keyed)
    put(keyed, (A, b"4"), (C, b"2"))
    assert rewrite.commit_compaction(keyed.table, inputs, [made], end)
    assert held(another(keyed)) == LEFT | {9: b"4", 10: b"2"}
    assert keyed.snapshot.cleaned == 9
    assert clean(keyed)
    assert list(held(keyed)) == [2, 6, 7, 9, 10]


@pytest.mark.parametrize(
    "meanwhile",
    [
        clean,
        lambda partition: partition.truncate(3),
        lambda partition: rewrite.commit_merge(
            partition.table,
            partition.snapshot.segments[:2],
            merged(partition, partition.snapshot.segments[:2]),
        ),
    ],
    ids=["another compaction", "a deletion", "a merge"],
)
def test_a_compaction_whose_inputs_are_gone_ends_without_harm(
    keyed: Partition, meanwhile: Callable[[Partition], object]
) -> None:
    other = another(keyed)
    inputs, made, end = staged(other)
    meanwhile(keyed)
    before, version = held(keyed), keyed.snapshot.version
    assert not rewrite.commit_compaction(other.table, inputs, [made], end)
    assert held(another(keyed)) == held(other) == before
    assert other.snapshot.version == version
    assert clean(other)
    assert check_partition(keyed.table.store, TABLE).problems == []


def test_compactions_beside_appends_lose_nothing(keyed: Partition) -> None:
    other, ended = another(keyed), threading.Event()

    def compact() -> int:
        committed = 0
        while not ended.is_set():
            other.refresh(wait=True)
            committed += clean(other)
        return committed

    with ThreadPoolExecutor() as pool:
        compactions = [pool.submit(compact) for _ in range(2)]
        try:
            for number in range(150):
                put(keyed, (b"%d" % (number % 11), b"%d" % number), (None, b"%d" % number))
        finally:
            ended.set()
        assert sum(compaction.result() for compaction in compactions) > 0
    assert clean(another(keyed))
    found = records(another(keyed))
    assert [r.value for r in found if r.key is None] == [b"x", None, *(b"%d" % n for n in range(150))]
    assert {r.key: r.value for r in found if r.key not in (None, A, B, C)} == {
        b"%d" % (n % 11): b"%d" % n for n in range(150)
    }
    assert len({r.key for r in found}) == 15
    assert check_partition(keyed.table.store, TABLE).problems == []


FAILURES = [crash_before, crash_after, unavailable, refused, answer_lost, repeated, nothing_landed]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_compaction_that_fails_at_any_write_is_made_whole_by_the_next(
    keyed: Partition, store: Store, nth: int, failure: Failure
) -> None:
    """Two segments are written, then one commit: what is before or after it is there, nothing in between."""
    before = held(keyed)
    faulty = FaultyStore(store, [Fault(nth, failure)])
    dying = another(keyed, faulty)
    try:
        rewrite.compact_by_key(dying.table, "zstd", segment_bytes=200)
    except (Crash, LakelogError):
        pass
    assert faulty.writes() >= nth
    survivor = another(keyed)
    assert held(survivor) in (before, LEFT)
    assert check_partition(store, TABLE).problems == []
    survivor.claim("http://second")
    assert append(survivor, b"next") == 9
    assert clean(survivor)
    assert held(another(survivor)) == LEFT | {9: b"next"}
    assert check_partition(store, TABLE).problems == []
