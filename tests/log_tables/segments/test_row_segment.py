"""A segment that is written from rows holds what one that is written from columns would."""

import io

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.record import RECORD_SCHEMA, batch_bytes, with_offsets
from log_tables.rows import Headers, Rows, as_batches
from log_tables.segments.row_segment import RowSegment, encode_rows
from log_tables.segments.segment import COMPRESSIONS, SegmentStats, decode, encode
from log_tables.segments.segment_cache import SegmentCache

TIMES = st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
CONTENT = st.none() | st.binary(max_size=70)
HEADERS: st.SearchStrategy[Headers] = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=3)
COUNTS = (1, 2, 7, 8, 9, 127, 128, 129, 130, 257)
"""Around the groups of levels, of eight, and the blocks of deltas, of 128 after the first number."""


@st.composite
def some_rows(draw: st.DrawFn) -> Rows:
    count = draw(st.sampled_from(COUNTS[:5]))

    def column(items: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
        return st.lists(items, min_size=count, max_size=count)

    times, contents = TIMES | column(TIMES), column(CONTENT)
    keys, headers = st.none() | contents, st.none() | column(HEADERS)
    return Rows(draw(contents), draw(times), draw(keys), draw(headers))  # type: ignore[arg-type]


BASES = st.integers(0, 2**62)


def as_columns(rows: Rows, base: int) -> pa.RecordBatch:
    return with_offsets(as_batches([rows]), np.arange(base, base + len(rows)))


def with_duckdb(data: bytes, directory: str) -> pa.Table:
    import duckdb  # DuckDB prints what is left of it at Python's end, and Spark keeps this module's globals

    path = f"{directory}/rows.parquet"
    with open(path, "wb") as file:
        file.write(data)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql("SELECT * FROM read_parquet(?)", params=[path]).to_arrow_table()


def plain(found: pa.Table) -> list[list[object]]:
    """Its columns; times in microseconds, as Python has none before the year 1."""
    cast = found.set_column(1, "timestamp", found.column(1).cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return [column.to_pylist() for column in cast.columns]


@given(some_rows(), BASES, st.sampled_from(COMPRESSIONS))
def test_it_holds_what_columns_hold(rows: Rows, base: int, compression: str) -> None:
    [found] = decode(pa.py_buffer(encode_rows(rows, base, compression)))
    assert found.schema.equals(RECORD_SCHEMA)
    assert found.equals(as_columns(rows, base))
    assert RowSegment(rows, base).batch().equals(found)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_it_holds_what_columns_hold_at_any_length(count: int, compression: str) -> None:
    contents = [None if n % 5 == 3 else b"x" * n for n in range(count)]
    headers: list[Headers] = [[("h", None), ("i", b"1")][: n % 3] for n in range(count)]
    for rows in (
        Rows(contents, 5, contents, headers),
        Rows(contents, [*range(count)]),
        Rows([b""] * count, [7] * count, [None] * count, [()] * count),
    ):
        [found] = decode(pa.py_buffer(encode_rows(rows, 2**40, compression)))
        assert found.equals(as_columns(rows, 2**40))


@given(some_rows(), BASES)
def test_other_readers_read_the_same(tmp_path_factory: pytest.TempPathFactory, rows: Rows, base: int) -> None:
    data, expected = encode_rows(rows, base, "zstd"), pa.Table.from_batches([as_columns(rows, base)])
    assert plain(with_duckdb(data, str(tmp_path_factory.getbasetemp()))) == plain(expected)
    assert plain(pl.read_parquet(io.BytesIO(data)).to_arrow()) == plain(expected)


@given(some_rows(), BASES)
def test_its_footer_is_that_of_columns(rows: Rows, base: int) -> None:
    own = pq.ParquetFile(io.BytesIO(encode_rows(rows, base)))
    columns = pq.ParquetFile(pa.BufferReader(encode(as_columns(rows, base), "uncompressed")))
    assert own.schema.equals(columns.schema)
    group = own.metadata.row_group(0)
    chunks = [group.column(index) for index in range(6)]
    assert sum(each.total_uncompressed_size for each in chunks) == group.total_byte_size
    for index in range(6):
        mine, theirs = (file.metadata.row_group(0).column(index) for file in (own, columns))
        assert (mine.path_in_schema, mine.num_values) == (theirs.path_in_schema, theirs.num_values)
        assert mine.is_stats_set == theirs.is_stats_set
        if mine.is_stats_set:
            assert mine.statistics.to_dict() == theirs.statistics.to_dict()


@given(some_rows(), BASES)
def test_its_stats_are_those_of_columns(rows: Rows, base: int) -> None:
    of_rows, of_columns = SegmentStats.of_rows(rows, base), SegmentStats()
    of_columns.add(as_columns(rows, base))
    assert of_rows.raw_bytes == batch_bytes(as_columns(rows, base))
    assert of_rows.segment("a", b"", 0) == of_columns.segment("a", b"", 0)


@given(some_rows(), st.data())
def test_a_changed_byte_of_a_page_never_changes_what_is_read(rows: Rows, data: st.DataObject) -> None:
    encoded = bytearray(encode_rows(rows, 0))
    footer = len(encoded) - 8 - int.from_bytes(encoded[-8:-4], "little")
    place = data.draw(st.integers(4, footer - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    try:
        found = [*decode(pa.py_buffer(bytes(encoded)))]
    except (OSError, pa.ArrowException):
        return
    assert found == [as_columns(rows, 0)]


def test_the_cache_gives_columns_and_counts_them_from_then_on() -> None:
    """As columns, the records of a segment take several times what they take as rows."""
    cache, names = SegmentCache(30_000), [f"{number}" for number in range(10)]
    for name in names:
        cache.put(name, RowSegment(Rows([b"x"] * 10, 5), 3))
    first = cache.get(names[0])
    assert first is not None
    assert first.equals(as_columns(Rows([b"x"] * 10, 5), 3))
    assert cache.get(names[0]) is first
    for name in names:
        cache.get(name)
    assert [name for name in names if cache.get(name) is not None] == names[-5:]


def test_the_cache_keeps_no_body_alive_for_a_view_of_it() -> None:
    body = bytearray(1 << 20)
    cache = SegmentCache(1 << 20)
    cache.put("a", RowSegment(Rows([memoryview(body)[:5]], 5), 0))
    body.extend(b"x")  # BufferError if a view is left
