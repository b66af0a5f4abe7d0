"""Files that other readers leave out by the stats of declared columns never hold a row that they ask for."""

import operator as op
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.limits import STATS_TEXT_CHARS
from log_tables.store.store import open_store
from tests.kit.partitions import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS, QUERIES = 12, 4, 25
DECLARED = (
    "n bigint, s string, d double, b boolean, day date, at timestamp, price decimal(10,2), "
    "wide decimal(38,9), code binary"
)
ENDS = ["", "a", "\ud7ff", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]


class Drawn:
    """Values near those of a file, and predicates over them, by a seed."""

    def __init__(self, seed: int) -> None:
        self._clock = ManualClock(seed=seed)

    def below(self, end: int) -> int:
        return int(self._clock.random() * end)

    def of(self, *among: str) -> str:
        return among[self.below(len(among))]

    def row(self, file: int) -> dict[str, object]:
        """Fields that mostly lie between those of the files before and behind; some are null."""
        return {name: field for name, field in self.every(file).items() if self.below(6)}

    def every(self, file: int) -> dict[str, object]:
        """Fields without a null."""
        year = (1, 1582, 1900, 1969, 1970, 2013)[file % 6]
        second = f"{self.below(60):02}.{self.below(3):03}{self.below(3):03}"
        return {
            "n": 10 * file + self.below(10) - 2**53,
            "s": self.text(file),
            "d": (file - FILES // 2) * 0.1 + self.below(2) * 1e-17,
            "b": self.below(FILES) < file,
            "day": f"{year:04}-{file + 1:02}-{self.below(28) + 1:02}",
            "at": f"{year:04}-{file + 1:02}-01T23:59:{second}Z",
            "price": f"{10 * (file - FILES // 2) + self.below(10)}.{self.below(10)}0",
            "wide": f"{(file - FILES // 2) * 10**26 + self.below(3)}.00000000{self.below(10)}",
            "code": "/////w==",
        }

    def text(self, file: int) -> str:
        """Texts that differ before, at and behind the place where stats cut them."""
        letter = "aeé\ue000\U0001f600\U0010ffff"[file % 6]
        return letter * (STATS_TEXT_CHARS - 1 + self.below(2)) + self.of(*ENDS) + self.of(*ENDS)

    def predicate(self) -> "Predicate":
        tests = [self._test() for _ in range(1 + self.below(2))]
        return Predicate(self.of("and", "or"), tests)

    def _test(self) -> "Test":
        name = self.of("n", "s", "d", "b", "day", "at", "price", "wide")
        fields = [self.row(self.below(FILES)).get(name) for _ in range(2)]
        if None in fields:
            return name, self.of("is null", "is not null"), []
        operator = "=" if name == "b" else self.of("=", "<", "<=", ">", ">=", "<>", "in")
        return name, operator, fields if operator == "in" else fields[:1]


Test = tuple[str, str, list[object]]
"""A column, what it is asked, and the fields of JSON that it is compared with."""


@dataclass(frozen=True)
class Predicate:
    """Tests of columns that are all to hold, or one of them: in the SQL of Spark, and for Polars."""

    joined_by: str
    tests: list[Test]

    def sql(self) -> str:
        return f" {self.joined_by} ".join(_sql(*test) for test in self.tests)

    def polars(self) -> pl.Expr:
        join = pl.all_horizontal if self.joined_by == "and" else pl.any_horizontal
        found = [_polars(*test) for test in self.tests]
        return found[0] if len(found) == 1 else join(found)


def _sql(name: str, operator: str, fields: list[object]) -> str:
    kinds = {"s": "string", "d": "double", "day": "date", "at": "timestamp", **_DECIMALS}
    texts = [f"cast('{field}' as {kinds[name]})" if name in kinds else str(field) for field in fields]
    inner = ", ".join(texts)
    return f"{name} {operator} " + (f"({inner})" if operator == "in" else inner)


def _polars(name: str, operator: str, fields: list[object]) -> pl.Expr:
    column, items = pl.col(name), [_typed(name, field) for field in fields]
    if operator in ("is null", "is not null"):
        return column.is_null() if operator == "is null" else column.is_not_null()
    if operator == "in":
        return column.is_in(items)
    found: pl.Expr = _OPERATORS[operator](column, pl.lit(items[0]))
    return found


def _typed(name: str, field: object) -> object:
    if name in _DECIMALS:
        return Decimal(str(field))
    if name == "day":
        return date.fromisoformat(str(field))
    return datetime.fromisoformat(str(field)) if name == "at" else field


_DECIMALS = {"price": "decimal(10,2)", "wide": "decimal(38,9)"}
_OPERATORS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": op.eq,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
    "<>": op.ne,
}


@pytest.fixture
def drawn(seed: int) -> Drawn:
    return Drawn(seed)


@pytest.fixture
def location(store_root: Path, drawn: Drawn) -> str:
    """A table over a topic of two partitions, with a file for each append; one file has only nulls."""
    cluster = Cluster.open(open_store(store_root))
    topic = create_topic(cluster, "t", 2, {"value.columns": DECLARED})
    for partition in topic.partitions():
        partition.claim("")
    for file in range(FILES):
        values = [msgspec.json.encode(drawn.row(file)) for _ in range(ROWS)]
        append(topic.partition(file % 2), *values, b'{"n":"no"}' if file % 3 else None)
    append(topic.partition(0), b"{}")
    fold(topic)
    return cluster.store.delta_location(topic.directory)[0]


@pytest.mark.spark
def test_spark_finds_the_same_with_and_without_skipping_and_reads_fewer_files(
    spark: "SparkSession", location: str, drawn: Drawn
) -> None:
    from tests.kit.views import files_read

    frame = spark.read.format("delta").load(location)
    plain = frame.localCheckpoint()  # rows in memory: there are no files to leave out
    read = []
    for _ in range(QUERIES):
        where = drawn.predicate().sql()
        found, expected = (each.where(where).select("partition", "offset") for each in (frame, plain))
        assert sorted(found.collect()) == sorted(expected.collect()), where
        read += files_read(frame.where(where).select("partition", "offset"))  # the metric is set only once
    assert min(read) < max(read) <= FILES + 1
    for third in (
        f"n between {30 - 2**53} and {39 - 2**53}",
        "price between -30 and -20.01",
        f"wide between {-3 * 10**26} and {-3 * 10**26 + 5}",
    ):
        assert files_read(frame.where(third).select("partition", "offset")) == [1]


def test_polars_finds_the_same_with_and_without_skipping(location: str, drawn: Drawn) -> None:
    plain = pl.read_delta(location)
    assert plain.height == FILES * (ROWS + 1) + 1
    for _ in range(4 * QUERIES):
        predicate = drawn.predicate()
        found = pl.scan_delta(location).filter(predicate.polars()).select("partition", "offset").collect()
        expected = plain.filter(predicate.polars()).select("partition", "offset")
        assert sorted(found.rows()) == sorted(expected.rows()), predicate


def test_delta_rs_finds_decimals_with_and_without_skipping(location: str, drawn: Drawn) -> None:
    table = DeltaTable(location)
    whole, some = table.to_pyarrow_table(), table.to_pyarrow_dataset()
    for _ in range(QUERIES):
        name = drawn.of(*_DECIMALS)
        number = pa.scalar(Decimal(str(drawn.every(drawn.below(FILES))[name])), whole.schema.field(name).type)
        for compare in _OPERATORS.values():
            where = compare(pc.field(name), number)
            found = some.to_table(["partition", "offset"], where).to_pylist()
            expected = whole.filter(where).select(["partition", "offset"]).to_pylist()
            assert sorted(map(str, found)) == sorted(map(str, expected)), where
    number = pa.scalar(Decimal(-3 * 10**26), pa.decimal128(38, 9))
    assert len([*some.get_fragments(pc.field("wide") < number)]) < FILES
