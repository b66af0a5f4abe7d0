"""A segment gives back what was put into it, reads no more than it needs, and a broken one is told."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.errors import CorruptSegment, StoreUnavailable
from log_tables.limits import COLUMN_BYTES, WHOLE_SEGMENT_BYTES
from log_tables.record import (
    RECORD_SCHEMA,
    Record,
    batch_bytes,
    input_batch,
    record_schema,
    to_records,
    with_offsets,
)
from log_tables.segments import segment as segments
from log_tables.segments.segment import (
    COMPRESSIONS,
    SEGMENT_LIMITS,
    SegmentLimits,
    SegmentWriter,
    between,
    describe,
    encode,
    first_at,
)
from log_tables.segments.segment_cache import SegmentCache
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Segment
from log_tables.testing import Fault, FaultyStore, unavailable

TABLE = "topics/t/partition=0"
NAME = "00000000000000000100-0123abcd.parquet"
ROWS = [
    Record(b"value", b"key", (("h", b"1"), ("h", None), ("", b"")), 1_000_001),
    Record(None, b"tombstone", (), 999_999),
    Record(b"", b"", (), -5),
    Record(bytes(range(256)), None, (("unicode ü", b"\x00\xff"),), 253_402_300_798_000_000),
]


def test_doubles_have_no_dictionary_in_which_a_negative_zero_would_be_missed() -> None:
    kinds = [pa.int64(), pa.float64(), pa.list_(pa.struct([("x", pa.float64()), ("y", pa.string())]))]
    columns = [pa.field(name, kind) for name, kind in zip("ndl", kinds, strict=True)]
    values = [pa.array([1] * 4), pa.array([-0.0, 0.0] * 2), pa.array([[{"x": 0.0, "y": "a"}]] * 4, kinds[2])]
    own = batch([Record(b"v")] * 4)
    rows = pa.RecordBatch.from_arrays([*own.columns, *values], schema=pa.schema([*own.schema, *columns]))
    writer = SegmentWriter("zstd")
    writer.add(rows)
    group = pq.ParquetFile(pa.BufferReader(writer.finish())).metadata.row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert {each.path_in_schema for each in chunks if each.has_dictionary_page} == {"n", "l.list.element.y"}


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def batch(rows: list[Record], base: int = 100, step: int = 1) -> pa.RecordBatch:
    """`rows` as RECORD_SCHEMA with the offsets base, base + step …"""
    return with_offsets([input_batch(rows, 0)], np.arange(base, base + step * len(rows), step))


def put(
    store: Store, rows: pa.RecordBatch, compression: str = "zstd", limits: SegmentLimits = SEGMENT_LIMITS
) -> Segment:
    data = encode(rows, compression, limits)
    store.put(f"{TABLE}/{NAME}", data)
    return describe(NAME, rows, data, 5)


def numbered(count: int) -> pa.RecordBatch:
    return batch([Record(b"%06d" % n, b"k" * (n % 3), timestamp_us=n * 1000) for n in range(count)], base=0)


def read(
    store: Store, segment: Segment, start: int = 0, end: int = 2**62, whole_bytes: int = WHOLE_SEGMENT_BYTES
) -> list[Record]:
    parts = segments.read(store, TABLE, segment, start, end, whole_bytes=whole_bytes)
    return [record for part in parts for record in to_records(part)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_was_written_is_read_back(store: Store, compression: str) -> None:
    rows = batch(ROWS)
    segment = put(store, rows, compression)
    parts = list(segments.read(store, TABLE, segment, 0, 1000))
    assert all(part.schema.equals(RECORD_SCHEMA, check_metadata=True) for part in parts)
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([rows]))
    assert read(store, segment) == [
        Record(r.value, r.key, r.headers, r.timestamp_us, 100 + n) for n, r in enumerate(ROWS)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_compressed_where_they_are_worth_it(compression: str) -> None:
    rows = batch(ROWS)
    for least, expected in ((batch_bytes(rows), compression), (batch_bytes(rows) + 1, "uncompressed")):
        data = encode(rows, compression, SegmentLimits(compressed_bytes=least))
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        assert metadata.row_group(0).column(3).compression.lower() == expected


def test_columns_in_which_there_is_nothing_to_compress_stay_plain() -> None:
    rows = batch([Record(b"x" * 50), Record(b"y" * 50)])
    data = encode(rows, "lz4", SegmentLimits(compressed_bytes=1))
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = (group.column(index) for index in range(group.num_columns))
    assert [column.path_in_schema for column in columns if column.compression != "UNCOMPRESSED"] == ["value"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_merged_file_is_compressed_in_all_columns(compression: str) -> None:
    writer = SegmentWriter(compression)
    writer.add(batch(ROWS))
    group = pq.ParquetFile(pa.BufferReader(writer.finish())).metadata.row_group(0)
    assert group.num_columns == 6
    columns = (group.column(index) for index in range(group.num_columns))
    assert {column.compression.lower() for column in columns} == {compression}


rows_of = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
        st.integers(-(10**15), 10**16),
    ),
    min_size=1,
    max_size=8,
)


@given(rows_of, st.integers(0, 9), st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted))
def test_any_range_of_any_rows_is_read_back(rows: list[Record], gap: int, ends: list[int]) -> None:
    start, end = ends
    store = open_store("memory://")
    made = batch(rows, base=3, step=gap + 1)
    segment = put(store, made)
    wanted = [record for record in to_records(made) if start <= (record.offset or 0) < end]
    assert read(store, segment, start, end) == wanted


def test_the_stats_bound_what_is_inside(store: Store) -> None:
    segment = put(store, batch(ROWS))
    assert (segment.base_offset, segment.last_offset, segment.records) == (100, 103, 4)
    assert segment.dense
    assert segment.nulls == (1, 1, 2)
    assert segment.min_timestamp == "1969-12-31T23:59:59.999Z"
    assert segment.max_timestamp == "9999-12-31T23:59:58.000Z"
    assert segment.size == store.head(f"{TABLE}/{NAME}").size
    assert not put(store, batch(ROWS, step=2)).dense


@pytest.mark.parametrize("columns", [["offset"], ["value"], ["value", "key"], ["headers", "offset"], []])
def test_only_the_columns_asked_for_are_given_in_the_order_of_the_schema(
    store: Store, columns: list[str]
) -> None:
    segment = put(store, batch(ROWS))
    parts = list(segments.read(store, TABLE, segment, 101, 103, record_schema(columns)))
    assert [part.schema.names for part in parts] == [[n for n in RECORD_SCHEMA.names if n in columns]]
    assert sum(part.num_rows for part in parts) == (2 if columns else parts[0].num_rows)


def test_rows_are_grouped_so_that_a_seek_reads_few() -> None:
    few_rows, few_bytes = SegmentLimits(group_rows=10), SegmentLimits(group_bytes=1)
    by_count = pq.ParquetFile(pa.BufferReader(encode(numbered(95), "lz4", few_rows)))
    assert [by_count.metadata.row_group(n).num_rows for n in range(by_count.num_row_groups)] == [10] * 9 + [5]
    by_bytes = pq.ParquetFile(pa.BufferReader(encode(numbered(3), "lz4", few_bytes)))
    assert by_bytes.num_row_groups == 3


@pytest.mark.parametrize("cut", [1, 3, 7, 10, 11, 25, 95])
def test_small_batches_are_gathered_into_full_row_groups(cut: int) -> None:
    rows = numbered(95)
    for limits, size in ((SegmentLimits(group_bytes=2_000), 58), (SegmentLimits(group_rows=10), 10)):
        writer = SegmentWriter("zstd", limits)
        for start in range(0, 95, cut):
            writer.add(rows.slice(start, cut))
        data = writer.finish()
        assert pa.Table.from_batches(segments.decode(data)).equals(pa.Table.from_batches([rows]))
        counts = [part.num_rows for part in segments.decode(data)]
        assert sum(counts) == 95
        assert all(abs(count - size) <= size // 10 for count in counts[:-1])


LARGE = 100
"""Files of more bytes than this are read in parts."""


@pytest.fixture
def large(store: Store) -> Segment:
    """A segment of 1,000 row groups, each with more than LARGE bytes."""
    return put(store, numbered(10_000), "uncompressed", SegmentLimits(group_rows=10))


@pytest.mark.parametrize("start", [0, 1, 9, 10, 5_555, 9_990, 9_999])
def test_a_seek_in_a_large_segment_reads_a_part_of_it(store: Store, large: Segment, start: int) -> None:
    watched = FaultyStore(store)
    found = read(watched, large, start, start + 5, LARGE)
    assert [record.value for record in found] == [b"%06d" % n for n in range(start, min(start + 5, 10_000))]
    assert {call.operation for call in watched.calls} == {"get_range"}
    assert len(watched.calls) < 20


def test_a_large_segment_that_is_wanted_whole_is_read_in_one_request(store: Store, large: Segment) -> None:
    watched = FaultyStore(store)
    assert len(read(watched, large, whole_bytes=LARGE)) == 10_000
    assert [call.operation for call in watched.calls] == ["get"]


def test_of_a_large_segment_only_the_columns_asked_for_are_read(store: Store, large: Segment) -> None:
    watched = FaultyStore(store)
    parts = segments.read(watched, TABLE, large, 0, 2**62, record_schema(("offset", "timestamp")), LARGE)
    assert sum(part.num_rows for part in parts) == large.records
    assert {call.operation for call in watched.calls} == {"get_range"}


def test_a_read_is_lazy(store: Store, large: Segment) -> None:
    watched = FaultyStore(store)
    parts = segments.read(watched, TABLE, large, 5, 9_000, whole_bytes=LARGE)
    assert watched.calls == []
    assert next(parts).num_rows == 5
    soon = len(watched.calls)
    assert next(parts).num_rows == 10
    assert 0 < soon < len(watched.calls)
    assert sum(part.num_rows for part in parts) == 9_000 - 5 - 5 - 10


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_large_segment_that_vanishes_while_it_is_read_is_reported(
    store: Store, large: Segment, count: int
) -> None:
    parts = segments.read(store, TABLE, large, 5, 9_000, whole_bytes=LARGE)
    for _ in range(count):
        next(parts)
    store.delete(f"{TABLE}/{NAME}")
    with pytest.raises(CorruptSegment, match=f"{TABLE}/{NAME} is missing"):
        list(parts)


def test_a_store_that_does_not_answer_is_not_a_broken_segment(store: Store, large: Segment) -> None:
    for fault in (Fault(1, unavailable, {"get_range"}), Fault(3, unavailable, {"get_range"})):
        with pytest.raises(StoreUnavailable):
            read(FaultyStore(store, [fault]), large, 5, 100, LARGE)
    with pytest.raises(StoreUnavailable):
        read(FaultyStore(store, [Fault(1, unavailable, {"get"})]), large, 0, 10_000, LARGE)


GOOD = encode(numbered(20), "zstd").to_pybytes()


def other_columns() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"offset": pa.array(range(20), pa.int64()), "more": list(range(20))}), sink)
    return bytes(sink.getvalue())


def other_types() -> bytes:
    sink = pa.BufferOutputStream()
    columns = {name: [name] * 20 for name in RECORD_SCHEMA.names}
    pq.write_table(pa.table({**columns, "offset": pa.array(range(20), pa.int64())}), sink)
    return bytes(sink.getvalue())


def other_unit() -> bytes:
    table = pa.Table.from_batches([numbered(20)])
    stamps = table["timestamp"].cast(pa.timestamp("ms", tz="UTC"))
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(1, "timestamp", stamps), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "data",
    {
        "nothing": b"",
        "no Parquet": b"PAR1 not Parquet PAR1",
        "cut short": GOOD[:-1],
        "half": GOOD[: len(GOOD) // 2],
        "other columns": other_columns(),
        "other types": other_types(),
        "other unit": other_unit(),
        "fewer rows": encode(numbered(19), "zstd").to_pybytes(),
        "more rows": encode(numbered(21), "zstd").to_pybytes(),
        "other offsets": encode(batch([Record(b"x")] * 20, base=500), "zstd").to_pybytes(),
    }.items(),
    ids=lambda item: item[0].replace(" ", "-") if isinstance(item, tuple) else "",
)
def test_a_file_that_is_not_what_the_log_says_is_a_broken_segment(
    store: Store, data: tuple[str, bytes], whole: bool
) -> None:
    segment = put(store, numbered(20))
    store.put(f"{TABLE}/{NAME}", data[1])
    with pytest.raises(CorruptSegment, match=f"segment {TABLE}/{NAME}"):
        read(store, segment, 0, 20 if whole else 10, whole_bytes=2**30 if whole else 0)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_byte_that_rots_is_reported_or_does_not_matter(at: int, bits: int) -> None:
    store = open_store("memory://")
    segment = put(store, numbered(20))
    data = bytearray(GOOD)
    data[at] ^= bits
    store.put(f"{TABLE}/{NAME}", data)
    try:
        found = read(store, segment)
    except CorruptSegment:
        return
    footer = len(data) - 8 - int.from_bytes(GOOD[-8:-4], "little")
    assert found == to_records(numbered(20)) or at >= footer  # which has no checksum


def test_rows_between_two_offsets_are_found_by_bisection() -> None:
    rows = batch(ROWS, base=10, step=10)
    offsets = [between(rows, *ends).column(0).to_pylist() for ends in ((0, 99), (11, 40), (20, 21), (41, 50))]
    assert offsets == [[10, 20, 30, 40], [20, 30], [20], []]


def test_the_first_row_at_a_time_is_the_first_in_offset_order() -> None:
    rows = batch([Record(b"", timestamp_us=t) for t in (5, 3, 9, 9, 7)])
    assert [first_at(rows, t) for t in (0, 5, 6, 9, 10)] == [100, 100, 102, 102, None]


def test_the_memory_keeps_the_newest_within_its_bound() -> None:
    rows = numbered(10)
    cache = SegmentCache(limit_bytes=3 * (rows.nbytes + 6 * COLUMN_BYTES))
    for name in "abcd":
        cache.put(name, rows)
    assert [cache.get(name) is not None for name in "abcd"] == [False, True, True, True]
    cache.put("huge", numbered(10_000))
    assert all(cache.get(name) is None for name in ("a", "b", "c", "d", "huge"))


def test_row_groups_that_are_begun_have_a_bound_of_their_own() -> None:
    rows = numbered(10)
    first, last = rows.column("offset")[0].as_py(), rows.column("offset")[-1].as_py()
    cache = SegmentCache(limit_bytes=0, begun_bytes=3 * (rows.nbytes + 6 * COLUMN_BYTES))
    for name in "abcd":
        cache.keep_begun(name, rows)
    cache.keep_begun("huge", numbered(10_000))
    assert cache.take_begun("huge", first) is None, "a group that is larger drives out no others"
    assert [cache.take_begun(name, first) is not None for name in "abcd"] == [False, True, True, True]
    assert cache.take_begun("d", first) is None, "it was taken"
    cache.keep_begun("d", rows)
    assert cache.take_begun("d", last + 1) is None
    assert cache.take_begun("d", last) is rows


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc: it tells the memory")
@pytest.mark.parametrize("declared", [0, 40])
def test_the_memory_takes_what_it_says_also_of_batches_of_one_row(declared: int) -> None:
    """The rows are a fraction of a megabyte or two, and all around them is twenty or more.

    The program must not import pandas, as `pa.array` of a list does: it leaves megabytes of freed memory.
    """
    program = f"""
import os
from pathlib import Path
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
import numpy as np
import pyarrow as pa
from log_tables.record import with_offsets
from log_tables.rows import Rows, as_batch
from log_tables.segments.segment_cache import SegmentCache
def put(cache, count):
    for number in range(count):
        rows = with_offsets([as_batch(Rows([b"x" * 160], 5, [b"key"], None))], np.arange(1))
        for name in range({declared}):
            rows = rows.append_column(str(name), rows.column(0).cast(pa.float64()))
        cache.put(str(number), rows)
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
put(SegmentCache(), 2)
before, cache = resident(), SegmentCache(4 << 20)
put(cache, 4_000 // {1 + declared // 8})
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 2 << 20 < int(done.stdout) < 6 << 20
