"""A digest is the same for the same records however they are batched, and another one for any other."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.record import HEADERS_TYPE, RECORD_SCHEMA
from log_tables.segments.digest import Digest

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None] | None] | None]

pairs = st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2))
rows_of = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 3),
        st.none() | st.binary(max_size=3),
        st.none() | st.binary(max_size=3),
        st.none() | st.lists(st.none() | pairs, max_size=2),
    ),
    max_size=24,
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    """`rows`, in which unlike in a log offsets may repeat."""
    columns = zip(*rows, strict=True) if rows else [()] * 5
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def digest(*batches: pa.RecordBatch) -> bytes:
    made = Digest()
    for part in batches:
        made.update(part)
    return made.value()


@given(rows_of, st.lists(st.integers(0, 24), max_size=5))
def test_it_is_the_same_however_the_records_are_batched(rows: list[Row], cuts: list[int]) -> None:
    ends = [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    ranges = list(zip([0, *ends], ends, strict=False))
    whole = batch(rows)
    assert digest(*(whole.slice(start, end - start) for start, end in ranges)) == digest(whole)
    assert digest(*(batch(rows[start:end]) for start, end in ranges)) == digest(whole)


@given(rows_of, rows_of)
def test_other_records_have_another_one(rows: list[Row], others: list[Row]) -> None:
    assert (digest(batch(rows)) == digest(batch(others))) == (rows == others)


@given(rows_of, st.data())
def test_the_order_matters(rows: list[Row], data: st.DataObject) -> None:
    others = data.draw(st.permutations(rows))
    assert (digest(batch(rows)) == digest(batch(others))) == (rows == others)


FIRST: Row = (0, 0, b"k", b"v", [("h", b"1")])


@pytest.mark.parametrize(
    "other",
    [
        (1, 0, b"k", b"v", [("h", b"1")]),
        (0, 1, b"k", b"v", [("h", b"1")]),
        (0, 0, b"", b"v", [("h", b"1")]),
        (0, 0, None, b"v", [("h", b"1")]),
        (0, 0, b"v", b"k", [("h", b"1")]),
        (0, 0, b"kv", b"", [("h", b"1")]),
        (0, 0, b"k", None, [("h", b"1")]),
        (0, 0, b"k", b"v", [("h", b"")]),
        (0, 0, b"k", b"v", [("h", None)]),
        (0, 0, b"k", b"v", [("h1", b"")]),
        (0, 0, b"k", b"v", [("h", b"1"), None]),
        (0, 0, b"k", b"v", [None]),
        (0, 0, b"k", b"v", []),
        (0, 0, b"k", b"v", None),
    ],
)
@pytest.mark.parametrize("around", [0, 1, 9])
def test_every_column_and_every_null_counts(other: Row, around: int) -> None:
    rows = [FIRST] * around
    made = {digest(batch([*rows, row, *rows])) for row in (FIRST, other)}
    assert len(made) == 2


def test_what_lies_where_a_null_is_does_not_count() -> None:
    hidden = pa.py_buffer(b"\x05")
    ends = pa.py_buffer(np.array([0, 1, 3, 4], np.int32))
    data = pa.Array.from_buffers(pa.binary(), 3, [hidden, ends, pa.py_buffer(b"abbc")])
    items = pa.array([[("h", b"1"), ("h", b"2"), ("h", b"3"), None]], HEADERS_TYPE).flatten()
    headers = pa.Array.from_buffers(HEADERS_TYPE, 3, [hidden, ends], children=[items])
    numbers = pa.array([1, 2, 3])
    columns = [numbers, numbers.cast(RECORD_SCHEMA.field("timestamp").type), data, data, headers]
    rows: list[Row] = [
        (1, 1, b"a", b"a", [("h", b"1")]),
        (2, 2, None, None, None),
        (3, 3, b"c", b"c", [None]),
    ]
    made = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    assert digest(made) == digest(batch(rows)) == digest(made.slice(0, 2), made.slice(2))
