"""Scans of real partitions, against the same records in plain Python."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.record_query import RecordFilter
from api.console.record_scan import (
    BOUNDS,
    Bounds,
    Scan,
    raw_at,
    record_at,
    scanned_after,
    scanned_before,
)
from log_tables.clock import ManualClock
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from log_tables.table.table import create_table
from tests.kit.partitions import append, thin_out

ALL = RecordFilter()
SMALL = BOUNDS._replace(rows=7, records=40, segments=9)


def made(root: Path, clock: ManualClock, number: int) -> Partition:
    """A partition of 230 records in 23 segments. In its first half every third record is missing."""
    store, directory = open_store(str(root)), f"topics/t/partition={number}"
    create_table(store, directory, clock)
    partition = Partition(store, directory, clock)
    partition.claim("http://first")
    for first in range(0, 230, 10):
        records = [
            Record(b"v%d" % offset, b"k%d" % (offset % 5), timestamp_us=(offset * 4 + number) * 1_000)
            for offset in range(first, first + 10)
        ]
        partition.append([AppendRequest(input_batch(records, 0))])
    thin_out(partition, partition.snapshot.segments[:11], lambda offset: offset % 3 != 0)
    partition.truncate(13)
    return partition


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Partition]:
    """Three partitions, by number."""
    root = tmp_path_factory.mktemp("root")
    return {number: made(root, ManualClock(), number) for number in range(3)}


def expected(readers: dict[int, Partition], wanted: RecordFilter = ALL) -> list[tuple[int, int]]:
    """(Partition, offset) of what a filter takes, oldest first."""
    found = [
        (offset * 4 + number, number, offset)
        for number in readers
        for offset in range(13, 230)
        if offset >= 110 or offset % 3 != 0
        if not wanted.keys or b"k%d" % (offset % 5) in wanted.keys
        if wanted.text in b"v%d" % offset or wanted.text in b"k%d" % (offset % 5)
    ]
    return [(number, offset) for _, number, offset in sorted(found)]


def placed(scan: Scan) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in scan.rows]


def to_newer(readers: dict[int, Partition], wanted: RecordFilter, bounds: Bounds) -> list[Scan]:
    """All scans from the beginning to the end."""
    at = dict.fromkeys(readers, 0)
    scans: list[Scan] = []
    while not scans or any(scans[-1].high[number] < 230 for number in readers):
        scans.append(scanned_after(readers, at, wanted, ManualClock(), bounds))
        assert scans[-1].high != at
        at = {**scans[-1].high}
    return scans


def to_older(readers: dict[int, Partition], wanted: RecordFilter, bounds: Bounds) -> list[Scan]:
    """All scans from the end to the beginning."""
    at = dict.fromkeys(readers, 230)
    scans: list[Scan] = []
    while not scans or any(scans[-1].low[number] > 13 for number in readers):
        scans.append(scanned_before(readers, at, wanted, ManualClock(), bounds))
        assert scans[-1].low != at
        at = {**scans[-1].low}
    return scans


FILTERS = st.builds(
    RecordFilter,
    st.sampled_from([(), (b"k3",), (b"k1", b"k4"), (b"none",)]),
    st.sampled_from([b"", b"9", b"v22", b"none", b"k2"]),
)
BOUNDED = st.builds(
    BOUNDS._replace,
    rows=st.integers(5, 60),
    records=st.integers(30, 300),
    size_bytes=st.integers(900, 9_000),
    segments=st.integers(8, 30),
)


@given(FILTERS, BOUNDED, st.sampled_from([to_newer, to_older]))
def test_the_scans_together_find_each_record_once(
    readers: dict[int, Partition],
    wanted: RecordFilter,
    bounds: Bounds,
    walk: Callable[[dict[int, Partition], RecordFilter, Bounds], Sequence[Scan]],
) -> None:
    scans = walk(readers, wanted, bounds)
    assert sorted(each for scan in scans for each in placed(scan)) == sorted(expected(readers, wanted))
    assert all(len(scan.rows) <= bounds.rows for scan in scans)


def test_the_newest_of_all_partitions_come_first(readers: dict[int, Partition]) -> None:
    scan = scanned_before(readers, dict.fromkeys(readers, 230), ALL, ManualClock())
    assert placed(scan) == expected(readers)[-50:]
    assert not scan.ended


def test_the_newest_are_those_appended_last_whatever_their_record_times(tmp_path: Path) -> None:
    """Each partition has its share, also where one has later record times than all others."""
    clock = ManualClock()
    partitions = {}
    store = open_store(str(tmp_path))
    for number in range(4):
        create_table(store, f"t/{number}", clock)
        partitions[number] = Partition(store, f"t/{number}", clock)
        partitions[number].claim("http://first")
    for number, count in ((0, 100), (1, 100), (2, 100), (3, 5), (0, 100), (1, 100), (2, 100)):
        clock.advance(1_000)
        times = [1_000_000 * (number + 1) * (997 * n % 1_000) for n in range(count)]
        records = [Record(b"v", timestamp_us=each) for each in times]
        partitions[number].append([AppendRequest(input_batch(records, 0))])
    scan = scanned_before(partitions, dict.fromkeys(partitions, 200), ALL, clock)
    counts = Counter(row.partition for row in scan.rows)
    assert counts[3] == 0  # it has only older ones
    assert min(counts[1], counts[2]) > 0
    assert [row.timestamp_us for row in scan.rows] == sorted(row.timestamp_us for row in scan.rows)
    for number in (0, 1, 2):
        offsets = sorted(row.offset for row in scan.rows if row.partition == number)
        assert offsets == [*range(scan.low[number], 200)]


def test_partitions_of_one_commit_have_a_turn_each(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(str(tmp_path))
    partitions = {}
    for number in range(4):
        create_table(store, f"t/{number}", clock)
        partitions[number] = Partition(store, f"t/{number}", clock)
        partitions[number].claim("http://first")
        records = [Record(b"v", timestamp_us=10**9 * number + n) for n in range(100)]
        partitions[number].append([AppendRequest(input_batch(records, 0))])
    for scan in (
        scanned_before(partitions, dict.fromkeys(partitions, 100), ALL, clock),
        scanned_after(partitions, dict.fromkeys(partitions, 0), ALL, clock),
    ):
        assert min(Counter(row.partition for row in scan.rows).values()) >= 12


def test_the_oldest_of_all_partitions_come_first(readers: dict[int, Partition]) -> None:
    scan = scanned_after(readers, dict.fromkeys(readers, 0), ALL, ManualClock())
    assert placed(scan) == expected(readers)[:50]


def test_a_rare_key_is_sought_within_bounds(readers: dict[int, Partition]) -> None:
    scan = scanned_before(
        readers, dict.fromkeys(readers, 230), RecordFilter((b"none",)), ManualClock(), SMALL
    )
    assert scan.ended
    assert scan.scanned <= SMALL.records + 10 * len(readers)
    whole = scanned_before(readers, dict.fromkeys(readers, 230), RecordFilter((b"none",)), ManualClock())
    assert not whole.ended
    assert whole.scanned == len(expected(readers))


def test_a_search_to_newer_ones_goes_as_far_as_its_bounds(readers: dict[int, Partition]) -> None:
    begin = dict.fromkeys(readers, 0)
    scan = scanned_after(readers, begin, RecordFilter((b"none",)), ManualClock(), SMALL._replace(segments=99))
    assert scan.ended
    assert SMALL.records <= scan.scanned <= SMALL.records + len(readers)
    whole = scanned_after(readers, begin, RecordFilter((b"none",)), ManualClock())
    assert (whole.ended, whole.scanned) == (False, len(expected(readers)))


def test_a_scan_without_time_still_gets_on(readers: dict[int, Partition]) -> None:
    slow = BOUNDS._replace(seconds=0.0)
    scan = scanned_after(readers, dict.fromkeys(readers, 0), ALL, ManualClock(), slow)
    assert all(high > 13 for high in scan.high.values())


def test_long_parts_are_cut_before_they_become_objects(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(str(tmp_path))
    create_table(store, "t", clock)
    partition = Partition(store, "t", clock)
    partition.claim("http://first")
    headers = [(f"h{number}", b"x" * 9_000) for number in range(30)]
    record = Record(b"v" * 10_000_000, b"k" * 9_000, headers)
    partition.append([AppendRequest(input_batch([record, Record(None)], 0))])
    scan = scanned_before({0: partition}, {0: 2}, ALL, clock)
    assert [row.value.size for row in scan.rows] == [10_000_000, 0]
    first = scan.rows[0]
    assert {len(first.key.data or b""), len(first.value.data or b"")} == {BOUNDS.cut_bytes}
    assert (len(first.headers), first.header_count) == (20, 30)
    assert scan.rows[1].value.data is None
    raw = raw_at(partition, 0)
    assert raw is not None
    assert raw.column("value")[0].as_py() == record.value


def test_one_record_is_found_or_there_is_none(readers: dict[int, Partition]) -> None:
    found = record_at(readers[1], 1, 100, BOUNDS)
    assert found is not None
    assert (found.offset, found.value.data) == (100, b"v100")
    assert [record_at(readers[1], 1, offset, BOUNDS) for offset in (99, 12, 230, 10**12)] == [None] * 4


def test_records_that_come_meanwhile_are_newer(tmp_path: Path, clock: ManualClock) -> None:
    partition = made(tmp_path, clock, 0)
    at = scanned_before({0: partition}, {0: 230}, ALL, clock).high
    append(partition, b"new")
    scan = scanned_after({0: partition}, at, ALL, clock)
    assert [row.value.data for row in scan.rows] == [b"new"]
