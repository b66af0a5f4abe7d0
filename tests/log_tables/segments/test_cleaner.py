"""Compaction by key: Kafka's rules, one by one, and against a plain Python model."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.layout import TXN_CLEANED, TXN_HIGH_WATERMARK
from log_tables.limits import DELETE_HORIZON_STEPS, DIRTY_RECORDS_MIN, REPLAY_SEGMENT_RECORDS
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, binary_array, input_batch, timestamp_text, with_offsets
from log_tables.root.table_check import check_partition
from log_tables.segments import rewrite
from log_tables.segments.cleaner import Cleaning, cleanable, groups, is_dirty, latest_offsets, survivors
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Metadata, Protocol, Txn
from log_tables.table.snapshot import Horizons, Segment, Snapshot
from log_tables.table.txns import Txns
from log_tables.testing import ClockedStore
from tests.kit.compaction_model import Model
from tests.kit.partitions import TABLE, another, new_partition, records

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c"]))
NOW_MS = 1_000_000


def segment(base: int, last: int, count: int | None = None, at_ms: int = 0) -> Segment:
    text = timestamp_text(at_ms * 1_000)
    path = f"{base}.parquet"
    return Segment(
        path=path,
        size=10,
        base_offset=base,
        last_offset=last,
        records=count or last - base + 1,
        min_timestamp=text,
        max_timestamp=text,
        modification_time=0,
        nulls=(0, 0, 0),
        raw_bytes=100,
    )


def snapshot(*segments: Segment, cleaned: int = 0) -> Snapshot:
    txns = {TXN_HIGH_WATERMARK: segments[-1].last_offset + 1 if segments else 0, TXN_CLEANED: cleaned}
    found = Txns(Txn(app_id, version) for app_id, version in txns.items())
    return Snapshot(1, Protocol(1, 2), Metadata("id", "{}"), segments, found)


# Which are the newest.


@given(st.lists(KEYS), st.data(), st.integers(1, 4))
def test_the_latest_of_each_key(keys: list[bytes | None], data: st.DataObject, parts: int) -> None:
    expected = sorted(
        offset
        for offset, key in enumerate(keys)
        if key is not None and offset == max(other for other, same in enumerate(keys) if same == key)
    )
    rows = data.draw(st.permutations(list(enumerate(keys))))
    column = pa.chunked_array(
        [binary_array([key for _, key in rows[part::parts]]) for part in range(parts)], pa.binary()
    )
    offsets = [offset for part in range(parts) for offset, _ in rows[part::parts]]
    assert latest_offsets(column, np.array(offsets, np.int64)).tolist() == expected


def test_keys_may_come_as_one_array() -> None:
    assert latest_offsets(binary_array([b"a", b"a", None]), np.array([7, 3, 5])).tolist() == [7]


def test_a_record_without_a_key_stays_from_the_log_start_on() -> None:
    assert left([None, None, b"a"], [b"1", b"2", b"3"]) == ([10, 11, 12], ())
    assert left([None, None, b"a"], [b"1", b"2", b"3"], log_start=11) == ([11, 12], ())


# What becomes of tombstones.


def left(
    keys: list[bytes | None],
    values: list[bytes | None],
    horizons: Horizons = (),
    last_offset: int = 99,
    log_start: int = 0,
) -> tuple[list[int], Horizons]:
    """The offsets and horizons that stay of records at offsets 10, 11 …, all the newest of their keys."""
    rows = [Record(value, key) for key, value in zip(keys, values, strict=True)]
    offsets = np.arange(10, 10 + len(rows), dtype=np.int64)
    batch = with_offsets([input_batch(rows, 0)], offsets)
    cleaning = Cleaning(log_start, last_offset, NOW_MS, NOW_MS + 500)
    kept, steps = survivors(batch, np.arange(5, 50, dtype=np.int64), horizons, cleaning)
    return [10 + row for row in kept.tolist()], steps


def test_a_tombstone_that_is_met_first_gets_a_horizon() -> None:
    assert left([b"a", b"b", b"c"], [None, b"x", None]) == ([10, 11, 12], ((12, NOW_MS + 500),))


def test_a_tombstone_goes_at_its_horizon_and_not_before() -> None:
    horizons = ((10, NOW_MS), (11, NOW_MS + 1))
    assert left([b"a", b"b", b"c"], [None] * 3, horizons) == (
        [11, 12],
        ((11, NOW_MS + 1), (12, NOW_MS + 500)),
    )


def test_a_tombstone_that_is_superseded_goes_and_leaves_no_horizon() -> None:
    batch = with_offsets([input_batch([Record(None, b"a"), Record(b"x", b"a")], 0)], np.array([10, 11]))
    kept, steps = survivors(batch, np.array([11]), ((10, NOW_MS),), Cleaning(0, 99, NOW_MS, NOW_MS + 500))
    assert (kept.tolist(), steps) == ([1], ())


def test_a_record_without_key_and_value_is_no_tombstone() -> None:
    assert left([None, b"a"], [None, None], ((11, NOW_MS),)) == ([10], ())


def test_the_last_record_of_the_log_stays_though_its_horizon_is_past() -> None:
    assert left([b"a", b"b"], [None, None], ((11, NOW_MS),), last_offset=11) == ([11], ((11, NOW_MS),))


@given(st.integers(0, 2**41), st.integers(0, 2**50))
def test_a_horizon_is_hardly_later_than_asked(now_ms: int, retention_ms: int) -> None:
    horizon_ms = Cleaning.of(snapshot(segment(0, 3)), now_ms, retention_ms).horizon_ms
    assert 0 <= horizon_ms - now_ms - retention_ms <= retention_ms / DELETE_HORIZON_STEPS


def test_tombstones_may_be_kept_for_ever() -> None:
    cleaning = Cleaning.of(snapshot(segment(0, 3)), NOW_MS, 2**63 - 1)
    batch = with_offsets([input_batch([Record(None, b"a")], 0)], np.array([0]))
    assert survivors(batch, np.array([0]), (), cleaning)[1] == ((0, 2**63 - 1),)


# What is worth cleaning, and what may be.


@pytest.mark.parametrize(
    ("segments", "cleaned", "dirty"),
    [
        ((), 0, False),
        ((segment(0, DIRTY_RECORDS_MIN),), 0, True),
        ((segment(0, DIRTY_RECORDS_MIN),), DIRTY_RECORDS_MIN + 1, False),
        ((segment(0, 99),), 0, False),
        ((segment(0, 9_999), segment(10_000, 14_999)), 10_000, False),
        ((segment(0, 9_999), segment(10_000, 19_999)), 10_000, True),
        ((segment(0, 9_999, 4_000), segment(10_000, 14_999)), 10_000, True),
        ((segment(0, 19_999),), 10_000, True),  # merged across what was cleaned
        (
            tuple(segment(n, n) for n in range(DIRTY_RECORDS_MIN // (1 + REPLAY_SEGMENT_RECORDS) - 1)),
            0,
            False,
        ),
        (tuple(segment(n, n) for n in range(DIRTY_RECORDS_MIN // (1 + REPLAY_SEGMENT_RECORDS) + 1)), 0, True),
    ],
)
def test_dirty_is_what_costs_more_to_replay_than_the_rest(
    segments: tuple[Segment, ...], cleaned: int, dirty: bool
) -> None:
    assert is_dirty(segments, cleaned) == dirty


@pytest.mark.parametrize(
    ("lag_ms", "cleaned", "count"),
    [(0, 0, 3), (10, 0, 3), (11, 0, 1), (100, 0, 1), (101, 0, 0), (101, 5, 1), (11, 8, 3), (2**62, 0, 0)],
)
def test_what_is_younger_than_the_lag_is_not_touched_nor_what_follows(
    lag_ms: int, cleaned: int, count: int
) -> None:
    old, young, older = (
        segment(0, 4, at_ms=NOW_MS - 100),
        segment(5, 7, at_ms=NOW_MS - 10),
        segment(8, 9, at_ms=0),
    )
    assert len(cleanable(snapshot(old, young, older, cleaned=cleaned), NOW_MS, lag_ms)) == count


def test_neighbours_are_grouped_up_to_a_size() -> None:
    inputs = [segment(0, 1), segment(2, 3), replace(segment(4, 5), raw_bytes=500), segment(6, 7)]
    assert [[s.base_offset for s in run] for run in groups(inputs, 250)] == [[0, 2], [4], [6]]
    assert list(groups([], 250)) == []


# Against a model.


class Compaction(RuleBasedStateMachine):
    """Updates, tombstones, records without a key, clocks that jump, merges, and cleanings in a row."""

    @initialize()
    def begin(self) -> None:
        self.clock, self.model = ManualClock(), Model()
        self.partition = self.opened(ClockedStore(open_store("memory://"), self.clock))

    def opened(self, store: Store) -> Partition:
        """An empty partition."""
        return new_partition(store, self.clock)

    @rule(
        rows=st.lists(st.tuples(KEYS, st.sampled_from([b"x", b"y", None])), min_size=1, max_size=6),
        age_ms=st.integers(-20, 200),
    )
    def append(self, rows: list[tuple[bytes | None, bytes | None]], age_ms: int) -> None:
        stamp = (self.clock.now_ms() - age_ms) * 1_000
        made = [Record(value, key, (), stamp) for key, value in rows]
        self.partition.append([AppendRequest(input_batch(made, 0))])
        self.model.append(made)

    @rule(ms=st.one_of(st.integers(0, 50), st.just(1_000)))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(ms=st.integers(-50, 50))
    def turn_the_clock(self, ms: int) -> None:
        self.clock.jump(ms)

    @rule(
        lag_ms=st.one_of(st.just(0), st.integers(1, 100)),
        retention_ms=st.sampled_from([0, 1, 40, 640]),
        segment_bytes=st.sampled_from([1, 200, 1 << 20]),
    )
    def clean(self, lag_ms: int, retention_ms: int, segment_bytes: int) -> None:
        end = self.model.cleanable_end(self.partition.snapshot.segments, self.clock.now_ms(), lag_ms)
        if self.perform(lag_ms, retention_ms, segment_bytes, end):
            assert end is not None
            self.model.clean(end, self.clock.now_ms(), retention_ms)

    def perform(self, lag_ms: int, retention_ms: int, segment_bytes: int, end: int | None) -> bool:
        """Compact up to `end`, if there is anything to do; whether that was done."""
        committed = rewrite.compact_by_key(self.partition.table, "zstd", lag_ms, retention_ms, segment_bytes)
        assert committed == (end is not None)
        return committed

    @precondition(lambda self: len(self.partition.snapshot.segments) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        found = self.partition.snapshot.segments
        first = data.draw(st.integers(0, len(found) - 2))
        inputs = found[first : data.draw(st.integers(first + 2, len(found)))]
        table = self.partition.table
        made = rewrite.merge(table.store, TABLE, inputs, "lz4", self.clock)
        assert rewrite.commit_merge(table, inputs, made)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(self.model.start, self.model.end))
        assert self.partition.truncate(before) == before
        self.model.truncate(before)

    @rule(checkpoint=st.booleans())
    def reopen(self, checkpoint: bool) -> None:
        if checkpoint:
            self.partition.checkpoint()
        self.partition = another(self.partition)
        self.partition.claim("http://next")

    @invariant()
    def a_reader_sees_what_is_left(self) -> None:
        expected = self.model.readable()
        assert records(self.partition) == expected
        assert records(self.partition, max_bytes=1) == expected
        places = (self.partition.log_start, self.partition.high_watermark, self.partition.snapshot.cleaned)
        assert places == (self.model.start, self.model.end, self.model.cleaned)

    def teardown(self) -> None:
        assert check_partition(self.partition.table.store, TABLE).problems == []


TestCompaction = Compaction.TestCase
