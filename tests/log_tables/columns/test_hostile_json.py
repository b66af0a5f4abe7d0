"""Values that are made to hurt get the columns that any reading gives them, within bounded memory."""

import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pytest

from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.fit import fit
from log_tables.columns.json_depth import too_deep
from log_tables.columns.misfit import misfits
from log_tables.columns.typed_values import typed_values
from log_tables.limits import KIB, MIB, NESTED_FIELD_MAX_BYTES, TYPED_AT_ONCE_BYTES, VALUE_DEPTH_MAX
from log_tables.rows import Rows
from tests.kit.declared_json import nested

LONG = 2 * MIB
TOO_DEEP = f"the value is nested more than {VALUE_DEPTH_MAX} deep"
NO_JSON, NO_UTF8 = "the value is not JSON", "the value is not UTF-8"
FIELDS = b",".join(b'"f%d":%d' % (number, number) for number in range(10_000))
WIDE = ", ".join(f"f{number} bigint, g{number} bigint FROM '/a/f{number}'" for number in range(128))

CASES = {
    "arrays": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", TOO_DEEP),
    "objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, TOO_DEEP),
    "objects that do not end": (b'{"a":' * 100_000, TOO_DEEP),
    "brackets in a text": (b'{"b":"' + b"[{" * LONG + b'"}', None),
    "brackets after escaped quotes": (b'{"b":"' + b'[\\"' * LONG + b'"}', None),
    "backslashes": (b'{"b":"' + b"\\\\" * LONG + b'"}', None),
    "backslashes that do not end": (b'{"b":"' + b"\\" * LONG, NO_JSON),
    "quotes": (b"{" + b'"' * LONG, NO_JSON),
    "a long text": (b'{"b":"' + b"x" * 10_000_000 + b'"}', None),
    "a long name": (b'{"' + b"x" * LONG + b'":1}', None),
    "spaces": (b" " * LONG, NO_JSON),
    "10,000 fields": (b"{" + FIELDS + b"}", None),
    "10,000 fields in a field": (b'{"a":{' + FIELDS + b"}}", None),
    "one name again and again": (b"{" + b'"a":{"f1":"x"},' * 100_000 + b'"a":{"f1":1}}', None),
    "lone surrogates": (b'{"b":"' + b"\\ud800" * 100_000 + b'"}', NO_JSON),
    "broken UTF-8": (b'{"b":"' + b"\xc3\xa9" * LONG + b'\xc3"}', NO_UTF8),
    "10,000 digits of a field that nobody declared": (b'{"b":' + b"9" * 10_000 + b"}", None),
}


def at_depth(frames: int, values: pa.Array, declaration: Declaration) -> pa.RecordBatch:
    """The columns, made so many frames deeper in Python's stack."""
    return at_depth(frames - 1, values, declaration) if frames else typed_values(values, declaration)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("declared", ["x bigint FROM '/a/f1'", "x bigint FROM '/a/f1/0/g', y string", WIDE])
def test_a_hostile_value_is_judged_as_any_other(case: str, declared: str) -> None:
    (value, error), declaration = CASES[case], parse(declared)
    row, found = fit(value, declaration)
    assert found == error
    batch = typed_values(pa.array([b"{}", value, b"{}"], pa.binary()), declaration)
    assert [item[0].as_py() for item in batch.columns] == [None] * batch.num_columns
    assert [item[1].as_py() for item in batch.columns] == [error, *row]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("bigint", "/a is a number beyond bigint"),
        ("double", "/a is a number beyond double"),
        ("decimal(38,2)", "/a is a number beyond decimal(38,2)"),
        ("string", "/a is a whole number, not string"),
        ("array<bigint>", "/a is a whole number, not array"),
    ],
)
@pytest.mark.parametrize("digits", [400, 5_000, LONG])
def test_a_number_of_many_digits_is_judged_by_its_type(kind: str, error: str, digits: int) -> None:
    value, declaration = b'{"a":' + b"9" * digits + b"}", parse(f"a {kind}")
    assert fit(value, declaration) == ([None], error)
    assert typed_values(pa.array([value, b"{}"]), declaration).column(0).to_pylist() == [error, None]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"1e999999999", "/a is a number beyond decimal(10,2)"),
        (b"-1E-999999999", "/a has more than 2 digits after the point, not decimal(10,2)"),
        (b"1e" + b"9" * LONG, "/a is a number beyond decimal(10,2)"),
        (b"1e-" + b"9" * LONG, "/a has more than 2 digits after the point, not decimal(10,2)"),
        (b"0." + b"0" * LONG + b"1", "/a has more than 2 digits after the point, not decimal(10,2)"),
        (b"0e" + b"9" * LONG, None),
        (b"1." + b"0" * LONG, None),
        (b"1" + b"0" * LONG + b"e-%d" % LONG, None),
    ],
)
@pytest.mark.parametrize("form", [b'{"a":%b}', b'{"a":"%b"}', b'{"a":"\\u0031","a":"%b"}'])
def test_a_decimal_of_any_exponent_is_counted_and_not_computed(
    form: bytes, text: bytes, error: str | None
) -> None:
    """Arrow ends its process where it casts 1E-999999999 to a decimal."""
    declaration, value = parse("a decimal(10,2)"), form % text
    assert fit(value, declaration) == ([None if error else Decimal(text[:1].decode())], error)
    assert typed_values(pa.array([value, b"{}"]), declaration).column(0).to_pylist() == [error, None]
    assert [found.reason for found in misfits(Rows([value], 0), declaration)] == ([error] if error else [])


def test_the_stack_of_the_caller_decides_nothing() -> None:
    declaration = parse("b bigint, x bigint FROM '" + "/a" * VALUE_DEPTH_MAX + "'")
    deep = b'{"a":' * VALUE_DEPTH_MAX + b"7" + b"}" * VALUE_DEPTH_MAX
    values = pa.array([nested(VALUE_DEPTH_MAX), deep, nested(VALUE_DEPTH_MAX + 1), b'{"a":' + deep + b"}"])
    for frames in (0, 300):
        found = at_depth(frames, values, declaration)
        assert found.column("value_error").to_pylist() == [None, None, TOO_DEEP, TOO_DEEP]
        assert found.column("x").to_pylist() == [None, 7, None, None]


@pytest.mark.parametrize("before", [0, 1, 64 * KIB - 9, 64 * KIB - 1, 64 * KIB, 130 * KIB])
@pytest.mark.parametrize("text", [b"", b"\\", b'\\"', b'\\\\\\"[', b"[" * 200])
def test_brackets_are_counted_outside_of_texts_wherever_they_are(before: int, text: bytes) -> None:
    escaped = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    for deep in (VALUE_DEPTH_MAX, VALUE_DEPTH_MAX + 1):
        value = b'["' + b"x" * before + escaped + b'",' + b"[" * (deep - 1) + b"]" * deep
        assert too_deep(value) == (deep > VALUE_DEPTH_MAX)


@pytest.mark.parametrize("kind", ["array<struct<b: bigint>>", "map<string, bigint>", "struct<b: bigint>"])
def test_a_long_part_takes_no_memory(kind: str) -> None:
    item = b"[" + b"{}," * NESTED_FIELD_MAX_BYTES + b"{}]"
    value = b'{"a":' + (item if kind.startswith("array") else b'{"b":' + item + b"}") + b"}"
    values, declaration = pa.array([value]), parse(f"a {kind}")
    assert len(value) > TYPED_AT_ONCE_BYTES
    tracemalloc.start()
    try:
        found = typed_values(values, declaration)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(value)
    finally:
        tracemalloc.stop()
    assert found.column(0)[0].as_py() == "/a has more than 1048576 bytes of items"
