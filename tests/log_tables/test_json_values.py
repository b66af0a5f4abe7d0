"""Arrow values as JSON: exact to the nanosecond, or refused with their row and column."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from log_tables.errors import InvalidRecord
from log_tables.json_values import json_rows, named, plain

EXACT: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 2**63 - 1, 2**63 - 1),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float64(), -0.0, "-0.0"),
    (pa.float64(), 5e-324, 5e-324),
    (pa.float32(), 0.1, 0.10000000149011612),
    (
        pa.decimal128(38, 2),
        Decimal("-123456789012345678901234567890.10"),
        "-123456789012345678901234567890.10",
    ),
    (pa.decimal128(20, 10), Decimal(0), "0.0000000000"),
    (pa.date32(), date(1, 1, 1), "0001-01-01"),
    (pa.timestamp("us"), 253_402_300_799_999_999, "9999-12-31T23:59:59.999999"),
    (pa.timestamp("ns"), -1, "1969-12-31T23:59:59.999999999"),
    (pa.timestamp("ns", "UTC"), -1_000, "1969-12-31T23:59:59.999999Z"),
    (pa.timestamp("ns", "UTC"), -999, "1969-12-31T23:59:59.999999001Z"),
    (pa.timestamp("ns", "Europe/Berlin"), 1, "1970-01-01T01:00:00.000000001+01:00"),
    (pa.timestamp("s", "Europe/Berlin"), -5_000_000_000, "1811-07-23T15:06:40Z"),
    (pa.time64("ns"), 1, "00:00:00.000000001"),
    (pa.time32("s"), 3_661, "01:01:01"),
    (pa.duration("ns"), 1, "PT0.000000001S"),
    (pa.duration("us"), timedelta(days=-1, microseconds=-5), "P-1DT-0.000005S"),
    (pa.duration("s"), timedelta(0), "PT0S"),
    (pa.month_day_nano_interval(), (14, -3, 3_661_500_000_000), "P1Y2M-3DT1H1M1.5S"),
    (pa.month_day_nano_interval(), (-1, 0, -61_000_000_000), "P-1MT-1M-1S"),
    (pa.binary(), b"\xff", "/w=="),
    (pa.list_(pa.int8()), [1, None], [1, None]),
    (pa.list_(pa.int8(), 2), [1, 2], [1, 2]),
    (pa.list_view(pa.string()), ["é"], ["é"]),
    (pa.struct({"x": pa.int8(), "y": pa.timestamp("ns")}), {"x": None, "y": 1}, None),
    (pa.struct([]), {}, {}),
    (pa.map_(pa.string(), pa.int8()), [("a", 1), ("b", None)], {"a": 1, "b": None}),
    (pa.map_(pa.int8(), pa.string()), [(1, "a")], [[1, "a"]]),
    (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
]


@pytest.mark.parametrize(("kind", "value", "shown"), EXACT, ids=lambda each: str(each)[:30])
def test_each_value_is_exact_among_nulls_and_in_a_slice(kind: pa.DataType, value: Any, shown: Any) -> None:
    column = pa.array([None, value, None, value], kind)
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    rows = [bytes(row) for row in (*json_rows(batch), *json_rows(batch.slice(1, 2)))]
    assert rows[0] == rows[2] == rows[5] == b'{"c":null}'
    assert rows[1] == rows[3] == rows[4]
    if shown == "-0.0":
        assert rows[1] == b'{"c":-0.0}'
    elif value is not None and shown is None:
        assert rows[1] == b'{"c":{"x":null,"y":"1970-01-01T00:00:00.000000001"}}'
    else:
        assert json.loads(rows[1]) == {"c": shown}


def test_a_run_of_values_and_a_type_of_a_program_are_what_they_stand_for() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    assert plain(runs, named) == ["a", "a", "b"]
    assert plain(ids, named) == [b"0123456789abcdef"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), float("nan")),
        (pa.float16(), float("inf")),
        (pa.list_(pa.float32()), [0.5, float("-inf")]),
        (pa.map_(pa.string(), pa.float64()), [("a", float("nan"))]),
        (pa.map_(pa.string(), pa.int8()), [("a", 1), ("a", 2)]),
        (pa.timestamp("s"), 2**60),
        (pa.date32(), 2**30),
    ],
    ids=str,
)
def test_what_json_does_not_have_is_refused_with_its_row_and_column(kind: pa.DataType, value: Any) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([None, value], kind)], ["a", "b"])
    with pytest.raises(InvalidRecord, match="row 12, column 'b' cannot be JSON"):
        json_rows(batch, 10)


def test_a_text_that_is_not_utf_8_is_refused_and_no_other() -> None:
    bad = pa.array([b"ok", b"\xff"]).view(pa.string())
    with pytest.raises(InvalidRecord, match="row 2, column 'c'"):
        json_rows(pa.RecordBatch.from_arrays([bad], ["c"]))
    assert json_rows(pa.RecordBatch.from_arrays([bad.slice(0, 1)], ["c"])) == [b'{"c":"ok"}']


def test_where_nothing_is_refused_a_special_number_has_its_name() -> None:
    column = pa.array([float("nan"), float("inf"), float("-inf"), None, 1.0])
    assert plain(column, named) == ["NaN", "Infinity", "-Infinity", None, 1.0]


def test_a_table_without_columns_has_empty_objects() -> None:
    assert json_rows(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))) == [b"{}", b"{}"]


def test_a_time_of_whole_microseconds_stays_a_time() -> None:
    assert plain(pa.array([1_000], pa.timestamp("ns", "UTC")), named) == [
        datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    ]
