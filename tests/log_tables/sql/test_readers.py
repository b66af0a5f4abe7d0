"""Other readers of Delta see the same rows as we do, in the same order: our tables are plain tables."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from datafusion import SessionContext
from deltalake import DeltaTable

from log_tables.clock import ManualClock
from log_tables.columns.declaration import parse
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


DECLARED = (
    "small decimal(4,2), price decimal(10,2), large decimal(38,0), fine decimal(38,38), code binary, "
    "prices array<decimal(20,3)>, by_name map<string, decimal(5,0)>, "
    "one struct<price: decimal(38,9), code: binary>"
)
NINES = "9" * 38
TYPED_ROWS: tuple[tuple[object, ...], ...] = (
    (
        Decimal("-12.50"),
        Decimal("-99999999.99"),
        Decimal(NINES),
        Decimal(f"-0.{NINES}"),
        b"\x00\xff",
        [Decimal("1.005"), None, Decimal(-7)],
        {"a": Decimal(-1)},
    ),
    (
        Decimal("0.00"),
        Decimal("0.01"),
        Decimal(f"-{NINES}"),
        Decimal(f"0.{'0' * 37}1"),
        b"",
        [],
        {"a": None, "b": Decimal(99_999)},
    ),
    (None,) * 7,
    (Decimal("99.99"), None, Decimal(0), Decimal(0), "ü".encode(), None, None),
)
ONE = {"price": Decimal(f"{'9' * 29}.{'9' * 9}"), "code": b"\x01"}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with decimals and bytes, in a file for each row and one, compressed, for all of them."""
    store, clock = open_store(tmp_path_factory.mktemp("typed")), ManualClock()
    declaration = parse(DECLARED)
    create_table(store, "table", clock, columns=declaration)
    limits = SegmentLimits(compressed_bytes=0)
    partition = Partition(store, "table", clock, PartitionConfig("zstd", limits=limits, columns=declaration))
    partition.claim("")
    names = declaration.names[:-1]
    rows = [
        {**dict(zip(names, row, strict=True)), "one": None if row[0] is None else ONE} for row in TYPED_ROWS
    ]
    values = [msgspec.json.encode(row) for row in rows]
    for some in (*([value] for value in values), values):
        partition.append([AppendRequest(input_batch([*map(Record, some)], 0))])
    return store.delta_location("table")[0]


@pytest.mark.parametrize("read", [with_delta_rs, with_polars, with_duckdb, with_datafusion])
def test_a_reader_sees_decimals_and_bytes_as_they_are(typed: str, read: Callable[[str], pa.Table]) -> None:
    found = read(typed).select(parse(DECLARED).names)
    assert [typed_row(row) for row in found.to_pylist()] == [*map(expected_row, TYPED_ROWS)] * 2


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_sees_decimals_and_bytes_as_they_are(
    typed: str, spark: "SparkSession", vectorized: str
) -> None:
    own = spark.newSession()
    for conf in ("enableVectorizedReader", "enableNestedColumnVectorizedReader"):
        own.conf.set(f"spark.sql.parquet.{conf}", vectorized)
    found = own.read.format("delta").load(typed).orderBy("offset")
    rows = [row.asDict(recursive=True) for row in found.select(*parse(DECLARED).names).collect()]
    assert [typed_row(row) for row in rows] == [*map(expected_row, TYPED_ROWS)] * 2
    for name, number in (("large", f"-{NINES}"), ("fine", f"-0.{NINES}"), ("small", "-12.50")):
        assert found.where(f"{name} = {number}BD").count() == 2


def typed_row(row: dict[str, Any]) -> tuple[object, ...]:
    """The declared columns of a row, by their names: maps as dicts, bytes as bytes."""
    one = row["one"] and {**row["one"], "code": bytes(row["one"]["code"])}
    code = None if row["code"] is None else bytes(row["code"])
    by_name = None if row["by_name"] is None else dict(row["by_name"])
    names = ("small", "price", "large", "fine")
    return *(row[name] for name in names), code, row["prices"], by_name, one


def expected_row(row: tuple[object, ...]) -> tuple[object, ...]:
    return *row, None if row[0] is None else ONE


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
