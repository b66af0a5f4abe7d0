"""The declared columns of many values at once, and why values do not fit: what `fit` says of each, fast.

msgspec decodes the declared fields of a value into an object, and skips the others. A value for which that
fails is read by `fit`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.columns.column_type import is_nested
from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.fit import InvalidField, date_days, depth, fit, fitted, time_us
from log_tables.layout import VALUE
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, TYPED_AT_ONCE, VALUE_DEPTH_MAX

_DATE_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_DATES, _UTC_TIMES, _TIMES = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", f"^{_DATE_TIME}Z$", f"^{_DATE_TIME}$"
_EMPTY = b"{}"
_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_PYTHON_TYPES = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): str,
    pa.timestamp("us", tz="UTC"): str,
}


class _Mixed(Exception):
    """Not all values can be taken at once. It never leaves this module."""


def typed_values(values: pa.Array, declaration: Declaration) -> pa.RecordBatch:
    """The columns `declaration.schema` of binary JSON `values`, a row a value.

    A row that does not fit has nulls and says why in `value_error`; a null value has nulls and no error.
    """
    starts = range(0, max(1, len(values)), TYPED_AT_ONCE)
    parts = [_typed(values.slice(start, TYPED_AT_ONCE), declaration) for start in starts]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def with_columns(records: pa.RecordBatch, declaration: Declaration) -> pa.RecordBatch:
    """RECORD_SCHEMA rows with their declared columns at the end."""
    if not declaration.columns:
        return records
    typed = typed_values(records.column(VALUE), declaration)
    schema = pa.schema([*records.schema, *typed.schema])
    return pa.RecordBatch.from_arrays([*records.columns, *typed.columns], schema=schema)


def _typed(values: pa.Array, declaration: Declaration) -> pa.RecordBatch:
    items = values.to_pylist()
    try:
        arrays, errors = _at_once(values, items, declaration)
    except _Mixed:
        arrays, errors = _one_by_one(items, declaration)
    return pa.RecordBatch.from_arrays([errors, *arrays], schema=declaration.schema)


def _at_once(
    values: pa.Array, items: list[bytes | None], declaration: Declaration
) -> tuple[list[pa.Array], pa.Array]:
    """(The columns, the errors). Raises _Mixed if a field may fit its column in a way unseen here."""
    reader = _reader(declaration)
    if reader is None:
        raise _Mixed
    errors = pa.nulls(len(items), pa.string())
    filled = [_EMPTY if item is None else item for item in items]
    try:
        if not _is_plain(values):
            raise _Mixed
        objects = [*map(reader.decode, filled)]
    except (_Mixed, *_FAILURES):
        objects, reasons = _each(filled, reader, declaration)
        errors = pa.array(reasons, pa.string())
    pairs = zip(reader.gets, declaration.columns, strict=True)
    arrays = [_array([*get(objects)], column) for get, column in pairs]
    return arrays, errors


def _is_plain(values: pa.Array) -> bool:
    """Whether all are UTF-8, and none has so many brackets that it may be too deep."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    brackets = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
    return bool((pc.max(brackets).as_py() or 0) <= VALUE_DEPTH_MAX)


def _each(
    items: Sequence[bytes], reader: "_Reader", declaration: Declaration
) -> tuple[list[msgspec.Struct], list[str | None]]:
    """(The object of each value, an empty one for those that do not fit, why these do not). Raises _Mixed."""
    errors: list[str | None] = [None] * len(items)
    objects, empty = [], reader.decode(_EMPTY)
    for row, item in enumerate(items):
        try:
            item.decode()
            if depth(item) > VALUE_DEPTH_MAX:
                raise _Mixed
            objects.append(reader.decode(item))
        except (_Mixed, *_FAILURES):
            _, errors[row] = fit(item, declaration)
            if errors[row] is None:
                raise _Mixed from None
            objects.append(empty)
    return objects, errors


def _one_by_one(items: list[bytes | None], declaration: Declaration) -> tuple[list[pa.Array], pa.Array]:
    """(The columns, the errors), each value by itself."""
    nulls = [None] * len(declaration.columns), None
    found = [nulls if item is None else fit(item, declaration) for item in items]
    columns = zip(*(row for row, _ in found), strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, declaration.columns, strict=True)]
    return arrays, pa.array([error for _, error in found], pa.string())


def _array(items: Sequence[object], column: Column) -> pa.Array:
    """The column of decoded fields. Raises _Mixed if one of them may not fit."""
    kind = column.type
    try:
        if is_nested(kind):
            return pa.array([fitted(item, kind, column.pointer) for item in items], kind)
        if pa.types.is_temporal(kind):
            return _times(pa.array(items, pa.string()), kind)
        return pa.array(items, kind)
    except (InvalidField, OverflowError, pa.ArrowException):
        raise _Mixed from None


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as dates or times. Raises _Mixed if one of them may be none."""
    first = next((text for text in texts if text.is_valid), None)
    if first is None:
        return pa.nulls(len(texts), kind)
    usual = _DATES if pa.types.is_date(kind) else _UTC_TIMES if first.as_py()[-1:] == "Z" else _TIMES
    try:
        if pc.all(pc.match_substring_regex(texts, usual)).as_py():
            found = texts.cast(kind) if usual != _TIMES else texts.cast(pa.timestamp("us")).cast(kind)
            if _in_years(found):
                return found
    except pa.ArrowInvalid:
        pass
    read = date_days if usual == _DATES else time_us
    items = [None if text is None else read(text) for text in texts.to_pylist()]
    if items.count(None) > texts.null_count:
        raise _Mixed
    return pa.array(items, kind)


def _in_years(found: pa.Array) -> bool:
    bounds = pc.min_max(found.cast(pa.timestamp("us")).cast(pa.int64()))
    return bool(bounds["min"].as_py() >= TIMESTAMP_MIN_US and bounds["max"].as_py() <= TIMESTAMP_MAX_US)


@dataclass(frozen=True, slots=True)
class _Reader:
    """How values become objects, and how each column is got of these."""

    decode: Callable[[bytes], msgspec.Struct]
    gets: Sequence[Callable[[Sequence[object]], Iterator[object]]]


@dataclass(slots=True)
class _Node:
    """A field of values: the fields in it that are declared, or the type of its own column."""

    fields: dict[str, "_Node"] = field(default_factory=dict)
    kind: type | None = None


@lru_cache(maxsize=256)
def _reader(declaration: Declaration) -> _Reader | None:
    """The reader of values by `declaration`; None if two columns take a field as different things."""
    root = _Node()
    for column in declaration.columns:
        node = root
        for step in column.steps:
            node = node.fields.setdefault(step, _Node())
        kind = _PYTHON_TYPES.get(column.type, object)
        if node.kind not in (None, kind):
            return None
        node.kind = kind
    struct = _struct(root)
    if struct is None:
        return None
    decoder: msgspec.json.Decoder[msgspec.Struct] = msgspec.json.Decoder(struct)
    return _Reader(decoder.decode, [_getter(root, column.steps) for column in declaration.columns])


def _struct(node: _Node) -> type[msgspec.Struct] | None:
    fields: list[tuple[str, object, object]] = []
    for index, inner in enumerate(node.fields.values()):
        if inner.fields and inner.kind is not None:
            return None
        kind = _struct(inner) if inner.fields else inner.kind
        if kind is None:
            return None
        fields.append((f"field_{index}", kind | None if kind is not object else kind, None))
    names = {f"field_{index}": name for index, name in enumerate(node.fields)}
    return msgspec.defstruct("_Value", fields, rename=names, gc=False, frozen=True)


def _getter(root: _Node, steps: Sequence[str]) -> Callable[[Sequence[object]], Iterator[object]]:
    """A function from objects to the field of each to which `steps` lead."""
    names, node = [], root
    for step in steps:
        names.append(f"field_{[*node.fields].index(step)}")
        node = node.fields[step]
    get = attrgetter(names[0])
    if len(names) == 1:
        return lambda objects: map(get, objects)
    return lambda objects: (_inner(item, names) for item in objects)


def _inner(item: object, names: Sequence[str]) -> object:
    for name in names:
        if item is None:
            return None
        item = getattr(item, name)
    return item
