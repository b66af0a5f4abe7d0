"""Declarations of columns, and values that fit them, nearly fit them, or are no JSON at all."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Context, Decimal

import pyarrow as pa
from hypothesis import strategies as st

from log_tables.columns.column_type import array_of, leaf, map_of, struct_of
from log_tables.columns.declaration import Column, Declaration
from log_tables.limits import VALUE_DEPTH_MAX

LEAVES = ("string", "bigint", "double", "boolean", "date", "timestamp", "binary")
_EXACT = Context(prec=50)
NAMES = ("a", "b", "0", "1", "é", "a/b", "~", "", "A")

NUMBERS = (
    *("0", "-0", "-0.0", "1", "-7", "1.0", "1e2", "1E+2", "0.1", "1.5e-7", "01", "1.", "-", "+1", ".5"),
    *("9007199254740993", "9007199254740993.0", "9223372036854775807", "9223372036854775808", "1" * 25),
    *("-9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e400", "-1e400", "1e-400"),
    *("1" * 309, "1" * 310, "9" * 5_000, "NaN", "Infinity", "-Infinity", "1_000", "0x1"),
)
TIMES = (
    *("2013-01-31", "2013-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "1969-12-31", "2012-02-29"),
    *("2013-01-31T05:00:00Z", "2013-01-31T05:00:00", "2013-01-31 05:00", "2013-01-31t05:00:00z"),
    *(
        "2013-01-31T05:00:00+05:30",
        "2013-01-31T05:00:00-0530",
        "2013-01-31T05:00:00+05",
        "0001-01-01T00:00:00Z",
    ),
    *("2013-01-31T05:00:00.123Z", "2013-01-31T05:00:00.123456789Z", "2013-01-31T05:00:00.1234567890Z"),
    *("2013-01-31T23:59:60Z", "2013-01-31T24:00:00Z", "2013-01-31T05:00:00+19:00", "2013-01-31T05Z"),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00"),
    *(
        "2013-01-31T05:00:00.Z",
        "2013-01-31Z",
        "2013-1-31",
        "20130131",
        "2013-01-31T05:00:00Z\\n",
        "２013-01-31",
    ),
)
DECIMALS = (
    *(
        "0.5",
        "-0.50",
        "0.500",
        "12.345",
        "99.99",
        "-99.995",
        "100",
        "1E2",
        "1e-2",
        "120e-1",
        "-0e-7",
        "0e99999",
    ),
    *("9" * 38, "9" * 36 + ".99", "-" + "9" * 39, "0." + "9" * 38, "1" + "0" * 60 + "e-60", "1." + "0" * 60),
    *("1e999999999", "-1E-999999999", "1e9999999999999999999", "1e-9999999999999999999", "0e-9999999999999"),
    *(
        "0." + "0" * 40 + "1e41",
        "1e00000000000000000002",
        "+1",
        "1_0",
        " 1",
        "1 ",
        ".5",
        "1.",
        "00",
        "１",
        "1e",
        "1e+",
    ),
)
"""Numbers, and texts that Python, Arrow or Spark take for such."""
BASE64 = (
    "QQ==",
    "QR==",
    "QUI=",
    "QUJD",
    "QQ",
    "QQ=",
    "Q",
    "a-_b",
    "a+/b",
    "QQ==QQ==",
    "====",
    "QU I",
    "QUI=\\n",
)
TEXTS = (
    *("", "x", "12", "true", "é", "\\u00e9", "\\u0000", "😀", "\\ud83d\\ude00", "\\ud800", "\\udc00x"),
    *("\\ud800\\ud800", "\\x", "\\u12", '\\"', "\\\\", "\\\\\\", "[" * 9, '{\\"', "\t", "a\\/b", "x" * 300),
)

_leaf_texts = st.one_of(
    st.sampled_from(("null", "true", "false", "nul", "True")),
    st.sampled_from(NUMBERS),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-200, 200, places=2).map(str),
    st.sampled_from(DECIMALS),
    st.sampled_from([f'"{text}"' for text in (*TIMES, *TEXTS, *DECIMALS, *NUMBERS, *BASE64)]),
    st.datetimes().map(lambda time: f'"{time.isoformat()}"'),
    st.text(max_size=5).map(json.dumps),
)
_spaces = st.sampled_from(("", "", "", " ", "\n\t\r "))


def _written(items: list[str], marks: str, space: str) -> str:
    return marks[0] + space + f"{space},{space}".join(items) + space + marks[1]


_names = st.sampled_from([json.dumps(name) for name in NAMES] + ['"\\u0061"', '"\\ud800"', '"other"'])
json_texts = st.recursive(
    _leaf_texts,
    lambda inner: st.one_of(
        st.builds(_written, st.lists(inner, max_size=3), st.just("[]"), _spaces),
        st.builds(
            _written,
            st.lists(st.builds(lambda name, item: f"{name}:{item}", _names, inner), max_size=4),
            st.just("{}"),
            _spaces,
        ),
    ),
    max_leaves=8,
)
_objects = st.lists(
    st.builds(lambda name, item: f"{name}: {item}", _names, json_texts), min_size=1, max_size=6
).map(lambda items: _written(items, "{}", ""))


def _broken(text: bytes, at: int, inserted: bytes, removed: int) -> bytes:
    place = at % (len(text) + 1)
    return text[:place] + inserted + text[place + removed :]


_hostile = st.sampled_from(
    [b"", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b'"', b"\\", b"{", b"]", b",", b"[" * 130]
)
_deep = st.builds(
    lambda depth, mark: b'{"a":' * (depth if mark == b"{" else 1) + mark * depth + b"0",
    st.sampled_from((VALUE_DEPTH_MAX - 1, VALUE_DEPTH_MAX, 2_000)),
    st.sampled_from((b"[", b"{")),
)


def nested(depth: int) -> bytes:
    """An object in which arrays are nested, `depth` deep with itself."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


_hostile_values = st.one_of(
    _objects.map(str.encode),
    json_texts.map(str.encode),
    _deep,
    st.sampled_from((VALUE_DEPTH_MAX, VALUE_DEPTH_MAX + 1)).map(nested),
    st.binary(max_size=4),
)

decimal_types = st.sampled_from(
    [
        pa.decimal128(digits, scale)
        for digits in (1, 2, 4, 10, 18, 19, 37, 38)
        for scale in sorted({0, 1, 2, digits // 2, digits - 1, digits})
        if scale <= digits
    ]
)
column_types = st.recursive(
    st.sampled_from(LEAVES).map(leaf) | decimal_types,
    lambda inner: st.one_of(
        inner.map(array_of),
        inner.map(map_of),
        st.dictionaries(st.sampled_from([*NAMES[:4], "é", "größe"]), inner, min_size=1, max_size=3).map(
            lambda fields: struct_of({name: fields[name] for name in _apart(fields)})
        ),
    ),
    max_leaves=3,
)


def _apart(names: Iterable[str]) -> list[str]:
    """`names` without those that differ from others in case only."""
    return [*{name.lower(): name for name in names}.values()]


def _pointer(steps: list[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


_pointers = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(_pointer)
declarations = st.lists(st.tuples(column_types, _pointers), min_size=1, max_size=5).map(
    lambda pairs: Declaration(
        tuple(Column(f"column_{index}", kind, pointer) for index, (kind, pointer) in enumerate(pairs))
    )
)


_days = st.dates().map(date.isoformat)
_times = st.one_of(
    st.datetimes().map(datetime.isoformat),
    st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    st.sampled_from([text for text in TIMES if "T05:00:00" in text]),
)
_fitting_leaves = {
    leaf("string"): st.one_of(st.text(max_size=9).map(json.dumps), st.sampled_from(('"\\u00e9😀"', '""'))),
    leaf("bigint"): st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), st.sampled_from(("-0", "12"))),
    leaf("double"): st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(repr), st.sampled_from(NUMBERS[:11])
    ),
    leaf("boolean"): st.sampled_from(("true", "false")),
    leaf("date"): _days.map(json.dumps),
    leaf("timestamp"): _times.map(json.dumps),
    leaf("binary"): st.binary(max_size=6).map(lambda data: json.dumps(b64encode(data).decode())),
}


def _decimal_texts(kind: pa.DataType) -> st.SearchStrategy[str]:
    """Numbers of a decimal type, as numbers and as texts, some in another form than the usual one."""
    most = 10**kind.precision - 1
    numbers = st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-kind.scale, _EXACT))
    forms = st.sampled_from(("{}", '"{}"', "{}000", '"{:f}"', "{:e}", '"{:E}"', "{:f}"))
    return st.builds(_decimal_text, forms, numbers)


def _decimal_text(form: str, number: Decimal) -> str:
    text = form.format(number)
    can_grow = "." in text and "E" not in text
    return str(number) if form.endswith("000") and not can_grow else text


def _fitting(kind: pa.DataType) -> st.SearchStrategy[str]:
    """JSON that fits `kind`."""
    if pa.types.is_list(kind):
        return st.lists(_fitting_or_null(kind.value_type), max_size=3).map(
            lambda items: _written(items, "[]", " ")
        )
    if pa.types.is_map(kind):
        return _object_of(
            st.tuples(_names.filter(lambda name: "ud800" not in name), _fitting_or_null(kind.item_type))
        )
    if pa.types.is_struct(kind):
        fields = [
            st.tuples(st.just(json.dumps(field.name)), _fitting_or_null(field.type)) for field in kind.fields
        ]
        return _object_of(st.one_of(*fields, st.just(('"other"', "1e400"))))
    return _decimal_texts(kind) if pa.types.is_decimal(kind) else _fitting_leaves[kind]


def _fitting_or_null(kind: pa.DataType) -> st.SearchStrategy[str]:
    return st.one_of(_fitting(kind), _fitting(kind), st.just("null"))


def _object_of(pairs: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    return st.lists(pairs, max_size=4).map(_object_text)


def _object_text(pairs: Sequence[tuple[str, str]]) -> str:
    return _written([f"{name} :{item}" for name, item in pairs], "{}", "\n")


@st.composite
def _values_for(draw: st.DrawFn, declaration: Declaration) -> bytes | None:
    """A value with fields where the columns of `declaration` look for them."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.none() | _hostile_values)
    tree: dict[str, object] = {}
    for column in draw(st.permutations(declaration.columns)):
        text = draw(_fitting_or_null(column.type) if draw(st.integers(0, 7)) else json_texts)
        node = tree
        for step in column.steps[:-1]:
            inner = node.get(step)
            node[step] = inner if isinstance(inner, dict) else {}
            node = node[step]  # type: ignore[assignment]
        node[column.steps[-1]] = text
    text = _drawn(draw, tree, root=True).encode()
    if draw(st.integers(0, 7)) == 0:
        text = _broken(text, draw(st.integers(0, 10_000)), draw(_hostile), draw(st.integers(0, 2)))
    return text


def _drawn(draw: st.DrawFn, node: object, root: bool = False) -> str:
    if isinstance(node, str):
        return node
    assert isinstance(node, dict)
    items = [(name, _drawn(draw, item)) for name, item in node.items()]
    if not root and {*node} <= {"0", "1"} and draw(st.booleans()):
        texts = dict(items)
        return _written([texts.get(name, "null") for name in ("0", "1")], "[]", " ")
    pairs = [(json.dumps(name), item) for name, item in items]
    if draw(st.integers(0, 3)) == 0:
        pairs.insert(0, (pairs[-1][0], draw(json_texts)))
    return _object_text([*pairs, ('"other"', "{}")])


declared_values = declarations.flatmap(
    lambda declaration: st.tuples(st.just(declaration), st.lists(_values_for(declaration), max_size=5))
)
"""A declaration, and values of records: most fit it, some not quite."""
