"""JSON objects as typed columns, whose types are inferred over all rows.

pyarrow reads lines of JSON, fast, and refuses all of them for one that it does not like. Lines that it
refuses are read row by row and written again in the form that it takes.
"""

from collections.abc import Iterable
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from log_tables.limits import MIB, SQL_JSON_DEPTH_MAX
from log_tables.record import binary_array

_BLOCK_BYTES = MIB
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

    `values` are binary. Whole numbers become int64, others double, text string (timestamp when all of it is
    ISO 8601), objects struct, arrays list. A field that has several kinds becomes string: text as it is,
    anything else as JSON. A value gives nulls when it is null, no JSON object, or deeper than
    SQL_JSON_DEPTH_MAX.
    """
    lines = pa.chunked_array([_lines(chunk) for chunk in values.chunks], pa.binary())
    table = _read(lines)
    if table is None:
        chunks = [[_decode(value) for value in chunk.to_pylist()] for chunk in values.chunks]
        lines = _even(chunks, nested=True)
        table = _read(lines)
        if table is None:
            lines = _even(chunks, nested=False)
            table = _read(lines)
            assert table is not None, "rows of numbers, booleans and text, each field of one kind"
    return table, lines.is_valid()


def _lines(values: pa.Array) -> pa.Array:
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


def _read(lines: pa.ChunkedArray) -> pa.Table | None:
    """The lines as columns, with a row of nulls for a null; None when pyarrow refuses one of them."""
    if len(lines) == 0:
        return pa.table({})
    sink = pa.BufferOutputStream()
    for chunk in lines.chunks:
        filled = pc.fill_null(chunk, b"{}")
        joined = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(filled)], pa.int32()), filled), b"\n"
        )
        sink.write(joined[0].as_buffer())
        sink.write(b"\n")
    longest = pc.max(pc.binary_length(lines)).as_py() or 0
    options = pyarrow.json.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * longest))
    try:
        table = pyarrow.json.read_json(pa.BufferReader(sink.getvalue()), read_options=options)
        table.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # Each line begins an object, so as many rows as lines are one for each.
    return table if table.num_rows == len(lines) else None


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


def _even(chunks: list[list[_Row]], nested: bool) -> pa.ChunkedArray:
    """The rows as lines, with text for every value of a field of several kinds and, unless `nested`, of a
    field that holds objects or arrays.
    """
    texts = _text_fields(chain.from_iterable(chunks), nested)

    def line(row: _Row) -> bytes | None:
        if row is None or texts.isdisjoint(row):
            return _encode(row)
        return _encode({name: _text(value) if name in texts else value for name, value in row.items()})

    return pa.chunked_array([binary_array([line(row) for row in rows]) for rows in chunks], pa.binary())


def _text_fields(rows: Iterable[_Row], nested: bool) -> set[str]:
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in (row or {}).items():
            kinds.setdefault(name, set()).add(_KINDS[type(value)])
    deep = set() if nested else {"object", "array"}
    return {name for name, found in kinds.items() if len(found - {"null"}) > 1 or found & deep}


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
