"""Other readers of Delta see the same rows as we do, in the same order: our tables are plain tables."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from datafusion import SessionContext
from deltalake import DeltaTable

from log_tables.clock import ManualClock
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig
from log_tables.record import Record, input_batch
from log_tables.rows import Rows
from log_tables.segments import rewrite
from log_tables.segments.segment import COMPRESSIONS, SegmentLimits
from log_tables.store.store import open_store
from log_tables.table.table import create_table
from tests.kit.queries import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""(offset, microseconds, key, value, headers)."""

RECORDS = (
    Record(b"a value", b"a key", (("h", b"1"), ("h", None)), 1_700_000_000_123_456),
    Record(None, b"a tombstone", (), 1_600_000_000_000_000),
    Record(b"", None, (), 0),
    Record(b"\x00\xff", b"", (("", b""),), -1_000_000),
    Record("schön".encode() * 20, None, (), 4_102_444_800_000_000),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Row]]:
    """A table with all that a table can have, and its rows as our own reader gives them.

    Every compression, of columns and of rows, nulls, headers, an idempotent producer, two leaders, a merge,
    deleted records, and a checkpoint with commits after it.
    """
    root = tmp_path_factory.mktemp("readers")
    clock = ManualClock()
    store = open_store(root, clock=clock)
    create_table(store, "table", clock)
    partition = Partition(store, "table", clock)
    partition.claim("one")
    limits = SegmentLimits(compressed_bytes=0)
    for number, compression in enumerate((*COMPRESSIONS, *COMPRESSIONS)):
        partition.config = PartitionConfig(compression, limits=limits)
        stamp = ProducerStamp(7, 0, number * len(RECORDS))
        records = as_columns() if number < len(COMPRESSIONS) else as_rows()
        partition.append([AppendRequest(records, stamp)])
        if number == 6:
            partition.checkpoint()
            partition.claim("two")
        clock.advance(10)
    merged = partition.snapshot.segments[2:5]
    assert rewrite.commit_merge(partition.table, merged, rewrite.merge(store, "table", merged, "zstd", clock))
    partition.truncate(len(RECORDS))
    rows = rows_of(partition.fetch(len(RECORDS), 1 << 30))
    assert [row[0] for row in rows] == list(range(len(RECORDS), 10 * len(RECORDS)))
    return store.delta_location("table")[0], rows


def as_columns() -> pa.RecordBatch:
    return input_batch(RECORDS, 0)


def as_rows() -> Rows:
    values, keys, headers, times, _ = zip(*map(msgspec.structs.astuple, RECORDS), strict=True)
    return Rows(values, times, keys, headers)


def rows_of(found: pa.Table) -> list[Row]:
    """Rows in the order in which they came."""
    stamps = found["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns = (found[name].to_pylist() for name in ("offset", "key", "value", "headers"))
    return [
        (offset, stamp, key, value, tuple((h["key"], h["value"]) for h in headers or ()))
        for stamp, offset, key, value, headers in zip(stamps, *columns, strict=True)
    ]


def with_delta_rs(path: str) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table().sort_by("offset")


def with_polars(path: str) -> pa.Table:
    return pl.read_delta(path).sort("offset").to_arrow()


def with_duckdb(path: str) -> pa.Table:
    """DuckDB's own Parquet reader over the files that the log names: its Delta extension is no wheel."""
    import duckdb  # DuckDB prints what is left of it at Python's end, and Spark keeps this module's globals

    files = [str(Path(path) / file) for file in DeltaTable(path).file_uris()]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql('SELECT * FROM read_parquet(?) ORDER BY "offset"', params=[files])
        return found.to_arrow_table()


def with_datafusion(path: str) -> pa.Table:
    context = SessionContext()
    context.register_table("t", DeltaTable(path))
    return context.sql('SELECT * FROM t ORDER BY "offset"').to_arrow_table()


@pytest.mark.parametrize("read", [with_delta_rs, with_polars, with_duckdb, with_datafusion])
def test_a_reader_sees_the_same_rows(table: tuple[str, list[Row]], read: Callable[[str], pa.Table]) -> None:
    path, rows = table
    assert rows_of(read(path)) == rows


def test_delta_rs_skips_files_by_our_statistics(table: tuple[str, list[Row]]) -> None:
    path, rows = table
    last = rows[-1][0]
    found = DeltaTable(path).to_pyarrow_dataset().to_table(filter=pa.compute.field("offset") == last)
    assert rows_of(found) == rows[-1:]


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_delta_on_spark_sees_the_same_rows(
    table: tuple[str, list[Row]], spark: "SparkSession", vectorized: str
) -> None:
    path, rows = table
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    for conf in ("enableVectorizedReader", "enableNestedColumnVectorizedReader"):
        own.conf.set(f"spark.sql.parquet.{conf}", vectorized)
    found = own.read.format("delta").load(path).orderBy("offset")
    assert [spark_row(row) for row in found.selectExpr("*", "unix_micros(timestamp) AS us").collect()] == rows


@pytest.mark.spark
def test_deltas_own_stream_on_spark_reads_in_offset_order(
    table: tuple[str, list[Row]], spark: "SparkSession", tmp_path: Path
) -> None:
    path, rows = table
    batches: list[list[Any]] = []
    run_to_end(
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", "2")
        .load(path)
        .selectExpr("*", "unix_micros(timestamp) AS us")
        .writeStream.foreachBatch(lambda frame, _: batches.append(frame.orderBy("offset").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert len(batches) > 1
    assert [spark_row(row) for batch in batches for row in batch] == rows


def spark_row(row: Any) -> Row:
    def data(value: bytearray | None) -> bytes | None:
        return None if value is None else bytes(value)

    headers = tuple((h["key"], data(h["value"])) for h in row["headers"] or ())
    return row["offset"], row["us"], data(row["key"]), data(row["value"]), headers
