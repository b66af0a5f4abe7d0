"""The stats of declared columns hold for every value, and are short."""

import math
from datetime import UTC, date, datetime
from decimal import Context, Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.column_stats import Bound, ColumnStats, ColumnStatsWriter, exact, number_of
from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.typed_values import typed_values
from log_tables.limits import COLUMN_NAME_MAX_CHARS, STATS_COLUMNS_MAX, STATS_MAX_BYTES, STATS_TEXT_CHARS
from log_tables.record import timestamp_us
from tests.kit.declared_json import decimal_types, declared_values

Declared = tuple[Declaration, list[bytes | None]]


def stats_of(*batches: pa.RecordBatch) -> ColumnStats:
    writer = ColumnStatsWriter()
    for batch in batches:
        writer.add(batch, batch.schema.names)
    return writer.stats()


def column(name: str, kind: pa.DataType, items: list[object]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(items, kind)], names=[name])


def comparable(item: object) -> object:
    """A value of a column as it compares with others, which for texts is by their bytes."""
    return item.encode() if isinstance(item, str) else item


def bound_of(bound: Bound, kind: pa.DataType) -> object:
    """A bound as the value that it stands for."""
    if pa.types.is_decimal(kind):
        return number_of(bound)
    if pa.types.is_date(kind):
        return date.fromisoformat(str(bound))
    if pa.types.is_timestamp(kind):
        assert len(str(bound)) == len("2013-01-31T05:00:00.000Z")
        micros = timestamp_us(str(bound))
        return datetime.fromtimestamp(0, UTC) + (micros * (pa.scalar(1, pa.duration("us")).as_py()))
    return comparable(bound)


def check(stats: ColumnStats, *batches: pa.RecordBatch) -> None:
    """Every bound of `stats` holds for `batches`, and every null is counted."""
    for name in stats.nulls:
        columns = [batch.column(name) for batch in batches]
        kind = columns[0].type
        assert not pa.types.is_nested(kind)
        assert stats.nulls[name] == sum(each.null_count for each in columns)
        items = [comparable(item) for each in columns for item in each.to_pylist() if item is not None]
        assert bool(items) >= (name in stats.least) >= (name in stats.greatest)
        for item in items:
            assert bound_of(stats.least[name], kind) <= item  # type: ignore[operator]
            if name in stats.greatest:
                assert item <= bound_of(stats.greatest[name], kind)  # type: ignore[operator]
        for bound in (stats.least.get(name), stats.greatest.get(name)):
            assert not isinstance(bound, str) or len(bound) <= STATS_TEXT_CHARS


@given(declared_values, st.lists(st.integers(0, 5), max_size=3))
def test_the_bounds_of_columns_hold(declared: Declared, cuts: list[int]) -> None:
    declaration, values = declared
    whole = typed_values(pa.array(values, pa.binary()), declaration)
    ends = [*sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [whole.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    stats = stats_of(*parts)
    check(stats, whole)
    assert stats == stats_of(whole)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), min_size=1), st.integers(0, 40))
def test_texts_are_cut_and_the_greatest_is_rounded_up(texts: list[str], before: int) -> None:
    batch = column("s", pa.string(), ["\U0010ffff" * before + text for text in texts])
    check(stats_of(batch), batch)


@pytest.mark.parametrize(
    ("text", "greatest"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 31 + "b"),
        ("\ud7ff" * 33, "\ud7ff" * 31 + "\ue000"),
        ("a" + "\U0010ffff" * 32, "b"),
        ("\U0010ffff" * 33, None),
    ],
)
def test_the_greatest_text_is_the_next_short_one(text: str, greatest: str | None) -> None:
    stats = stats_of(column("s", pa.string(), [text]))
    assert stats.least["s"] == text[:STATS_TEXT_CHARS]
    assert stats.greatest.get("s") == greatest


def test_times_are_rounded_outwards_up_to_the_end_of_years() -> None:
    kind = pa.timestamp("us", tz="UTC")
    for texts in (
        ["1969-12-31T23:59:59.999999Z", "2013-01-31T05:00:00.000001Z"],
        ["0001-01-01T00:00:00.000001Z", "9999-12-31T23:59:59Z"],
    ):
        values = [msgspec.json.encode({"t": text}) for text in texts]
        batch = typed_values(pa.array(values), parse("t timestamp"))
        assert batch.column(0).null_count == len(texts)
        check(stats_of(batch), batch)
    assert stats_of(column("t", kind, [1_001])).greatest == {"t": "1970-01-01T00:00:00.002Z"}


@given(st.permutations([0.0, -0.0]))
def test_a_zero_is_between_both_zeros(items: list[object]) -> None:
    stats = stats_of(column("d", pa.float64(), items))
    assert math.copysign(1, float(stats.least["d"])) == -1
    assert math.copysign(1, float(stats.greatest["d"])) == 1


@given(decimal_types.flatmap(lambda kind: st.tuples(st.just(kind), st.integers(1 - 10**kind.precision, 0))))
def test_the_bounds_of_decimals_are_exact_and_have_no_exponent(drawn: tuple[pa.DataType, int]) -> None:
    """As Spark writes them. Where one has an exponent, delta-rs finds no row of the file."""
    kind, number = drawn
    least = Decimal(number).scaleb(-kind.scale, Context(prec=38))
    batch = column("d", kind, [-least, None, least])
    stats = stats_of(batch)
    texts = [msgspec.json.encode(bounds["d"]).decode() for bounds in (stats.least, stats.greatest)]
    assert [Decimal(text) for text in texts] == [least, -least]
    assert not {*"".join(texts)} - {*"-.0123456789"}
    again = msgspec.json.Decoder(ColumnStats, float_hook=exact).decode(msgspec.json.encode(stats))
    assert again == stats


def test_bytes_have_no_bounds_and_their_nulls_are_counted() -> None:
    batch = column("b", pa.binary(), [b"x", None, None])
    assert stats_of(batch, batch) == ColumnStats(nulls={"b": 4})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_doubles_that_json_does_not_have_are_within_no_bounds(number: float) -> None:
    """Spark has NaN above all numbers, and Arrow's greatest value is never NaN."""
    first, second = column("d", pa.float64(), [1.0, None, number]), column("d", pa.float64(), [2.0])
    for batches in ((first, second), (second, first)):
        assert stats_of(*batches) == ColumnStats(nulls={"d": 1})


def test_the_first_32_declared_leaves_have_stats() -> None:
    nested = ", ".join(f"n{index} array<bigint>" for index in range(STATS_COLUMNS_MAX))
    leaves = ", ".join(f"c{index} bigint" for index in range(STATS_COLUMNS_MAX + 1))
    stats = stats_of(typed_values(pa.array([b"{}"]), parse(f"{nested}, {leaves}")))
    assert [*stats.nulls] == ["value_error", *(f"c{index}" for index in range(STATS_COLUMNS_MAX))]


@given(st.lists(st.text(max_size=40), min_size=40, max_size=40))
def test_all_stats_of_an_add_are_short(texts: list[str]) -> None:
    names = [f"{index:é>{COLUMN_NAME_MAX_CHARS}}" for index in range(len(texts))]
    batch = pa.record_batch([pa.array([text]) for text in texts], names=names)
    stats = stats_of(batch)
    check(stats, batch)
    assert 0 < len(stats.nulls) < len(names)
    assert [*stats.nulls] == names[: len(stats.nulls)]
    parts = (stats.least, stats.greatest, stats.nulls)
    assert sum(len(msgspec.json.encode(part)) for part in parts) <= STATS_MAX_BYTES
