"""The rows of an answer as texts: exact, short, and harmless."""

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.sql.query_answer import (
    CELL_MAX_CHARS,
    FRAME_BYTES,
    EncodedText,
    cell,
    columns_of,
    row_frames,
    shown,
)

HOSTILE = st.text(st.characters(codec="utf-8"), max_size=50)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (2**63 - 1, "9223372036854775807"),
        (Decimal("0.10"), "0.10"),
        (Decimal("0E-10"), "0.0000000000"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        ("a\tb\nc", "a\tb\nc"),
        ("<script>", "<script>"),
        ("a\x00\x1b[31m", "a\\u0000\\u001b[31m"),
        ("\u202eleft\u2066", "\\u202eleft\\u2066"),
        ("soft\xadhy\U000e0041", "soft\\u00adhy\\U000e0041"),
        ("👩\u200d🚀 漢字", "👩\u200d🚀 漢字"),
        (b"bytes", "bytes"),
        ([{"key": "h", "value": b"\x01"}], '[{"key":"h","value":"\\u0001"}]'),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\xff"},
            '{"at":"2026-01-02T00:00:00+00:00","raw":"/w=="}',
        ),
    ],
)
def test_a_value_is_shown_as_it_is(value: object, text: str | None) -> None:
    assert cell(value) == text


def test_bytes_that_are_no_text_are_base64_and_say_so() -> None:
    assert cell(b"\xff\xfe") == EncodedText("//4=", "base64")
    assert cell(b"\xff" * 10_000_000) == EncodedText(
        "/" * CELL_MAX_CHARS + "…", "base64, of 10,000,000 bytes"
    )


def test_a_long_text_is_cut_and_says_how_long_it_is() -> None:
    assert cell("x" * CELL_MAX_CHARS) == "x" * CELL_MAX_CHARS
    assert cell("x" * 10_000_000) == EncodedText("x" * CELL_MAX_CHARS + "…", "of 10,000,000 characters")


@given(HOSTILE)
def test_no_text_keeps_a_character_that_controls_what_is_around_it(text: str) -> None:
    left = {
        each for each in shown(text) if each < " " or "\x7f" <= each <= "\x9f" or "\u202a" <= each <= "\u202e"
    }
    assert left <= {"\t", "\n"}


@given(st.lists(st.tuples(HOSTILE, st.binary(max_size=20), st.none() | st.integers(-(2**63), 2**63 - 1))))
def test_frames_have_every_row_in_order(rows: list[tuple[str, bytes, int | None]]) -> None:
    arrays = [[each[index] for each in rows] for index in range(3)]
    kinds = (pa.string(), pa.binary(), pa.int64())
    columns = [pa.array(values, kind) for values, kind in zip(arrays, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, ["text", "bytes", "number"])
    frames = [(count, msgspec.json.decode(content)) for count, content in row_frames(batch)]
    assert all(count == len(found) for count, found in frames)
    read = [row for _, found in frames for row in found]
    assert [row[2] for row in read] == [None if number is None else str(number) for _, _, number in rows]
    assert [row[0] for row in read] == [shown(text) for text, _, _ in rows]


def test_a_frame_is_small_however_long_its_rows_are() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["x" * 5_000] * 400})
    sizes = [len(content) for _, content in row_frames(batch)]
    assert len(sizes) > 5
    assert max(sizes) < FRAME_BYTES + 5_000


def test_times_of_every_kind_are_iso_8601() -> None:
    micros = pa.timestamp("us", "UTC")
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1], micros),
            pa.array([1_000_000_001], pa.timestamp("ns")),
            pa.array([0], pa.date32()),
            pa.array([1], pa.time64("ns")),
            pa.array([None], micros),
        ],
        ["a", "b", "c", "d", "e"],
    )
    ((_, content),) = row_frames(batch)
    assert msgspec.json.decode(content) == [
        [
            "1970-01-01T00:00:00.000001Z",
            "1970-01-01T00:00:01.000000001",
            "1970-01-01",
            "00:00:00.000000001",
            None,
        ]
    ]
    assert [each.kind for each in columns_of(batch.schema)] == ["time", "time", "time", "text", "time"]


def test_a_column_says_whether_it_is_a_number() -> None:
    schema = pa.schema([("a\u202e", pa.int32()), ("b", pa.decimal128(10, 2)), ("c", pa.bool_())])
    assert [(each.name, each.kind) for each in columns_of(schema)] == [
        ("a\\u202e", "number"),
        ("b", "number"),
        ("c", "text"),
    ]


def test_nested_numbers_and_intervals_are_shown_as_they_are_alone() -> None:
    numbers = pa.array([[float("nan"), 1.5]])
    intervals = pa.array([(1, 2, 0)], pa.month_day_nano_interval())
    maps = pa.array([[("k", float("inf"))]], pa.map_(pa.string(), pa.float64()))
    batch = pa.RecordBatch.from_arrays([numbers, intervals, maps], ["a", "b", "c"])
    ((_, row),) = row_frames(batch)
    assert msgspec.json.decode(row) == [['["NaN",1.5]', "P1M2D", '{"k":"Infinity"}']]
