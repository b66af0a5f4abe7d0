"""How values become objects that hold the declared fields, and how columns are made of these.

msgspec decodes a value into a struct, and skips what is not declared. A field that is plain is there as it
will be in its column; one that is not, as its JSON.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow as pa

from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.fit import Field, InvalidField, python_type, read, whole
from log_tables.columns.typed_array import Made, exact, times

_PYTHON_TYPES = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): str,
    pa.timestamp("us", tz="UTC"): str,
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
    return len(kinds) == 1 or {_PYTHON_TYPES.get(kind) for kind in kinds} == {str}


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
