"""The slices that a filter leaves hold every row for which it is true, whatever it is."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.columns.column_stats import Bound, ColumnStats
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.sql.file_slices import file_slices, spread
from log_tables.sql.scan import read_slices
from log_tables.sql.topic_files import SCAN_SCHEMA, TopicFiles, topic_files
from log_tables.store.store import open_store
from log_tables.table.snapshot import pack_stats
from tests.kit.partitions import thin_out

FIRST = "n bigint, s string, day date"
OTHERS = "d double FROM '/n', at timestamp, b boolean, inner bigint FROM '/o/n', wide decimal(38,9) FROM '/w'"
LATER = f"{FIRST}, {OTHERS}"
DECLARED = ("value_error", "n", "s", "day", "d", "at", "b", "inner", "wide")
COLUMNS = ("partition", "offset", "timestamp", "key", *DECLARED)
LONG = "long, and beyond what the stats of a text hold, "
NEW_YEAR_US = 1_356_998_400_000_000
TIME = SCAN_SCHEMA.field("timestamp").type


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TopicFiles:
    """Two partitions of small files and a large one, with a log start inside of a file and a gap.

    Their declaration grows after the third file.
    """
    cluster = Cluster.open(open_store(Path(tmp_path_factory.mktemp("slices"))))
    partitions = create_topic(cluster, "t", 2, {"value.columns": FIRST}).partitions()
    for sizes in ((3, 1, 5), (300, 4)):
        for number, partition in enumerate(partitions):
            fill(partition, number, sizes)
        alter_topic(cluster, "t", {"value.columns": LATER})
    for partition in partitions:
        thin_out(partition, partition.snapshot.segments[2:3], keep=lambda offset: offset % 2 == 1)
        partition.refresh()
        partition.truncate(2)
    return topic_files(cluster, "t")


def fill(partition: Partition, number: int, sizes: Sequence[int]) -> None:
    """Files of so many records each."""
    if not partition.leading:
        partition.claim("")
    for size in sizes:
        first = partition.high_watermark
        rows = [
            Record(value(first + row), key=b"%d" % (row % 3), timestamp_us=(first + row) * 700 + number)
            for row in range(size)
        ]
        partition.append([AppendRequest(input_batch(rows, 0))])


def value(row: int) -> bytes | None:
    """The value of a record: most fit all columns, and are wide enough for several row groups."""
    if row % 50 == 7:
        return [None, b"no JSON", b'{"n":"text"}'][row % 3]
    fields = {
        "n": row - 100 if row % 5 else None,
        "s": f"{LONG if row % 2 else ''}{row // 10}",
        "day": f"2013-01-{row % 28 + 1:02}",
        "at": f"2013-01-01T00:00:00.{row:06}Z",
        "b": row % 4 == 0,
        "o": {"n": row} if row % 3 else {},
        "w": f"{row - 100}{'0' * 25}.000000001" if row % 4 else None,
        "large": "x" * 500,
    }
    return msgspec.json.encode(fields)


def comparison(column: str, value: pa.Scalar, name: str) -> pc.Expression:
    made: pc.Expression = getattr(pc.field(column), name)(value)
    return made


scalars = {
    "partition": st.integers(-1, 3).map(lambda value: pa.scalar(value, pa.int32())),
    "offset": st.integers(-1, 320).map(lambda value: pa.scalar(value, pa.int64())),
    "timestamp": st.integers(-1, 225_000).map(lambda value: pa.scalar(value, TIME)),
    "key": st.sampled_from([b"0", b"1", b"9"]).map(lambda value: pa.scalar(value, pa.binary())),
    "value_error": st.sampled_from(["the value is not JSON", "a", "~"]).map(pa.scalar),
    "n": st.integers(-101, 220).map(lambda value: pa.scalar(value, pa.int64())),
    "s": st.sampled_from(["", "1", "30", f"{LONG}3", f"{LONG}9", "m"]).map(pa.scalar),
    "day": st.dates(date(2012, 12, 30), date(2013, 2, 1)).map(lambda value: pa.scalar(value, pa.date32())),
    "d": st.floats(-102, 220).map(lambda value: pa.scalar(value, pa.float64())),
    "at": st.integers(-1, 320).map(lambda value: pa.scalar(NEW_YEAR_US + value, TIME)),
    "b": st.booleans().map(pa.scalar),
    "wide": st.builds(
        lambda row, rest: pa.scalar(Decimal(f"{row}{'0' * 25}.00000000{rest}"), pa.decimal128(38, 9)),
        st.integers(-101, 220),
        st.integers(0, 2),
    ),
    "inner": st.integers(-1, 320).map(lambda value: pa.scalar(value, pa.int64())),
}
leaves = st.sampled_from(COLUMNS).flatmap(
    lambda column: st.builds(
        comparison,
        st.just(column),
        scalars[column],
        st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]),
    )
)
leaves |= st.lists(st.integers(0, 320), min_size=1, max_size=5).map(
    lambda some: pc.field("offset").isin(some)
)
leaves |= st.sampled_from(DECLARED).map(lambda column: pc.field(column).is_null())
leaves |= st.sampled_from(DECLARED).map(lambda column: pc.field(column).is_valid())
filters = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda one, other: one & other, inner, inner)
        | st.builds(lambda one, other: one | other, inner, inner)
        | inner.map(lambda one: ~one)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=filters)
def test_no_row_of_a_filter_is_left_out(files: TopicFiles, where: pc.Expression) -> None:
    whole = pa.Table.from_batches(read_slices(files, file_slices(files, None), COLUMNS, None))
    slices = file_slices(files, where)
    parts = [part for parts in spread(slices) for part in parts]
    assert parts == slices
    found = pa.Table.from_batches(read_slices(files, slices, COLUMNS, where), whole.schema)
    assert found.equals(whole.filter(where))


def test_a_large_file_is_narrowed_to_the_offsets_of_a_filter(files: TopicFiles) -> None:
    where = (pc.field("offset") == 100) & (pc.field("partition") == pa.scalar(1, pa.int32()))
    (found,) = file_slices(files, where)
    assert found.start <= 100 < found.end <= found.start + 10
    assert found.files.partition == 1


def test_a_large_file_is_read_by_all_cores(files: TopicFiles) -> None:
    (item,) = file_slices(files, pc.field("offset") == 100)[:1]
    large = replace(item, segment=msgspec.structs.replace(item.segment, raw_bytes=1_000 * MIB), start=0)
    parts = spread([large])
    assert len(parts) == (os.cpu_count() or 1)
    assert [part.start for (part,) in parts] == [0, *(part.end for (part,) in parts[:-1])]
    assert parts[-1][-1].end == large.end


@pytest.mark.parametrize(
    ("column", "bound"),
    [
        *(("n", "3"), ("n", 1.5), ("n", True), ("n", 2**63), ("s", 5), ("d", "NaN"), ("d", False), ("b", 1)),
        *(
            ("day", 3),
            ("day", "2013-02-30"),
            ("day", "x"),
            ("wide", "3"),
            ("wide", 1e-300),
            ("wide", True),
            ("at", 3),
            ("at", "x"),
            ("at", "2013-01-01"),
        ),
    ],
)
def test_stats_of_another_kind_leave_nothing_out(files: TopicFiles, column: str, bound: Bound) -> None:
    lies = pack_stats(ColumnStats({column: bound}, {column: bound}, {column: 0}))
    lying = [
        replace(part, segments=[msgspec.structs.replace(one, packed_stats=lies) for one in part.segments])
        for part in files.partitions
    ]
    whole = pa.Table.from_batches(read_slices(files, file_slices(files, None), COLUMNS, None))
    where = pc.field(column) == whole[column].drop_null()[-1]
    slices = file_slices(replace(files, partitions=lying), where)
    found = pa.Table.from_batches(read_slices(files, slices, COLUMNS, where), whole.schema)
    assert found.num_rows > 0
    assert found.equals(whole.filter(where))
