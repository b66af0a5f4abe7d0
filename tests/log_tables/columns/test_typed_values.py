"""Columns of many values are those of each value, and those are what a plain reading says."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.fit import fit
from log_tables.columns.typed_values import typed_values
from log_tables.layout import VALUE_ERROR
from log_tables.limits import VALUE_DEPTH_MAX, VALUE_ERROR_MAX_BYTES
from tests.kit.declared_json import declared_values, nested
from tests.kit.plain_json import plain_fit

Declared = tuple[Declaration, list[bytes | None]]


def by_fit(values: list[bytes | None], declaration: Declaration) -> pa.RecordBatch:
    """The columns that `fit` makes of `values`, one by one."""
    nulls = [None] * len(declaration.columns), None
    rows = [nulls if value is None else fit(value, declaration) for value in values]
    arrays = [
        pa.array([row[index] for row, _ in rows], column.type)
        for index, column in enumerate(declaration.columns)
    ]
    errors = pa.array([error for _, error in rows], pa.string())
    return pa.RecordBatch.from_arrays([errors, *arrays], schema=declaration.schema)


@given(declared_values, st.integers(0, 3), st.integers(1, 5), st.integers(1, 300))
def test_many_values_have_the_columns_of_each(
    declared: Declared, skipped: int, at_once: int, at_once_bytes: int
) -> None:
    declaration, values = declared
    array = pa.array([*[b"{" * 9] * skipped, *values, b"[" * 500], pa.binary()).slice(skipped, len(values))
    found = typed_values(array, declaration, at_once, at_once_bytes)
    found.validate(full=True)
    assert found.to_pylist() == by_fit(values, declaration).to_pylist()
    assert typed_values(array, declaration).equals(found)


@given(declared_values)
def test_a_value_has_what_a_plain_reading_says(declared: Declared) -> None:
    declaration, values = declared
    for value in values:
        if value is None:
            continue
        row, error = fit(value, declaration)
        expected = plain_fit(value, declaration)
        assert (error is None) == (expected is not None)
        assert error is None or len(error.encode()) <= VALUE_ERROR_MAX_BYTES
        for column, item, plain in zip(declaration.columns, row, expected or [None] * len(row), strict=True):
            made, wanted = (pa.array([each], column.type) for each in (item, plain))
            assert made.equals(wanted), (column, value)


@given(declared_values, st.integers(0, 4))
def test_the_order_of_columns_changes_nothing(declared: Declared, turned: int) -> None:
    declaration, values = declared
    columns = declaration.columns[::-1]
    other = Declaration((*columns[turned:], *columns[:turned]))
    array = pa.array(values, pa.binary())
    assert other.id == declaration.id
    found = typed_values(array, other).select(declaration.schema.names)
    assert found.equals(typed_values(array, declaration))


@pytest.mark.parametrize("rows", [1, 2, 200])
def test_the_depth_is_counted_beside_flat_values(rows: int) -> None:
    declaration = parse("b bigint")
    for deeper in (0, 1):
        values = [b'{"b":1}'] * rows
        values[rows // 2] = nested(VALUE_DEPTH_MAX + deeper)
        found = typed_values(pa.array(values, pa.binary()), declaration)
        assert found.column(VALUE_ERROR).null_count == rows - deeper


def test_no_values_have_no_rows() -> None:
    declaration = parse("a string, b array<bigint>")
    found = typed_values(pa.array([], pa.binary()), declaration)
    assert found.num_rows == 0
    assert found.schema == declaration.schema


def test_bytes_where_a_null_is_are_no_value() -> None:
    data = pa.array([b'{"a":1}', b'{"a":"' + b"[" * 2_000_000 + b'"}', b'{"a":2}'], pa.binary())
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), *data.buffers()[1:]])
    assert typed_values(hidden, parse("a bigint")).to_pylist() == [
        {"value_error": None, "a": 1},
        {"value_error": None, "a": None},
        {"value_error": None, "a": 2},
    ]


@pytest.mark.parametrize("text", ["{%s: 5}", '{"other": 1, %s: 5}'])
@pytest.mark.parametrize("escaped", [False, True])
def test_fields_of_structs_have_names_of_any_script(text: str, escaped: bool) -> None:
    """The decoder of JSON knew no name of such characters of which nobody had asked for the bytes."""
    inner = text % json.dumps("größe", ensure_ascii=escaped)
    value = f'{{"a": {inner}, "b": [{inner}]}}'.encode()
    declaration = parse("a struct<größe: bigint>, b array<struct<größe: bigint>>")
    assert fit(value, declaration) == ([{"größe": 5}, [{"größe": 5}]], None)
    [made] = typed_values(pa.array([value], pa.binary()), declaration).to_pylist()
    assert made == {"value_error": None, "a": {"größe": 5}, "b": [{"größe": 5}]}
