"""`fsck --deep`: declared columns are what the values say, in the files, in the log and in the stats."""

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from msgspec import Raw
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.columns.column_stats import Bound, ColumnStats
from log_tables.columns.declaration import NOTHING, parse
from log_tables.layout import VALUE_ERROR
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.root.table_check import check_partition
from log_tables.store.store import open_store
from log_tables.table.snapshot import Segment, pack_stats
from tests.kit.partitions import append, new_partition
from tests.kit.tampered import Change, tamper, unchanged, with_cell

DECLARED = parse(
    "n bigint, s string, d double, b boolean, at timestamp, day date, tags array<string>, "
    "named map<string, bigint>, route struct<to: string, stops: array<bigint>>, "
    "price decimal(38,3), code binary"
)
SECRET = "17171717"
VALUES = [
    b'{"n":1,"s":"a","d":0.5,"b":true,"at":"2013-01-01T05:00:00.123456Z","day":"2013-01-01",'
    b'"price":"-%d.001","code":"AP8="}' % 10**34,
    None,
    b'{"tags":["x",null],"named":{"a":1},"route":{"to":"IAH","stops":[1,2]}}',
    b"no JSON",
    b'{"n":"not a number"}',
    b'{"n":9,"s":"' + 40 * b"z" + b'","d":-0.0}',
]


@pytest.fixture
def partition() -> Partition:
    config = PartitionConfig(columns=DECLARED)
    partition = new_partition(open_store("memory://"), ManualClock(), config)
    append(partition, b'{"n":0}')
    append(partition, *VALUES)
    return partition


def problems(partition: Partition, deep: bool = True) -> list[str]:
    return check_partition(partition.table.store, partition.directory, deep).problems


def tampered(
    partition: Partition, change: Change = unchanged, segment: Callable[[Segment], Segment] = unchanged
) -> list[str]:
    """The problems once the last file is another, and so is what the log says of it."""
    tamper(partition, change, segment)
    assert problems(partition, deep=False) == []
    return problems(partition)


def test_what_was_appended_is_sound(partition: Partition) -> None:
    assert problems(partition) == tampered(partition) == []


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [
        ("n", 0, int(SECRET)),
        ("n", 5, None),
        ("n", 1, int(SECRET)),
        ("s", 5, SECRET),
        ("d", 0, 0.25),
        ("b", 0, False),
        ("b", 4, True),
        ("price", 0, Decimal(f"-{10**34}.002")),
        ("price", 5, Decimal(SECRET)),
        ("code", 0, SECRET.encode()),
        ("tags", 2, ["x", SECRET]),
        ("tags", 2, ["x"]),
        ("named", 2, [("a", int(SECRET))]),
        ("route", 2, {"to": "IAH", "stops": [1]}),
        ("route", 0, {"to": None, "stops": None}),
        (VALUE_ERROR, 3, None),
        (VALUE_ERROR, 0, SECRET),
    ],
)
def test_a_cell_that_is_another_is_found(partition: Partition, name: str, row: int, value: object) -> None:
    (problem,) = tampered(partition, with_cell(name, row, value))
    assert f"the column {name} of segment {partition.snapshot.segments[-1].path}" in problem
    assert f"from offset {1 + row} on" in problem
    assert SECRET not in problem


def test_a_column_that_the_table_lacks_is_found(partition: Partition) -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("other", pa.array([1] * len(batch)))

    (problem,) = tampered(partition, change)
    assert "has the column other, which its table does not declare" in problem


def without(*names: str) -> Change:
    return lambda batch: batch.select([name for name in batch.schema.names if name not in names])


def test_columns_of_another_declaration_than_the_log_says_are_found(partition: Partition) -> None:
    (problem,) = tampered(partition, without("day"))
    fewer = parse(DECLARED.text.replace(", day date", ""))
    assert f"has the columns of declaration {fewer.id}, and the log says {DECLARED.id}" in problem


def test_a_file_without_the_column_of_errors_is_found(partition: Partition) -> None:
    (problem,) = tampered(partition, without(VALUE_ERROR))
    assert f"has declared columns, and lacks {VALUE_ERROR}" in problem


def test_columns_of_which_the_log_says_nothing_are_found(partition: Partition) -> None:
    (problem,) = tampered(partition, segment=lambda item: replace(item, columns="", packed_stats=b""))
    assert "and the log says none" in problem


def test_a_file_without_the_columns_that_the_log_names_is_found(partition: Partition) -> None:
    (problem,) = tampered(partition, without(VALUE_ERROR, *DECLARED.names))
    assert f"has the columns of declaration none, and the log says {DECLARED.id}" in problem


@pytest.mark.parametrize(
    ("column", "least", "greatest", "nulls"),
    [
        ("n", 2, 9, 0),
        ("n", 1, 8, 0),
        ("n", 1, 9, 1),
        ("n", "1", 9, 0),
        ("s", "b", None, 0),
        ("s", None, "zz", 0),
        ("at", "2013-01-01T05:00:00.124Z", None, 0),
        ("at", None, "2013-01-01T05:00:00.123Z", 0),
        ("day", "2013-01-02", None, 0),
        ("price", Raw(f"-{10**34}.0009".encode()), None, 0),
        ("price", None, Raw(f"-{10**34}.0011".encode()), 0),
        ("price", "-1", None, 0),
        ("code", None, None, 1),
    ],
)
def test_bounds_that_do_not_hold_are_found(
    partition: Partition, column: str, least: Bound | None, greatest: Bound | None, nulls: int
) -> None:
    def segment(item: Segment) -> Segment:
        low, high, counts = _parts(item.column_stats)
        low |= {column: least} if least is not None else {}
        high |= {column: greatest} if greatest is not None else {}
        counts[column] += nulls
        return replace(item, packed_stats=pack_stats(ColumnStats(low, high, counts)))

    (problem,) = tampered(partition, segment=segment)
    assert f"of the column {column} outside its stats" in problem


def test_bounds_that_are_wider_or_missing_are_sound(partition: Partition) -> None:
    def segment(item: Segment) -> Segment:
        low, high, counts = _parts(item.column_stats)
        wide = ColumnStats({**low, "n": -5}, {name: high[name] for name in high if name != "s"}, counts)
        return replace(item, packed_stats=pack_stats(wide))

    assert tampered(partition, segment=segment) == []


def _parts(stats: ColumnStats) -> tuple[dict[str, Bound], dict[str, Bound], dict[str, int]]:
    return {**stats.least}, {**stats.greatest}, {**stats.nulls}


def test_columns_that_are_no_longer_declared_are_checked_too(partition: Partition) -> None:
    partition.config = PartitionConfig(columns=NOTHING)
    append(partition, b'{"n":7}')
    assert problems(partition) == []
    partition.config = PartitionConfig(columns=parse("s string, other bigint"))
    append(partition, b'{"n":7,"s":"a","other":3}')
    assert problems(partition) == []
    (problem,) = tampered(partition, with_cell("other", 0, 4))
    assert "the column other" in problem
