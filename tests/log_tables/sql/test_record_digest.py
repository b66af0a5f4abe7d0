"""The digests of records: other engines give the same for the same SQL, and each field of a record counts."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch, with_offsets
from log_tables.sql.record_digest import NONE, Digester, DigestPart, Engine, digest_sql, joined
from log_tables.sql.statement import check_size
from log_tables.store.store import open_store
from log_tables.table.table import create_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = (
    Record(b"a value", b"a key", (("h", b"1"), ("h", None), ("h", b"1")), 1_700_000_000_123_456),
    Record(None, b"a tombstone", (), 1_600_000_000_000_000),
    Record(b"", None, (("ä", b"\xff"),), 0),
    Record(b"\x00\xff", b"", (("", b""),), -1_000_001),
    Record("schön".encode() * 20, None, (), 4_102_444_800_000_000),
)
WIDTH = 4
Row = tuple[int, int, str]
"""Where a range starts, how many records it has, its digest."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[DigestPart, list[Row]]:
    """A table of several files, and the digests of offsets 1 to 12 as `Digester` computes them."""
    root = tmp_path_factory.mktemp("digests")
    clock = ManualClock()
    store = open_store(root, clock=clock)
    create_table(store, "table", clock)
    partition = Partition(store, "table", clock)
    partition.claim("one")
    for _ in range(3):
        partition.append([AppendRequest(input_batch(RECORDS, 0))])
    digester = Digester()
    found = joined([digester.of(batch) for batch in partition.fetch(0, 1 << 20).to_batches()])
    starts = np.maximum(found.offsets // WIDTH * WIDTH, 0)
    rows = []
    for start in (0, 4, 8, 12):
        one = found.only((starts == start) & (found.offsets >= 1) & (found.offsets < 13))
        rows.append((start, len(one.offsets), one.of_all))
    return DigestPart("it's", 0, str(root / "table"), 1, 13), rows


def test_duckdb_gives_the_same_digests(table: tuple[DigestPart, list[Row]]) -> None:
    import duckdb  # see test_readers.py

    part, rows = table
    sql = digest_sql([part], WIDTH, Engine.DUCKDB)
    files = ", ".join(f"'{Path(part.location) / file}'" for file in DeltaTable(part.location).file_uris())
    assert f"delta_scan('{part.location}')" in sql
    sql = sql.replace(f"delta_scan('{part.location}')", f"read_parquet([{files}])")  # it is no wheel
    with duckdb.connect() as connection:
        assert connection.sql(sql).fetchall() == [("it's", 0, *row) for row in rows]


@pytest.mark.spark
def test_spark_gives_the_same_digests(table: tuple[DigestPart, list[Row]], spark: "SparkSession") -> None:
    part, rows = table
    found = spark.sql(digest_sql([part], WIDTH, Engine.SPARK)).collect()
    assert [tuple(row) for row in found] == [("it's", 0, *row) for row in rows]


def test_each_field_counts_and_batches_do_not() -> None:
    digester = Digester()

    def of(*records: Record, first: int = 0) -> str:
        offsets = np.arange(first, first + len(records))
        return digester.of(with_offsets([input_batch(records, 0)], offsets)).of_all

    record = RECORDS[0]
    others = [
        replace(record, value=None),
        replace(record, value=b""),
        replace(record, value=b"a valuf"),
        replace(record, key=None),
        replace(record, key=b""),
        replace(record, timestamp_us=1_700_000_000_123_457),
        *(replace(record, headers=each) for each in HEADERS),
    ]
    assert len({of(record), *map(of, others), of(record, first=1), of()}) == len(others) + 3
    batch = with_offsets([input_batch(RECORDS, 0)], np.arange(len(RECORDS)))
    parts = [digester.of(batch.slice(at, size)) for at, size in ((0, 2), (2, 0), (2, 3))]
    assert joined(parts).of_all == digester.of(batch).of_all == of(*RECORDS)
    assert joined([]).of_all == NONE.of_all == of()


HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("", b""),),
    (("", None),),
    (("h", b"1"),),
    (("h", b"1"), ("h", b"1"), ("h", None)),
    (("h", b"1"), ("h", None), ("h", None)),
)


def test_a_query_for_many_partitions_is_no_longer_chain() -> None:
    parts = [DigestPart("orders", number, "", 0, 10) for number in range(2_000)]
    check_size(digest_sql(parts, WIDTH))
