"""Values that do not fit, against the plain rules, value by value."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from log_tables.columns.declaration import parse
from log_tables.columns.fit import fit
from log_tables.columns.misfit import misfits
from log_tables.limits import JUDGED_AT_ONCE_BYTES, JUDGED_NESTED_MAX_BYTES, VALUE_DEPTH_MAX
from log_tables.record import input_batch_from_columns
from log_tables.rows import Rows

DECLARATIONS = [
    "s string, i bigint, d double, b boolean, t timestamp, day date",
    "i bigint, inner_i bigint FROM '/o/i', inner_s string FROM '/o/s'",
    "a array<bigint>, m map<string, double>, o struct<i: bigint, t: timestamp, a: array<string>>",
    "o string, i bigint FROM '/o/i', first bigint FROM '/a/0'",
    "i bigint, also bigint FROM '/i', text string FROM '/i'",
]
TIMES = [
    "2013-01-31",
    "2012-02-29",
    "2013-02-29",
    "2013-02-30",
    "0001-01-01",
    "0000-01-01",
    "2013-1-31",
    "20130131",
    "2013-01-31\n",
    " 2013-01-31",
    "2013-01-31Z",
    "9999-12-31",
    "2013-01-31T05:00:00Z",
    "2013-01-31T05:00:00Z\n",
    "2013-01-31 05:00:00",
    "2013-01-31t05:00",
    "2013-01-31T24:00:00Z",
    "2013-01-31T23:59:60Z",
    "2013-01-31T05:00:00.123456789+05:45",
    "2013-01-31T05:00:00.1234567890Z",
    "2013-01-31T05:00:00+18:01",
    "2013-01-31T05:00:00-1900",
    "9999-12-31T23:59:59-17:00",
    "0001-01-01T00:00:00+17:00",
    "٢٠١٣-٠١-٣١",
]
NUMBERS = ["1.0", "-0", "1e2", "1e400", str(2**63 - 1), str(2**63), str(-(2**63) - 1), "9" * 400, "NaN", "01"]

DEEPEST = b'{"x": %b}' % (b"[" * (VALUE_DEPTH_MAX - 1) + b"]" * (VALUE_DEPTH_MAX - 1))
TOO_DEEP = b'{"x": %b}' % (b"[" * VALUE_DEPTH_MAX + b"]" * VALUE_DEPTH_MAX)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(TIMES)
)
items = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("itax"), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["s", "i", "d", "b", "t", "day", "a", "m", "o", "x"])
objects = st.dictionaries(names, items, max_size=5).map(lambda found: json.dumps(found).encode())
numbers = st.tuples(names, st.sampled_from(NUMBERS)).map(lambda pair: f'{{"{pair[0]}": {pair[1]}}}'.encode())
twice = st.tuples(names, items, items).map(
    lambda each: f'{{"{each[0]}": {json.dumps(each[1])}, "{each[0]}": {json.dumps(each[2])}}}'.encode()
)
values = (
    st.none() | objects | numbers | twice | st.binary(max_size=20) | items.map(json.dumps).map(str.encode)
)


@settings(max_examples=200)
@given(st.sampled_from(DECLARATIONS), st.lists(values, min_size=1, max_size=8))
@example(DECLARATIONS[0], [b'{"x": "\xff"}'])
@example(DECLARATIONS[0], [b'{"x": %b}' % (b"[" * VALUE_DEPTH_MAX + b"]" * VALUE_DEPTH_MAX)])
@example(DECLARATIONS[0], [b'{"x": %b}' % (b"[" * 100_000)])
@example(DECLARATIONS[0], [b"{} ", b'{"x": "\xc3', b'\xa9"}'])
@example(DECLARATIONS[0], [b'{"x": "\xc3"}', b'{"s": "\xa9"}'])
@example(DECLARATIONS[0], [b"{}"] * VALUE_DEPTH_MAX + [DEEPEST])
@example(DECLARATIONS[0], [DEEPEST, b"{}", None])
@example(DECLARATIONS[0], [b"{}"] * 3 + [TOO_DEEP])
@example(DECLARATIONS[0], [b'{"s": "\\ud800"}'])
@example(DECLARATIONS[0], [b"null"])
@example(DECLARATIONS[0], [b""])
@example(DECLARATIONS[0], [b'{"i": 1} x'])
def test_it_is_the_first_that_does_not_fit(text: str, given_values: list[bytes | None]) -> None:
    declaration = parse(text)
    reasons = [None if value is None else fit(value, declaration)[1] for value in given_values]
    expected = next(((place, why) for place, why in enumerate(reasons) if why is not None), None)
    batch = input_batch_from_columns(pa.array(given_values, pa.binary()), now_us=0)
    for records in (Rows(given_values, 0), batch, batch.slice(0)):
        found = next(misfits(records, declaration), None)
        assert (found and (found.place, found.reason)) == expected


@pytest.mark.parametrize("name", ["t", "day"])
@pytest.mark.parametrize("time", TIMES)
def test_times_are_judged_as_the_plain_rules_say(time: str, name: str) -> None:
    declaration, value = parse(DECLARATIONS[0]), json.dumps({name: time}).encode()
    found = next(misfits(Rows([value], 0), declaration), None)
    assert (found and found.reason) == fit(value, declaration)[1]


@pytest.mark.parametrize("last", ["1", "1.5"])
def test_a_long_value_with_many_items_is_judged_by_the_plain_rules(last: str) -> None:
    value = b'{"a": [%b%b]}' % (b" " * JUDGED_NESTED_MAX_BYTES, last.encode())
    found = next(misfits(Rows([value], 0), parse(DECLARATIONS[2])), None)
    assert (found and found.reason) == fit(value, parse(DECLARATIONS[2]))[1]


def test_the_place_counts_on_where_a_batch_is_read_in_parts() -> None:
    large: list[bytes | None] = [b'{"s": "%b"}' % (b"x" * (JUDGED_AT_ONCE_BYTES // 3))] * 7
    batch = input_batch_from_columns(pa.array([*large, None, b'{"s": 1}', b"{"], pa.binary()), now_us=0)
    found = next(misfits(batch, parse("s string")), None)
    assert found is not None
    assert (found.place, found.path) == (8, "/s")


@pytest.mark.parametrize(
    ("declared", "value", "path"),
    [
        ("n bigint", {"n": "x"}, "/n"),
        ("n bigint FROM '/a/b'", {"a": {"b": "x"}}, "/a/b"),
        ("n bigint FROM '/n', m bigint FROM '/n is'", {"n is": "x"}, "/n is"),
        ("n array<bigint>", {"n": [1, "x"]}, "/n"),
        ("n bigint", 7, ""),
    ],
)
def test_the_path_is_the_pointer_of_the_column(declared: str, value: Any, path: str) -> None:
    found = next(misfits(Rows([json.dumps(value).encode()], 0), parse(declared)), None)
    assert found is not None
    assert found.path == path


def test_no_value_is_in_a_reason() -> None:
    found = next(misfits(Rows([b'{"n": "secret"}'], 0), parse("n bigint")), None)
    assert found is not None
    assert "secret" not in found.reason
