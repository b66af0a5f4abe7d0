"""The columns that a schema proposes, and how it fits columns that are declared already.

A type of a schema proposes the type of the table of docs/columns.md that fits all of its values.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from log_tables.columns.column_type import array_of, ddl, leaf, map_of, struct_of, without_case
from log_tables.columns.declaration import Column, Declaration, own_pointer
from log_tables.columns.inference import can_be_declared, free_name, is_plain
from log_tables.limits import COLUMNS_MAX, NESTED_TYPES_MAX, VALUE_DEPTH_MAX
from log_tables.schemas.avro import Type, branch_names, parsed
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind

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


def fields_of(schema: Schema) -> dict[str, pa.DataType]:
    """The fields of the values of `schema` with the types that fit them: null for one that is always null, a
    struct without fields for an object without any. Raises InvalidSchema.
    """
    match schema.kind:
        case SchemaKind.AVRO:
            named: dict[str, Any] = {}
            found = _AvroTypes(named).of(parsed(schema, named), ())
        case SchemaKind.PROTOBUF:
            found = _of_message(message_of(schema, (0,)), ())
        case SchemaKind.JSON:
            found = _of_json(_parsed_json(schema), 0)
    return {each.name: each.type for each in found.fields} if pa.types.is_struct(found) else {}


@dataclass(frozen=True, slots=True)
class _AvroTypes:
    """The types of columns for those of Avro, of which `named` have names."""

    named: Mapping[str, Any]

    def of(self, kind: Type, within: Sequence[str]) -> pa.DataType:
        """The type that fits `kind`. One that is `within` itself is text."""
        if isinstance(kind, list):
            return self._of_union(kind, within)
        if isinstance(kind, dict):
            return self._of(kind["type"], kind, within)
        if kind not in self.named:
            return _leaf(kind, {})
        return leaf("string") if kind in within else self.of(self.named[kind], within)

    def _of(self, name: Type, kind: dict[str, Any], within: Sequence[str]) -> pa.DataType:
        """The type that fits one of this name."""
        match name:
            case "array":
                return array_of(self.of(kind["items"], within))
            case "map":
                return map_of(self.of(kind["values"], within))
            case "record":
                inside = (*within, kind["name"])
                return struct_of({each["name"]: self.of(each["type"], inside) for each in kind["fields"]})
        return _leaf(name, kind) if isinstance(name, str) else self.of(name, within)

    def _of_union(self, kinds: list[Type], within: Sequence[str]) -> pa.DataType:
        others = [kind for kind in kinds if kind != "null"]
        if len(others) == 1:
            return self.of(others[0], within)
        named = zip(branch_names(kinds), kinds, strict=True)
        return struct_of({name: self.of(kind, within) for name, kind in named if name is not None})


def _leaf(name: str, kind: Mapping[str, Any]) -> pa.DataType:
    """The type that fits one of Avro without parts."""
    logical = str(kind.get("logicalType", ""))
    if (name, logical) in (("bytes", "decimal"), ("fixed", "decimal")):
        precision, scale = kind.get("precision"), kind.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
            return pa.decimal128(precision, scale) if precision <= 38 else leaf("string")
    if (name, logical, kind.get("size")) in (("fixed", "uuid", 16), ("fixed", "duration", 12)):
        return leaf("string")
    found = _LOGICAL.get((name, logical)) or _LEAVES.get(name)
    return pa.null() if found is None else leaf(found)


_LEAVES = {
    "boolean": "boolean",
    "int": "bigint",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "string",
    ("long", "time-micros"): "string",
    **{
        ("long", f"{prefix}timestamp-{unit}"): "timestamp"
        for prefix in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}


def _of_message(message: Any, within: Sequence[str]) -> pa.DataType:
    """The type that fits a message of Protobuf. One that is `within` itself is text."""
    name = message.full_name
    if name in within:
        return leaf("string")
    if name in _MESSAGES:
        return leaf(_MESSAGES[name])
    if name.startswith("google.protobuf.") and name.endswith("Value") and len(message.fields) == 1:
        return _of_field(message.fields[0], ())  # a wrapper
    if name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        return struct_of({})  # it may be anything
    return struct_of({each.name: _of_repeated(each, (*within, name)) for each in message.fields})


def _of_repeated(field: Any, within: Sequence[str]) -> pa.DataType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return map_of(_of_field(message.fields_by_name["value"], within))
    found = _of_field(field, within)
    return array_of(found) if field.is_repeated else found


def _of_field(field: Any, within: Sequence[str]) -> pa.DataType:
    if field.message_type is not None:
        return _of_message(field.message_type, within)
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return pa.decimal128(20, 0)
    if field.type == field.TYPE_BYTES:
        return leaf("binary")
    if field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_ENUM):
        return leaf("string")
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return leaf("double")
    return leaf("boolean" if field.cpp_type == field.CPPTYPE_BOOL else "bigint")


_MESSAGES = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "string",
    "google.protobuf.FieldMask": "string",
    "confluent.type.Decimal": "string",
}


def _parsed_json(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError):
        raise InvalidSchema("the schema is no JSON") from None


def _of_json(kind: Any, depth: int) -> pa.DataType:
    """The type that fits what a JSON Schema allows: a struct without fields where that is anything."""
    if not isinstance(kind, dict) or depth > VALUE_DEPTH_MAX:
        return struct_of({})
    names = kind.get("type")
    names = [each for each in (names if isinstance(names, list) else [names]) if each != "null"]
    if len(names) != 1:
        return struct_of({})
    match names[0]:
        case "object":
            fields = kind.get("properties")
            if isinstance(fields, dict):
                return struct_of({name: _of_json(each, depth + 1) for name, each in fields.items()})
            return map_of(_of_json(kind.get("additionalProperties"), depth + 1))
        case "array":
            return array_of(_of_json(kind.get("items"), depth + 1))
        case "string":
            return leaf(_FORMATS.get(str(kind.get("format")), "string"))
    return leaf(_JSON[names[0]]) if names[0] in _JSON else struct_of({})


_JSON = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date": "date", "date-time": "timestamp"}


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
