"""The columns that a schema proposes, and how it fits columns that are declared already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from log_tables.columns.column_type import array_of, ddl, map_of, struct_of, without_case
from log_tables.columns.declaration import Column, Declaration, own_pointer
from log_tables.columns.inference import can_be_declared, free_name, is_plain
from log_tables.columns.schema_types import fields_of
from log_tables.limits import COLUMNS_MAX, NESTED_TYPES_MAX
from log_tables.schemas.schema import Schema

_LONGEST_BIGINT = 19


def proposed(schema: Schema, declared: Declaration) -> Declaration:
    """`declared`, and a column for each other field of `schema`, up to COLUMNS_MAX. Raises InvalidSchema."""
    known = {column.steps for column in declared.columns}
    columns = [*declared.columns]
    for name, whole in fields_of(schema).items():
        kind = _declarable(whole, 0)
        if kind is not None and (name,) not in known and len(columns) < COLUMNS_MAX:
            column = Column(free_name(name, columns), kind, own_pointer(name))
            if can_be_declared(column, columns):
                columns.append(column)
    return Declaration(tuple(columns), declared.encoding)


def _declarable(kind: pa.DataType, depth: int) -> pa.DataType | None:
    """The part of a type that a column can have; None if that is nothing."""
    if not pa.types.is_nested(kind):
        return None if pa.types.is_null(kind) else kind
    if depth >= NESTED_TYPES_MAX:
        return None
    if not pa.types.is_struct(kind):
        inner = _declarable(kind.item_type if pa.types.is_map(kind) else kind.value_type, depth + 1)
        return None if inner is None else map_of(inner) if pa.types.is_map(kind) else array_of(inner)
    parts = {each.name: _declarable(each.type, depth + 1) for each in kind.fields if is_plain(each.name)}
    found = {name: part for name, part in parts.items() if part is not None}
    alike = {without_case(name) for name in found}
    return struct_of(found) if found and len(alike) == len(found) else None


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """How the values of a schema fit a declared column: `reason` says why some do not, if they do not."""

    column: Column
    is_there: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """How a schema fits a declaration: each column, and the fields of the schema that no column has."""

    columns: tuple[ColumnCheck, ...]
    without_column: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether all values of the schema fit all columns."""
        return all(each.reason is None for each in self.columns)


def checked(schema: Schema, declaration: Declaration, resolved: Declaration) -> SchemaCheck:
    """How `schema` fits `declaration`, which is `resolved` to its names. Raises InvalidSchema."""
    fields = fields_of(schema)
    pairs = zip(declaration.columns, resolved.columns, strict=True)
    columns = tuple(_checked(column, own, fields) for column, own in pairs)
    used = {column.steps[0] for column in resolved.columns}
    return SchemaCheck(columns, tuple(name for name in fields if name not in used))


def _checked(column: Column, own: Column, fields: Mapping[str, pa.DataType]) -> ColumnCheck:
    kind = fields.get(own.steps[0])
    for step in own.steps[1:]:
        kind = None if kind is None else _inside(kind, step)
    if kind is None:
        return ColumnCheck(column, False)
    return ColumnCheck(column, True, next(_misfits(column.type, kind, own.pointer), None))


def _inside(kind: pa.DataType, step: str) -> pa.DataType | None:
    """The type of the field `step` of a type; None if it has none."""
    if pa.types.is_struct(kind):
        index = kind.get_field_index(step)
        return None if index < 0 else kind.field(index).type
    if pa.types.is_map(kind):
        return kind.item_type
    return kind.value_type if pa.types.is_list(kind) and step.isdecimal() else None


def _misfits(declared: pa.DataType, found: pa.DataType, place: str) -> Iterator[str]:
    """Why values of the type `found` may not fit the type `declared`."""
    pairs = _parts(declared, found, place)
    if pairs is None:
        if not pa.types.is_null(found) and declared != found and not _holds(declared, found):
            yield f"{place} is {_word(found)}, not {_word(declared)}"
        return
    for own, inner, inside in pairs:
        yield from _misfits(own, inner, inside)


def _parts(
    declared: pa.DataType, found: pa.DataType, place: str
) -> list[tuple[pa.DataType, pa.DataType, str]] | None:
    """(Declared, found, where) of each part of two types; None where not both have such parts."""
    part = f"a part of {place}"
    if pa.types.is_list(declared) and pa.types.is_list(found):
        return [(declared.value_type, found.value_type, part)]
    if not (_is_object(declared) and _is_object(found)):
        return None
    if pa.types.is_map(declared):
        inside = [found.item_type] if pa.types.is_map(found) else [each.type for each in found.fields]
        return [(declared.item_type, each, part) for each in inside]
    inner = {each.name: _inside(found, each.name) for each in declared.fields}
    return [
        (each.type, inner[each.name], f"{place}/{each.name}")
        for each in declared.fields
        if inner[each.name] is not None
    ]


def _word(kind: pa.DataType) -> str:
    """The name of a type without its parts."""
    if pa.types.is_struct(kind):
        return "struct"
    return "array" if pa.types.is_list(kind) else ddl(kind).partition("<")[0]


def _is_object(kind: pa.DataType) -> bool:
    """Whether the JSON of a type is an object."""
    return bool(pa.types.is_map(kind) or pa.types.is_struct(kind))


def _holds(declared: pa.DataType, found: pa.DataType) -> bool:
    """Whether every value of one type fits another, neither of which is of the other's parts."""
    name, other = _word(declared).partition("(")[0], _word(found).partition("(")[0]
    if name != "decimal":
        return other in _HELD.get(name, ())
    digits = declared.precision - declared.scale
    if other != "decimal":
        return other == "bigint" and digits >= _LONGEST_BIGINT
    return bool(declared.scale >= found.scale and digits >= found.precision - found.scale)


_HELD = {
    "string": ("date", "timestamp", "binary", "decimal"),  # their JSON is text
    "double": ("bigint",),
    "timestamp": ("date",),
}
"""Types whose values fit another type, too."""
