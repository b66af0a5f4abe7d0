"""A compaction leaves the latest record of each key, whole or not at all, and tombstones for their time."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from log_tables.clock import ManualClock
from log_tables.errors import LakelogError
from log_tables.layout import commit_path
from log_tables.limits import DELETE_HORIZON_STEPS, DIRTY_RECORDS_MIN
from log_tables.partition.partition import Partition
from log_tables.root.table_check import check_partition
from log_tables.segments import rewrite
from log_tables.segments.cleaner import Cleaning
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import TAG_BYTES, TAG_DIGEST, TAG_HORIZONS, Segment
from log_tables.testing import (
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
from tests.kit.partitions import TABLE, another, append, entry, held, new_partition, records
from tests.kit.rewrites import DAY_MS, LEFT, A, B, C, clean, merged, put


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
    said = {TAG_BYTES: str(bytes_), TAG_HORIZONS: f"[[1,{clock.now_ms() + 64}]]"}
    assert add["tags"] == {**said, TAG_DIGEST: add["tags"][TAG_DIGEST]}
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
