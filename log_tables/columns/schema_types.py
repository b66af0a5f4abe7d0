"""The types of columns that fit all values of a schema, by the tables of docs/columns.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from log_tables.columns.column_type import array_of, leaf, map_of, struct_of
from log_tables.limits import SCHEMA_FIELDS_MAX, VALUE_DEPTH_MAX
from log_tables.schemas.avro import Type, branch_names, parsed
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.proto_known import LIST_VALUE, STRUCT, VALUE, WRAPPERS, is_map, known
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind


def fields_of(schema: Schema) -> dict[str, pa.DataType]:
    """The fields of the values of `schema` with the types that fit them: null for one that is always null, a
    struct without fields for an object without any. Raises InvalidSchema.
    """
    match schema.kind:
        case SchemaKind.AVRO:
            named: dict[str, Any] = {}
            found = _AvroTypes(named).of(parsed(schema, named), ())
        case SchemaKind.PROTOBUF:
            found = _MessageTypes().of(message_of(schema, (0,)), ())
        case SchemaKind.JSON:
            found = _of_json(_parsed_json(schema), 0)
    return {each.name: each.type for each in found.fields} if pa.types.is_struct(found) else {}


@dataclass(slots=True)
class _Count:
    """Bounds the types that are made: one that is used in many places is made for each."""

    left: int = SCHEMA_FIELDS_MAX

    def take(self) -> None:
        """Count one more. Raises InvalidSchema."""
        self.left -= 1
        if self.left < 0:
            raise InvalidSchema(
                f"the schema has more than {SCHEMA_FIELDS_MAX} fields, each type where it is used"
            )


@dataclass(frozen=True, slots=True)
class _AvroTypes:
    """The types of columns for those of Avro, of which `named` have names."""

    named: Mapping[str, Any]
    count: _Count = field(default_factory=_Count)

    def of(self, kind: Type, within: Sequence[str]) -> pa.DataType:
        """The type that fits `kind`. One that is `within` itself is text. Raises InvalidSchema."""
        self.count.take()
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
            case "record" | "error":
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


@dataclass(frozen=True, slots=True)
class _MessageTypes:
    """The types of columns for those of Protobuf."""

    count: _Count = field(default_factory=_Count)

    def of(self, message: Any, within: Sequence[str]) -> pa.DataType:
        """The type that fits a message. One that is `within` itself is text. Raises InvalidSchema."""
        name = message.full_name
        if name in within:
            return leaf("string")
        form = known(message)
        if form in _MESSAGES:
            return leaf(_MESSAGES[form])
        if form in WRAPPERS:
            return self._of_field(message.fields[0], ())
        if form in (STRUCT, VALUE, LIST_VALUE):
            return struct_of({})  # it may be anything
        return struct_of({each.name: self._of_repeated(each, (*within, name)) for each in message.fields})

    def _of_repeated(self, field: Any, within: Sequence[str]) -> pa.DataType:
        if is_map(field):
            return map_of(self._of_field(field.message_type.fields_by_name["value"], within))
        found = self._of_field(field, within)
        return array_of(found) if field.is_repeated else found

    def _of_field(self, field: Any, within: Sequence[str]) -> pa.DataType:
        self.count.take()
        return _of_scalar(field) if field.message_type is None else self.of(field.message_type, within)


def _of_scalar(field: Any) -> pa.DataType:
    """The type that fits a field of Protobuf that is no message."""
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
    named = kind.get("type") if isinstance(kind, dict) and depth <= VALUE_DEPTH_MAX else None
    names = [each for each in (named if isinstance(named, list) else [named]) if each != "null"]
    if len(names) != 1:
        return struct_of({})
    match names[0]:
        case "object" if isinstance(kind.get("properties"), dict):
            return struct_of({name: _of_json(each, depth + 1) for name, each in kind["properties"].items()})
        case "object":
            return map_of(_of_json(kind.get("additionalProperties"), depth + 1))
        case "array":
            return array_of(_of_json(kind.get("items"), depth + 1))
        case "string":
            return leaf(_FORMATS.get(str(kind.get("format")), "string"))
    return leaf(_JSON[names[0]]) if names[0] in _JSON else struct_of({})


_JSON = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date": "date", "date-time": "timestamp"}
