"""JSON values become typed columns, whatever is among them."""

from collections.abc import Callable
from itertools import product

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.declaration import NOTHING
from log_tables.columns.inference import inferred
from log_tables.columns.typed_values import typed_values
from log_tables.limits import MIB, SQL_JSON_DEPTH_MAX
from log_tables.sql.json_columns import field_lines, typed_columns, typed_lines


def typed(*chunks: list[bytes | None]) -> tuple[dict[str, str], list[dict[str, object]], list[bool]]:
    """(The type of each column, the rows, which are objects) of values in chunks."""
    table, objects = typed_columns(pa.chunked_array(list(chunks), pa.binary()))
    types = {field.name: str(field.type) for field in table.schema}
    return types, table.to_pylist(), objects.to_pylist()


@pytest.mark.parametrize(
    ("values", "kind", "column"),
    [
        ([b'{"a":1}', b'{"a":2}'], "int64", [1, 2]),
        ([b'{"a":1}', b'{"a":2.5}'], "double", [1.0, 2.5]),
        ([b'{"a":true}', b'{"a":null}', b"{}"], "bool", [True, None, None]),
        ([b'{"a":"x"}', b'{"a":"2024-01-01T00:00:00Z"}'], "string", ["x", "2024-01-01T00:00:00Z"]),
        ([b'{"a":{"b":1}}', b'{"a":{"c":"x"}}'], "struct<b: int64, c: string>", None),
        ([b'{"a":[1]}', b'{"a":[]}'], "list<item: int64>", [[1], []]),
        ([b'{"a":[null,null]}', b'{"a":["x","y"]}'], "list<item: string>", [[None, None], ["x", "y"]]),
        ([b'{"a":[null,1.5]}', b'{"a":[2]}'], "list<item: double>", [[None, 1.5], [2.0]]),
        ([b'{"a":[[null,null]]}', b'{"a":[]}'], "list<item: list<item: string>>", [[[None, None]], []]),
        ([b'{"a":1}', b'{"a":"x"}'], "string", ["1", "x"]),
        ([b'{"a":[1,"x"]}', b'{"a":2}', b'{"a":true}'], "string", ['[1,"x"]', "2", "true"]),
        ([b'{"a":{"b":1}}', b'{"a":{"b":"x"}}'], "string", ['{"b":1}', '{"b":"x"}']),
        ([b'{"a":1,"a":2}'], "int64", [2]),
        ([b'{\n"a":\r\n1}', b' {"a":2} '], "int64", [1, 2]),
        ([b'{"a":18446744073709551615}'], "double", [1.8446744073709552e19]),
        ([b'{"a":"' + b"x" * 3 * MIB + b'"}', b'{"a":"\xc3\xbc"}'], "string", ["x" * 3 * MIB, "ü"]),
    ],
)
def test_a_field_has_the_type_that_holds_all_of_its_values(
    values: list[bytes | None], kind: str, column: list[object] | None
) -> None:
    for chunks in ([values], [[value] for value in values], [[], *([value] for value in values)]):
        types, rows, objects = typed(*chunks)
        assert types == {"a": kind}
        assert objects == [True] * len(values)
        if column is not None:
            assert [row["a"] for row in rows] == column


TIMES = [
    "2013-01-31T05:00:00+05:30",
    "2013-01-31T05:00:00Z",
    "2013-01-31T05:00:00",
    "2013-01-31 05:00:00.25-0530",
    "2013-01-31t05:00+05",
    "2013-01-31T05:00:00.123456789Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
]
DATES = ["2013-01-31", "0001-01-01", "9999-12-31"]
NONE = ["", "x", "2013-01-31T05", "2013-02-30", "2013-01-31T05:00:00+19:00", "0001-01-01T00:00:00+01:00"]


@given(
    st.sampled_from([TIMES, TIMES[:2], DATES, TIMES + DATES, TIMES + NONE, DATES + NONE]).flatmap(
        lambda texts: st.lists(st.none() | st.sampled_from(texts), min_size=1, max_size=6)
    ),
    st.sampled_from([lambda text: text, lambda text: [text], lambda text: {"b": {"c": [text]}}]),
    st.integers(0, 6),
)
def test_a_time_is_that_of_the_declared_column(
    texts: list[str | None], inside: Callable[[str | None], object], cut: int
) -> None:
    values = [msgspec.json.encode({"a": inside(text), "b": [], "c": None}) for text in texts]
    found, _ = typed_columns(pa.chunked_array([values[:cut], values[cut:]], pa.binary()))
    declaration = inferred(values, NOTHING)
    if declaration.columns:  # what is null everywhere has no column
        declared = typed_values(pa.array(values, pa.binary()), declaration).column("a")
        assert [row["a"] for row in found.to_pylist()] == declared.to_pylist()
        assert str(found.schema.field("a").type).replace("item:", "element:") == str(declared.type)


def test_many_times_are_times_beside_fields_of_several_kinds() -> None:
    values: list[bytes | None] = [
        b'{"a":"2013-01-31T05:00:00+05:30","b":%s,"c":"x%d"}' % (b'"t"' if number % 2 else b"1", number)
        for number in range(50_000)
    ]
    types, rows, objects = typed(values, [b'{"a":"2013-01-31T05:00:00Z"}'])
    assert all(objects)
    assert types == {"a": "timestamp[us, tz=UTC]", "b": "string", "c": "string"}
    assert {str(row["a"]) for row in rows[:-1]} == {"2013-01-30 23:30:00+00:00"}
    assert typed(values, [b'{"a":"later"}'])[0]["a"] == "string"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x",
        b"1",
        b"[{}]",
        b"null",
        b'{"a":1',
        b'{"a":1}{"a":2}',
        b'{"a":1}\n{"a":2}',
        b'{"a":1} x',
        b"\xff",
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":1e400}',
        b'{"a":' + b"[" * SQL_JSON_DEPTH_MAX + b"]" * SQL_JSON_DEPTH_MAX + b"}",
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    ],
)
def test_what_is_no_object_gives_nulls_and_disturbs_no_other(value: bytes | None) -> None:
    types, rows, objects = typed([b'{"a":1}', value], [value, b'{"a":2}'])
    assert types == {"a": "int64"}
    assert [row["a"] for row in rows] == [1, None, None, 2]
    assert objects == [True, False, False, True]


def test_an_object_does_not_go_on_in_the_next_value() -> None:
    """Three values that are three objects, when they are read as one text: the values are none."""
    types, rows, objects = typed([b'{"a":', b'{"b":1}}', b'{"x":1}{"y":2}', b'{"a":2}'])
    assert (types, objects) == ({"a": "int64"}, [False, False, False, True])
    assert [row["a"] for row in rows] == [None, None, None, 2]


def test_no_values_and_no_fields_are_no_columns() -> None:
    assert typed() == ({}, [], [])
    assert typed([]) == ({}, [], [])
    table, objects = typed_columns(pa.chunked_array([[b"{}", None]], pa.binary()))
    assert (table.num_rows, table.num_columns, objects.to_pylist()) == (2, 0, [True, False])


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.none() | st.binary(max_size=4) | json.map(msgspec.json.encode), max_size=6))
def test_there_is_a_row_for_every_value(values: list[bytes | None]) -> None:
    table, objects = typed_columns(pa.chunked_array([values[:2], values[2:]], pa.binary()))
    table.validate(full=True)
    assert len(objects) == len(values)
    assert table.num_columns == 0 or table.num_rows == len(values)
    for value, is_object in zip(values, objects.to_pylist(), strict=True):
        try:
            decoded = msgspec.json.decode(value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            decoded = None
        assert is_object == isinstance(decoded, dict)


def test_no_value_moves_to_another() -> None:
    """Pyarrow's reader loses nulls before the first item of a list, and what is behind them moves."""
    items: list[object] = [[None, None], ["x", "y"], [], [None, "z"], None, [None]]
    for shape in (lambda item: item, lambda item: [item], lambda item: {"b": [{"c": item}]}):
        for first, second, third in product(items, items, items):
            wanted = [shape(first), shape(second), shape(third)]
            _, rows, _ = typed([msgspec.json.encode({"a": each, "z": 1}) for each in wanted])
            assert [row["a"] for row in rows] == wanted


def deep(name: str) -> bytes:
    return b'{"a":1,"%s":%s}' % (name.encode(), b"[" * SQL_JSON_DEPTH_MAX + b"]" * SQL_JSON_DEPTH_MAX)


ODD = [
    None,
    b"",
    b"x",
    b"[{}]",
    b'{"a":1',
    b'{"a":1}{"a":2}',
    b'{"a":1} x',
    b'{"b":"\xff","a":1}',
    b'{"b":"\\ud800","a":1}',
    deep("a"),
    deep("b"),
    b'{"a":[1,\n2],\n"b":{"c":\r\n1}}',
    b' {"a":"x","a":2} ',
    b'{"a":{"c":"x"},"b":[true]}',
    b'{"\\u0061":7}',
    b'{"a":1e400}',
]
"""Values that are no objects, or not as most are."""


@given(
    st.lists(
        st.sampled_from(ODD)
        | st.dictionaries(st.sampled_from("abc"), json, max_size=3).map(msgspec.json.encode),
        max_size=6,
    )
)
def test_a_field_alone_is_what_it_is_among_all(values: list[bytes | None]) -> None:
    chunk = pa.array(values, pa.binary())
    whole, _ = typed_columns(pa.chunked_array([chunk]))
    for names in ("a", "ab", "bc"):
        found, _ = typed_lines(pa.chunked_array([field_lines(chunk, set(names))], pa.binary()))
        assert set(found.schema.names) == set(names) & set(whole.schema.names)
        for name in found.schema.names:
            assert found.column(name).type == whole.column(name).type
            assert found.column(name).to_pylist() == whole.column(name).to_pylist()


@pytest.mark.parametrize("sliced", [0, 1, 3])
def test_fields_of_a_slice_are_those_of_its_values(sliced: int) -> None:
    chunk = pa.array([b'{"a":0}', b'{"a":[[1],\n2]}', None, b'{"a":3,"b":1}'], pa.binary())[sliced:]
    lines = [
        None if line is None else msgspec.json.decode(line) for line in field_lines(chunk, {"a"}).to_pylist()
    ]
    assert lines == [{"a": 0}, {"a": [[1], 2]}, None, {"a": 3}][sliced:]
