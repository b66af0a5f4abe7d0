"""A snapshot at a version follows from the commits alone, whichever way it was reached."""

from dataclasses import replace as changed

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, ObjectMissing, UnsupportedTable
from log_tables.layout import commit_path, producer_end_txn, producer_sequence_txn
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, TOMBSTONE_RETENTION_MS
from log_tables.record import timestamp_text, timestamp_us
from log_tables.store.store import open_store
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.commit import Add, Commit, CommitInfo, Metadata, Protocol, Txn
from log_tables.table.snapshot import (
    TAG_BYTES,
    Segment,
    Snapshot,
    check_supported,
    first_snapshot,
    from_checkpoint,
    segment_of,
)
from log_tables.table.table import Table
from log_tables.table.txns import ProducerState
from tests.kit.partitions import TABLE

INFO = CommitInfo(engineInfo="lakelog/test")
EMPTY = Snapshot(0, Protocol(1, 2), Metadata("id", "{}"))


def segment(base: int, last: int, records: int | None = None) -> Segment:
    count = last - base + 1 if records is None else records
    moment = "2026-01-01T00:00:00.000Z"
    return Segment(
        path=f"{base}-{last}.parquet",
        size=10,
        base_offset=base,
        last_offset=last,
        records=count,
        min_timestamp=moment,
        max_timestamp=moment,
        modification_time=base,
        nulls=(1, 2, 3),
        raw_bytes=99,
    )


def holding(*segments: Segment) -> Snapshot:
    return EMPTY.apply(Commit(INFO, adds=tuple(item.add(True) for item in segments)))


def test_a_segment_is_what_its_add_says() -> None:
    made = segment(5, 9, records=3)
    assert segment_of(made.add(True)) == made
    assert not made.dense
    assert segment_of(Add("x", 1, 2, True, made.add(True).stats)).raw_bytes == 0
    assert segment_of(Add("x", 1, 2, True, made.add(True).stats, {TAG_BYTES: "many"})).raw_bytes == 0


@pytest.mark.parametrize("text", ["", "x", "2013-01-01", "2013-01-01T00:00:00", "2013-02-30T00:00:00.000Z"])
def test_texts_that_are_no_times_are_no_usable_stats(text: str) -> None:
    add = structs.replace(segment(5, 9), min_timestamp=text).add(True)
    with pytest.raises(CorruptLog, match="has no usable stats"):
        segment_of(add)


@pytest.mark.parametrize(
    "stats", [None, "", "{", "{}", '{"numRecords":1}', '{"numRecords":1,"minValues":{}}']
)
def test_an_add_without_usable_stats_is_an_error(stats: str | None) -> None:
    with pytest.raises(CorruptLog, match=r"the add of x\.parquet has no usable stats"):
        segment_of(Add("x.parquet", 1, 2, True, stats))


@given(st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US), st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US))
def test_the_texts_of_timestamps_are_bounds_and_order_as_times_do(one: int, two: int) -> None:
    low, high = timestamp_text(one), timestamp_text(one, up=True)
    assert len(low) == len(high) == 24
    assert timestamp_us(low) <= one <= timestamp_us(high)
    assert timestamp_us(high) - timestamp_us(low) in (0, 1000)
    assert (timestamp_text(one) <= timestamp_text(two)) == (one // 1000 <= two // 1000)


@pytest.mark.parametrize(
    ("microseconds", "down", "up"),
    [
        (0, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
        (TIMESTAMP_MIN_US, "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
        (TIMESTAMP_MAX_US, "9999-12-31T23:59:59.000Z", "9999-12-31T23:59:59.000Z"),
    ],
)
def test_a_timestamp_is_cut_down_or_rounded_up_to_milliseconds(microseconds: int, down: str, up: str) -> None:
    assert (timestamp_text(microseconds), timestamp_text(microseconds, up=True)) == (down, up)


def test_commits_add_up() -> None:
    txns = (Txn("lakelog.log", 9), Txn("lakelog.leader", 2), Txn("lakelog.start", 1))
    filled = EMPTY.apply(Commit(INFO, txns=txns)).apply(Commit(INFO, txns=(Txn("lakelog.log", 12),)))
    assert (filled.version, filled.high_watermark, filled.log_start, filled.leader_epoch) == (2, 12, 1, 2)
    assert (EMPTY.version, EMPTY.high_watermark) == (0, 0)


def test_segments_stay_ordered_whatever_the_order_of_their_adds() -> None:
    made = holding(segment(10, 19), segment(0, 9)).apply(
        Commit(INFO, adds=(segment(25, 29).add(True), segment(20, 24).add(True)))
    )
    assert [item.base_offset for item in made.segments] == [0, 10, 20, 25]


def test_a_removed_segment_is_gone_and_remembered() -> None:
    gone = segment(0, 9)
    after = holding(gone, segment(10, 19)).apply(Commit(INFO, removes=(gone.remove(50, True),)))
    assert [item.base_offset for item in after.segments] == [10]
    assert after.holds(gone.path)
    assert after.holds("10-19.parquet")
    assert not after.holds("other.parquet")


def test_a_file_that_was_added_again_stays() -> None:
    back, other = segment(0, 9), segment(10, 19)
    after = holding(back, other).apply(Commit(INFO, removes=(back.remove(50, True),)))
    after = after.apply(Commit(INFO, adds=(back.add(True),)))
    assert after.apply(Commit(INFO, removes=(other.remove(51, True),))).segments == (back,)


@pytest.mark.parametrize(
    ("offset", "index"),
    [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 2), (39, 2), (40, 3), (99, 3)],
)
def test_the_first_segment_at_an_offset_skips_gaps(offset: int, index: int) -> None:
    # 20-29 is a gap between segments, and 39 is where the last one ends.
    assert holding(segment(0, 9), segment(10, 19), segment(30, 39)).first_segment(offset) == index


def test_a_producer_is_known_by_two_txns() -> None:
    state = ProducerState(epoch=3, next_sequence=2**31 - 1, end_offset=12)
    both = (Txn(producer_sequence_txn(7), state.packed, 1), Txn(producer_end_txn(7), 12, 1))
    known = EMPTY.apply(Commit(INFO, txns=both))
    assert known.producer(7) == state
    assert known.producer(8) is None
    assert EMPTY.apply(Commit(INFO, txns=both[:1])).producer(7) is None


def test_what_is_too_old_to_matter_is_forgotten_and_the_rest_is_not() -> None:
    gone = [segment(0, 9), segment(10, 19)]
    txns = (
        Txn("lakelog.log", 20),
        Txn("lakelog.producer.1.seq", 1, 100),
        Txn("lakelog.producer.2.seq", 1, 101),
    )
    filled = holding(*gone, segment(20, 29)).apply(
        Commit(INFO, txns=txns, removes=(gone[0].remove(100, True), gone[1].remove(101, True)))
    )
    pruned = filled.pruned(100 + 60, producer_expiration_ms=60)
    assert set(pruned.txns) == {"lakelog.log", "lakelog.producer.2.seq"}
    assert set(pruned.tombstones) == {item.path for item in gone}
    later = filled.pruned(100 + TOMBSTONE_RETENTION_MS, producer_expiration_ms=60)
    assert set(later.tombstones) == {gone[1].path}
    assert (later.version, later.segments) == (filled.version, filled.segments)


def test_a_checkpoint_is_the_snapshot() -> None:
    gone = segment(0, 9)
    filled = holding(gone, segment(10, 19)).apply(
        Commit(INFO, txns=(Txn("lakelog.log", 20),), removes=(gone.remove(50, False),))
    )
    assert from_checkpoint(filled.checkpoint()) == filled
    shuffled = changed(filled.checkpoint(), adds=list(reversed(filled.checkpoint().adds)))
    assert from_checkpoint(shuffled) == filled
    assert isinstance(filled.checkpoint(), Checkpoint)


@pytest.mark.parametrize(
    ("protocol", "feature"),
    [
        (Protocol(2, 5), "reader 2, writer 5"),
        (Protocol(1, 3), "reader 1, writer 3"),
        (Protocol(1, 7, None, ("appendOnly", "rowTracking")), "appendOnly, rowTracking"),
        (Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), "deletionVectors"),
    ],
)
def test_a_table_that_asks_for_more_is_refused_by_the_name_of_the_feature(
    protocol: Protocol, feature: str
) -> None:
    with pytest.raises(UnsupportedTable, match=feature) as raised:
        check_supported(TABLE, changed(EMPTY, protocol=protocol))
    assert raised.value.details == {"feature": feature}
    check_supported(TABLE, EMPTY)


def test_version_0_needs_protocol_and_metadata() -> None:
    for commit in (Commit(INFO), Commit(INFO, protocol=Protocol(1, 2))):
        with pytest.raises(CorruptLog, match="version 0 of topics/t/partition=0 has no protocol or metadata"):
            first_snapshot(commit, TABLE)


def test_where_there_is_no_log_there_is_no_table(clock: ManualClock) -> None:
    store = open_store("memory://")
    with pytest.raises(ObjectMissing, match="there is no table at topics/t/partition=0"):
        Table(store, TABLE, clock)
    store.put(commit_path(TABLE, 5), b"{}")
    with pytest.raises(ObjectMissing, match="there is no table at topics/t/partition=0"):
        Table(store, TABLE, clock)
