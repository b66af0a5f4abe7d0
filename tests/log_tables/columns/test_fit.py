"""Every row of the tables in docs/columns.md holds, for one value and for many."""

import json
import re
import sys

import pyarrow as pa
import pytest

from log_tables.columns.declaration import parse
from log_tables.columns.fit import fit
from log_tables.columns.typed_values import typed_values
from log_tables.limits import NESTED_FIELD_MAX_BYTES, VALUE_DEPTH_MAX, VALUE_ERROR_MAX_BYTES
from tests.kit.declared_json import nested
from tests.kit.support import ROOT

PAGE = (ROOT / "docs" / "columns.md").read_text()
IN_WORDS = {
    "an empty value": b"",
    "a byte order mark before it": b'\xef\xbb\xbf{"a": 2}',
    "bytes that are no UTF-8 in any text": b'{"a": 2, "b": "\xff"}',
    "arrays and objects 128 deep": b'{"a": 2, "b":' + nested(VALUE_DEPTH_MAX - 1) + b"}",
    "arrays and objects 129 deep": b'{"a": 2, "b":' + nested(VALUE_DEPTH_MAX) + b"}",
}
"""The values that the page only describes."""


def table(head: str) -> list[list[str]]:
    """The cells of the table of the page whose head begins so."""
    lines = PAGE[PAGE.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def told(cell: str) -> tuple[str, str | None]:
    """(What a column has, as text, and the error) by a cell such as `12`: …, or NULL, or does not fit: …"""
    if cell.startswith("does not fit: "):
        return "null", cell.removeprefix("does not fit: ")
    return ("null" if cell.startswith("NULL") else shown_in(cell)), None


def shown_in(cell: str) -> str:
    found = re.match("`(.*?)`", cell)
    assert found is not None, cell
    return found[1]


def text_of(item: pa.Scalar) -> str:
    """A value of a column as the page writes it."""
    if pa.types.is_timestamp(item.type) and item.is_valid:
        return f"{item.as_py():%Y-%m-%dT%H:%M:%S}" + f".{item.as_py():%f}".rstrip("0").rstrip(".") + "Z"
    if pa.types.is_date(item.type) and item.is_valid:
        return str(item.as_py())
    if pa.types.is_decimal(item.type) and item.is_valid:
        return str(item.as_py())
    if pa.types.is_binary(item.type) and item.is_valid:
        return f"X'{item.as_py().hex().upper()}'"
    return json.dumps(item.as_py(maps_as_pydicts="strict"), ensure_ascii=False, default=str)


def check(value: bytes, declared: str, cell: str) -> None:
    """The one column `declared` of `value` is what `cell` tells."""
    declaration = parse(declared)
    (item,), error = fit(value, declaration)
    made = pa.array([item], declaration.columns[0].type)
    assert (text_of(made[0]), error) == told(cell)
    found = typed_values(pa.array([value, b"{}", None, value], pa.binary()), declaration)
    assert found.column(0).to_pylist() == [error, None, None, error]
    assert found.column(1).equals(pa.array([item, None, None, item], made.type))


@pytest.mark.parametrize(("kind", "text", "cell"), table("type"))
def test_a_field_fits_its_type_as_the_page_says(kind: str, text: str, cell: str) -> None:
    kinds = ["string", "bigint", "array<string>"] if kind == "any" else [kind.strip("`")]
    for each in kinds:
        check(b'{"a": %s}' % shown_in(text).encode(), f"a {each}", cell)


@pytest.mark.parametrize(("value", "cell"), [row for row in table("value") if "tombstone" not in row[0]])
def test_a_value_has_its_columns_as_the_page_says(value: str, cell: str) -> None:
    check(IN_WORDS[value] if value in IN_WORDS else shown_in(value).encode(), "a bigint", cell)


@pytest.mark.parametrize(("pointer", "value", "cell"), table("pointer"))
def test_a_pointer_leads_where_the_page_says(pointer: str, value: str, cell: str) -> None:
    check(shown_in(value).encode(), f"x bigint FROM '{shown_in(pointer)}'", cell)


def test_an_error_names_the_declared_pointer_and_nothing_of_the_value() -> None:
    inner = b'{"secret": [{"more": "secret"}]}'
    for kind in ("map<string, array<bigint>>", "array<string>", "map<string, array<map<string, date>>>"):
        _, error = fit(b'{"a": %s}' % inner, parse(f"a {kind}"))
        assert error is not None
        assert "secret" not in error
        assert "more" not in error
        assert "/a" in error


def test_an_error_has_at_most_200_bytes_and_always_its_reason() -> None:
    name = "é" * 5_000
    declaration = parse(f"a array<timestamp> FROM '/{name}'")
    _, error = fit(json.dumps({name: ["x"]}).encode(), declaration)
    assert error is not None
    assert len(error.encode()) <= VALUE_ERROR_MAX_BYTES
    assert error.endswith("no time such as 2013-01-31T05:00:00Z")


def test_a_part_is_as_long_as_the_page_says() -> None:
    assert f"{NESTED_FIELD_MAX_BYTES:,}" in PAGE
    longest = json.dumps(["x" * (NESTED_FIELD_MAX_BYTES - 4)]).encode()
    longer = json.dumps(["x" * (NESTED_FIELD_MAX_BYTES - 3)]).encode()
    for declared, fits in (("a array<string>", "array"), ("a string FROM '/a/0'", "text")):
        for field, error in (
            (longest, None),
            (longer, f"{parse(declared).columns[0].pointer} has more than 1048576 bytes of items"),
        ):
            value = b'{"a":' + field + b"}"
            row, found = fit(value, parse(declared))
            assert found == error, fits
            assert (row[0] is None) == (error is not None)
            assert typed_values(pa.array([value], pa.binary()), parse(declared)).column(0)[0].as_py() == error


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("bigint", b"-7"),
        ("double", b"1"),
        ("string", b'"x"'),
        ("boolean", b"true"),
        ("binary", b'"YWI="'),
        ("array<bigint>", b"[1,null]"),
        ("struct<b: bigint, c: date>", b'{"b":1,"c":null}'),
        ("map<string, bigint>", b'{"k":1}'),
    ],
)
def test_the_items_of_a_long_array_are_read_at_once(kind: str, item: bytes) -> None:
    """Read one by one, an item took 3 µs, and a request of 16 MB half a minute."""
    value, declaration = b'{"a":[' + b",".join([item] * 20_000) + b"]}", parse(f"a array<{kind}>")
    fit(value, declaration)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        (found,), error = fit(value, declaration)
    finally:
        sys.setprofile(None)
    assert error is None
    assert isinstance(found, list)
    assert found == [b"ab" if kind == "binary" else json.loads(item)] * 20_000
    assert calls < 8 * len(found)  # to count what is in them; to read one takes twelve
