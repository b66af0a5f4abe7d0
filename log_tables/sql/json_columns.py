"""JSON objects as typed columns, whose types are inferred over all rows.

pyarrow reads lines of JSON, fast, and refuses all of them for one that it does not like. Lines that it
refuses are read row by row and written again in the form that it takes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from log_tables.clock import SystemClock
from log_tables.columns.typed_array import with_times
from log_tables.limits import MIB, SQL_JSON_DEPTH_MAX
from log_tables.record import binary_array

_BLOCK_BYTES = MIB
_NUMBER_BYTES = 64
"""More than the field of `_numbered` takes."""

_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    dict: "object",
    list: "array",
}

_Row = dict[str, object] | None


def typed_columns(values: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray]:
    """(A column for each field of the JSON objects in `values`, which of them are objects); a row a value.

    `values` are binary. Whole numbers become int64, others double, text string, objects struct, arrays list.
    Text that is all dates becomes date32, text that is all times a timestamp in UTC, as in declared columns.
    A field that has several kinds becomes string: text as it is, anything else as JSON. A value gives nulls
    when it is null, no JSON object, or deeper than SQL_JSON_DEPTH_MAX.
    """
    return typed_lines(pa.chunked_array([object_lines(chunk) for chunk in values.chunks], pa.binary()))


def typed_lines(lines: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray]:
    """`typed_columns` of lines that `object_lines` or `field_lines` made."""
    table = _read(lines)
    if table is None:
        rows = [_decode(line) for line in lines.to_pylist()]
        fields = _fields_of(rows)
        lines = _with_text(rows, {name for name, kind in fields.items() if kind is None})
        types = {name: pa.string() if kind is None else kind for name, kind in fields.items()}
        table = _read(lines, [pa.field(name, kind) for name, kind in types.items()])
        assert table is not None, "each field has its type, or is text"
    return _with_times(table, lines), lines.is_valid()


def _with_times(table: pa.Table, lines: pa.ChunkedArray) -> pa.Table:
    """The lines as `table`, with dates and times as declared columns have them.

    pyarrow drops the zone of what it takes for times, so these fields are read once more, as texts. Items
    that are all null are texts, too.
    """
    kinds = {field.name: _with_texts(field.type) for field in table.schema}
    texts = [pa.field(name, kind) for name, kind in kinds.items() if kind != table.schema.field(name).type]
    again = _read(lines, texts) if texts else table
    assert again is not None, "what is a time is a text"
    columns = {name: (again if name in again.schema.names else table)[name] for name in kinds}
    arrays = [
        pa.chunked_array(with_times(data.chunks)) if data.num_chunks else data for data in columns.values()
    ]
    return pa.Table.from_arrays(arrays, [*columns]) if columns else table


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """`kind`, with texts where it has times, and for items that are all null."""
    if pa.types.is_list(kind):
        return _list_of(_with_texts(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind.fields])
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _list_of(items: pa.DataType) -> pa.DataType:
    return pa.list_(pa.string() if pa.types.is_null(items) else items)


def field_lines(values: pa.Array, names: Collection[str]) -> pa.Array:
    """Each JSON object as a line that has only those of its fields that `names` names; null for no object.

    Other fields are not decoded, so a number there may be larger than a double. Raises
    ValueError for names that cannot be looked for: those with quotes, backslashes or control characters.
    """
    decode = _decoder(tuple(sorted(names))).decode
    items, utf8 = values.to_pylist(), _is_utf8(values)
    if utf8 and not _may_be_deep(values):
        try:
            lines = binary_array([*map(_encoder.encode, map(decode, items))])
        except (msgspec.MsgspecError, RecursionError, TypeError):
            pass  # one of them is no object
        else:
            if not _has_line_ends(lines):
                return lines
    return binary_array([_fields(value, names, decode if utf8 else _decode) for value in items])


def _fields(value: bytes | None, names: Collection[str], decode: Callable[[bytes], object]) -> bytes | None:
    """The line of one value; `decode` finds out whether it is an object."""
    if value is None:
        return None
    try:
        line = _encoder.encode(decode(value))
    except (msgspec.MsgspecError, RecursionError):
        return None
    brackets = value.count(b"{") + value.count(b"[")
    if decode is not _decode and brackets <= SQL_JSON_DEPTH_MAX and b"\n" not in line and b"\r" not in line:
        return line
    row = _decode(value)
    return None if row is None else _encode({name: row[name] for name in row if name in names})


_encoder = msgspec.json.Encoder()


@lru_cache(maxsize=16)
def _decoder(names: tuple[str, ...]) -> "msgspec.json.Decoder[msgspec.Struct]":
    """A decoder of objects, which keeps the text of the fields `names` and skips the others."""
    slots = {f"field_{index}": name for index, name in enumerate(names)}
    fields = [(slot, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for slot in slots]
    return msgspec.json.Decoder(msgspec.defstruct("_Fields", fields, rename=slots, gc=False))


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _may_be_deep(values: pa.Array) -> bool:
    """Whether an object among them may be deeper than SQL_JSON_DEPTH_MAX: then it has more brackets than
    that, and every other object has one.
    """
    data, objects = _data(values), pc.sum(pc.starts_with(values, "{")).as_py() or 0
    return data.count(b"{") + data.count(b"[") - objects >= SQL_JSON_DEPTH_MAX


def _has_line_ends(values: pa.Array) -> bool:
    data = _data(values)
    return b"\n" in data or b"\r" in data


def _data(values: pa.Array) -> bytes:
    """The bytes of all values."""
    _, offsets, data = values.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return bytes(data[int(ends[0]) : int(ends[-1])]) if len(ends) else b""


def object_lines(values: pa.Array) -> pa.Array:
    """Each value that is one line and may be an object as it is, other objects in one line, else null."""
    brackets = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    flat = pc.less_equal(brackets, SQL_JSON_DEPTH_MAX)
    one_line = pc.invert(pc.or_(pc.match_substring(values, "\n"), pc.match_substring(values, "\r")))
    fit = pc.and_(pc.and_(pc.starts_with(values, "{"), one_line), flat)
    if pc.all(fit, skip_nulls=False).as_py():
        return values
    fits = pc.fill_null(fit, False).to_pylist()
    pairs = zip(values.to_pylist(), fits, strict=True)
    return binary_array([value if fit else _encode(_decode(value)) for value, fit in pairs])


def _read(lines: pa.ChunkedArray, only: Sequence[pa.Field] = ()) -> pa.Table | None:
    """The lines as columns, with a row of nulls for a null; None when pyarrow refuses one of them.

    If there is an `only`, these fields alone are read, as what they are there.
    """
    if len(lines) == 0:
        return pa.table({})
    number, sink, count = SystemClock().random_hex(16), pa.BufferOutputStream(), 0
    for chunk in lines.chunks:
        numbered = _numbered(pc.fill_null(chunk, b"{}"), number, count)
        joined = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(numbered)], pa.int32()), numbered), b"\n"
        )
        sink.write(joined[0].as_buffer())
        sink.write(b"\n")
        count += len(chunk)
    longest = pc.max(pc.binary_length(lines)).as_py() or 0
    options = pyarrow.json.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * (longest + _NUMBER_BYTES)))
    known = pa.schema([(number, pa.struct(only)), (number + "n", pa.int64())]) if only else None
    parse = pyarrow.json.ParseOptions(
        explicit_schema=known, unexpected_field_behavior="ignore" if only else "infer"
    )
    try:
        table = pyarrow.json.read_json(pa.BufferReader(sink.getvalue()), options, parse)
        table.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if {number, number + "n"} != {*table.schema.names}:
        return None
    if not pc.fill_null(table[number + "n"], -1).equals(pa.chunked_array([pa.array(np.arange(count))])):
        return None
    objects = table[number]
    names = [objects.type.field(index).name for index in range(objects.type.num_fields)]
    return pa.Table.from_arrays(objects.flatten(), names) if names else table.select([])


def _numbered(lines: pa.Array, name: str, first: int) -> pa.Array:
    """Each line, which begins an object, as the field `name` of an object that has its number, too.

    pyarrow takes objects and not lines: one may end in the next line, and a third be two. Names that nobody
    can know tell them apart.
    """
    numbers = pa.array(np.arange(first, first + len(lines))).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(
        f'{{"{name}n":'.encode(), numbers, f',"{name}":'.encode(), lines, b"}", b""
    )


def _decode(value: bytes | None) -> _Row:
    """The JSON object in `value`, None when it is none or too deep."""
    try:
        row = msgspec.json.decode(value or b"", type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if _deeper(row, SQL_JSON_DEPTH_MAX) else row


def _deeper(value: object, levels: int) -> bool:
    """Whether objects and arrays are nested in `value` more than `levels` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in inner)


def _encode(row: _Row) -> bytes | None:
    return None if row is None else msgspec.json.encode(row)


def _with_text(rows: Iterable[_Row], texts: Collection[str]) -> pa.ChunkedArray:
    """The rows as lines, with text for every value of the fields `texts`."""

    def line(row: _Row) -> bytes | None:
        if row is None or not any(name in row for name in texts):
            return _encode(row)
        return _encode({name: _text(value) if name in texts else value for name, value in row.items()})

    return pa.chunked_array([binary_array([line(row) for row in rows])], pa.binary())


def _fields_of(rows: Iterable[_Row]) -> dict[str, pa.DataType | None]:
    """The type of each field; None where its values are of several kinds."""
    types: dict[str, pa.DataType | None] = {}
    for name, values in _by_name(row for row in rows if row is not None).items():
        try:
            types[name] = _type_of(values)
        except _MixedKinds:
            types[name] = None
    return types


class _MixedKinds(Exception):
    """Values of one place are of several kinds."""


def _type_of(values: Iterable[Any]) -> pa.DataType:
    """The type that holds all JSON `values`; items that are all null are texts. Raises _MixedKinds.

    pyarrow finds types, too, but loses nulls before the first item of a list that is none, and all that is
    behind them moves: `_read` refuses that, and not what it is told the type of.
    """
    known = [value for value in values if value is not None]
    kinds = {_KINDS[type(value)] for value in known}
    if len(kinds) > 1:
        raise _MixedKinds
    match kinds.pop() if kinds else None:
        case "object":
            return pa.struct([(name, _type_of(inner)) for name, inner in _by_name(known).items()])
        case "array":
            return _list_of(_type_of([item for array in known for item in array]))
        case "number":
            whole = all(isinstance(each, int) and -(2**63) <= each < 2**63 for each in known)
            return pa.int64() if whole else pa.float64()
        case "boolean":
            return pa.bool_()
        case "text":
            return pa.string()
        case _:
            return pa.null()


def _by_name(objects: Iterable[dict[str, object]]) -> dict[str, list[object]]:
    """The values of each field."""
    found: dict[str, list[object]] = {}
    for each in objects:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return found


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
