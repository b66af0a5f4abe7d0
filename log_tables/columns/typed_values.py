"""The declared columns of many values at once, and why values do not fit: what `fit` says of each, fast.

msgspec decodes a value into an object, and skips what is not declared. A field that is plain is there as it
will be in its column; one that is not, as its JSON. What the objects hold becomes columns as a whole. A value
with which anything of this is not plain is left to `fit`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa

from log_tables.columns.column_bytes import expanded_bytes, may_expand, widest_items
from log_tables.columns.column_type import DECIMAL, looked_up
from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.fit import Field, InvalidField, fit, python_type, read, whole
from log_tables.columns.json_depth import too_deep
from log_tables.columns.typed_array import Made, exact, times
from log_tables.limits import EXPANDED_MAX_BYTES, TYPED_AT_ONCE, TYPED_AT_ONCE_BYTES, VALUE_DEPTH_MAX

_PYTHON_TYPES = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): str,
    pa.timestamp("us", tz="UTC"): str,
    pa.binary(): bytes,
    DECIMAL: msgspec.Raw,
}


@dataclass(frozen=True, slots=True)
class StructField:
    """`field` in decoded objects: objects of `reader`, or what its columns have, or JSON yet to be read."""

    field: Field
    reader: "StructReader | None" = None
    plain: bool = False

    def made(self, found: Sequence[object], columns: Sequence[Column]) -> Iterator[tuple[int, Made]]:
        """Each column that is made of the field, by its index; `found` has the field of each value."""
        if not self.plain:
            yield from _read(found, self.field, columns)
            return
        for index in self.field.columns:
            kind = columns[index].type
            at_once = pa.types.is_temporal(kind)
            yield index, times(pa.array(found, pa.string()), kind) if at_once else exact(found, kind)


@dataclass(frozen=True, slots=True)
class StructReader:
    """Makes an object of Python, with these fields, of a JSON object."""

    decode: Callable[[bytes], msgspec.Struct]
    empty: msgspec.Struct
    fields: Sequence[StructField]

    def held(self, objects: Sequence[msgspec.Struct]) -> Iterator[tuple[StructField, Sequence[object]]]:
        """Each field, also of the readers in this one, and what it is in each of `objects`, at least one."""
        columns = zip(*map(msgspec.structs.astuple, objects), strict=True)
        for each, found in zip(self.fields, columns, strict=True):
            if each.reader is None:
                yield each, found
            else:
                empty = each.reader.empty
                yield from each.reader.held([empty if item is None else item for item in found])


@lru_cache(maxsize=256)
def reader_of(declaration: Declaration) -> StructReader:
    """The reader of values of which the columns of `declaration` are made."""
    return _reader(whole(declaration), declaration.columns)


def _reader(at: Field, columns: Sequence[Column]) -> StructReader:
    fields = [_decoded(inner, columns) for inner in at.fields.values()]
    names = {f"field_{index}": name for index, name in enumerate(at.fields)}
    members = [(name, *_kind(each, columns)) for name, each in zip(names, fields, strict=True)]
    struct = msgspec.defstruct("_Value", members, rename=names, gc=False, frozen=True)
    return StructReader(msgspec.json.Decoder(struct).decode, struct(), fields)


def _decoded(at: Field, columns: Sequence[Column]) -> StructField:
    if not at.columns and not at.may_be_list:
        return StructField(at, reader=_reader(at, columns))
    kinds = {columns[index].type for index in at.columns}
    return StructField(at, plain=not at.fields and _are_plain(kinds))


def _are_plain(kinds: set[pa.DataType]) -> bool:
    """Whether columns of these types take what msgspec decodes, and all the same."""
    return len(kinds) == 1 or {_PYTHON_TYPES.get(looked_up(kind)) for kind in kinds} in ({str}, {msgspec.Raw})


def _kind(each: StructField, columns: Sequence[Column]) -> tuple[object, object]:
    """The type of a field, as msgspec takes it, and its default."""
    if each.reader is not None:
        return type(each.reader.empty) | None, None
    if each.plain:
        return python_type(columns[each.field.columns[0]].type, _PYTHON_TYPES), None
    return msgspec.Raw | msgspec.UnsetType, msgspec.UNSET


def _read(found: Sequence[object], at: Field, columns: Sequence[Column]) -> Iterator[tuple[int, Made]]:
    """The columns of a field and of those in it, by their indexes, made of its JSON."""
    rows: list[list[object]] = []
    odd = []
    for number, raw in enumerate(found):
        row: list[object] = [None] * len(columns)
        try:
            if isinstance(raw, msgspec.Raw):
                read(bytes(raw), at, columns, row)
        except InvalidField:
            row = [None] * len(columns)
            odd.append(number)
        rows.append(row)
    for index in at.all_columns():
        yield index, (pa.array([row[index] for row in rows], columns[index].type), odd)


_EMPTY = b"{}"
_ASCII_LAST = 0x7F
_CASE = 0x20
"""The bit in which `{` differs from `[`."""


def typed_values(
    values: pa.Array,
    declaration: Declaration,
    at_once: int = TYPED_AT_ONCE,
    at_once_bytes: int = TYPED_AT_ONCE_BYTES,
) -> pa.RecordBatch:
    """The columns `declaration.schema` of binary JSON `values`, a row a value.

    A row that does not fit has nulls and says why in `value_error`; a null value has nulls and no error.
    """
    parts = [*typed_parts(values, declaration, at_once, at_once_bytes)]
    if not parts:
        arrays = [pa.nulls(0, each.type) for each in declaration.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=declaration.schema)
    return joined(parts)


def joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def typed_parts(
    values: pa.Array,
    declaration: Declaration,
    at_once: int = TYPED_AT_ONCE,
    at_once_bytes: int = TYPED_AT_ONCE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """`typed_values` in parts, of as many values as have columns of EXPANDED_MAX_BYTES at the most."""
    widest = widest_items(declaration)
    if widest:
        at_once_bytes = min(at_once_bytes, 2 * EXPANDED_MAX_BYTES // widest)
    return (_typed(part, declaration) for part in _parts(values, at_once, at_once_bytes))


def _parts(values: pa.Array, at_once: int, at_once_bytes: int) -> Iterator[pa.Array]:
    """`values`, so many at a time that other threads need not wait for long; a long one by itself."""
    start = 0
    while start < len(values):
        ends = _ends(values.slice(start, at_once))
        count = int(np.searchsorted(ends, int(ends[0]) + at_once_bytes, "right")) - 1
        part = values.slice(start, max(1, count))
        yield part
        start += len(part)


def _ends(values: pa.Array) -> np.ndarray:
    """Where each value begins in the data, and where the last one ends."""
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _typed(values: pa.Array, declaration: Declaration) -> pa.RecordBatch:
    items, reader = values.to_pylist(), reader_of(declaration)
    odd = {row for row in _suspects(values, items) if items[row] is not None}
    objects = _objects(items, reader, odd)
    for row in _too_large(items, objects, reader, declaration):
        objects[row] = reader.empty
        odd.add(row)
    arrays: dict[int, pa.Array] = {}
    for decoded, found in reader.held(objects):
        for index, (array, rows) in decoded.made(found, declaration.columns):
            arrays[index] = array
            odd.update(rows)
    columns = [arrays[index] for index in range(len(arrays))]
    errors = pa.nulls(len(items), pa.string())
    if odd:
        errors, columns = _mended(items, sorted(odd), columns, declaration)
    return pa.RecordBatch.from_arrays([errors, *columns], schema=declaration.schema)


def _suspects(values: pa.Array, items: Sequence[bytes | None]) -> set[int]:
    """The rows that are no UTF-8, or too deep, or may have more items than are read at once."""
    ends = _ends(values)
    if ends[-1] - ends[0] > TYPED_AT_ONCE_BYTES:  # one long value
        return {*range(len(items))}
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    rows = {row for row in _maybe_deep(data, ends - ends[0]) if too_deep(items[row] or b"")}
    try:
        if len(data) and data.max() > _ASCII_LAST:
            values.cast(pa.string())
    except pa.ArrowInvalid:
        rows.update(row for row, item in enumerate(items) if item is not None and not _is_utf8(item))
    return rows


def _maybe_deep(data: np.ndarray, ends: np.ndarray) -> set[int]:
    """The rows of values in `data`, between `ends`, that have more brackets than may be nested."""
    opened = (data | _CASE) == ord("{")
    begins, total = ends[:-1], np.count_nonzero(opened)
    all_have = total > VALUE_DEPTH_MAX and np.all(begins < ends[1:]) and np.all(opened[begins])
    if total - (len(begins) - 1 if all_have else 0) <= VALUE_DEPTH_MAX:
        return set()
    brackets = np.searchsorted(np.flatnonzero(opened), ends)
    return {*np.flatnonzero(np.diff(brackets) > VALUE_DEPTH_MAX).tolist()}


def _is_utf8(item: bytes) -> bool:
    try:
        item.decode()
    except UnicodeDecodeError:
        return False
    return True


def _objects(items: Sequence[bytes | None], reader: StructReader, odd: set[int]) -> list[msgspec.Struct]:
    """The object of each value, an empty one for null and for those that are `odd`; more may become so."""
    filled = [_EMPTY if item is None or row in odd else item for row, item in enumerate(items)]
    try:
        return [*map(reader.decode, filled)]
    except msgspec.DecodeError:
        pass
    objects = []
    for row, item in enumerate(filled):
        try:
            objects.append(reader.decode(item))
        except msgspec.DecodeError:
            odd.add(row)
            objects.append(reader.empty)
    return objects


def _too_large(
    items: Sequence[bytes | None],
    objects: Sequence[msgspec.Struct],
    reader: StructReader,
    declaration: Declaration,
) -> list[int]:
    """The rows whose columns are too large, or may be."""
    if widest_items(declaration) == 0:
        return []
    return [
        row
        for row, item in enumerate(items)
        if item and may_expand(item, declaration) and not _is_within(objects[row], reader, declaration)
    ]


def _is_within(decoded: msgspec.Struct, reader: StructReader, declaration: Declaration) -> bool:
    """Whether the columns of one object are not too large; False where it is not decoded as they have it."""
    found = [*reader.held([decoded])]
    pairs = [(index, item) for field, (item,) in found for index in field.field.columns]
    return all(field.plain for field, _ in found) and expanded_bytes(pairs, declaration) <= EXPANDED_MAX_BYTES


def _mended(
    items: Sequence[bytes | None], odd: Sequence[int], columns: Sequence[pa.Array], declaration: Declaration
) -> tuple[pa.Array, list[pa.Array]]:
    """(The errors, the columns), in which the rows `odd` are what `fit` makes of them."""
    fits = [fit(items[row] or b"", declaration) for row in odd]
    errors: list[str | None] = [None] * len(items)
    for row, (_, error) in zip(odd, fits, strict=True):
        errors[row] = error
    places = np.arange(len(items))
    places[odd] = np.arange(len(items), len(items) + len(odd))
    mended = []
    for index, column in enumerate(columns):
        own = pa.array([row[index] for row, _ in fits], column.type)
        mended.append(pa.concat_arrays([column, own]).take(pa.array(places)))
    return pa.array(errors, pa.string()), mended
