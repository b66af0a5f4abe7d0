"""Types of Protobuf that JSON has a form of its own for: times, durations, wrappers, values of any kind.

They are known by their names and by their fields: a schema may have others under the same names, which are
messages as any.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from log_tables.schemas.moments import instant_text
from log_tables.schemas.schema import Undecodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DECIMAL_MAX_BYTES = 64
_SECOND = 10**9
_CAMEL = re.compile("_([a-z])")
_SNAKE = re.compile("([^A-Z_]|_[a-z])*")

TEXT_BYTES = 64
"""About what the text of one takes."""


def known(descriptor: "Descriptor") -> str | None:
    """The name of a type that JSON has a form of its own for; None for any other."""
    name: str = descriptor.full_name
    shape = _SHAPES.get(name)
    return name if shape is not None and shape == ", ".join(map(_shape, descriptor.fields)) else None


def is_map(field: "FieldDescriptor") -> bool:
    """Whether a field is a map, and its type that of its entries."""
    kind = field.message_type
    return kind is not None and bool(field.is_repeated) and bool(kind.GetOptions().map_entry)


def _shape(field: "FieldDescriptor") -> str:
    """A field, about as a file has it."""
    words = [_TYPES.get(field.type, ""), field.name]
    if is_map(field):
        return f"map {field.name}"
    if field.is_repeated:
        return " ".join(["repeated", *words])
    one_of = field.containing_oneof
    return " ".join(words if one_of is None else [one_of.name, *words])


_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
}
"""The types of fields by their numbers in descriptors."""

STRUCT, VALUE, LIST_VALUE = (f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
WRAPPERS = {
    f"google.protobuf.{name}Value": name.lower()
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_SHAPES = {
    **{name: f"{word} value" for name, word in WRAPPERS.items()},
    "google.protobuf.Timestamp": "int64 seconds, int32 nanos",
    "google.protobuf.Duration": "int64 seconds, int32 nanos",
    "google.protobuf.FieldMask": "repeated string paths",
    "google.protobuf.Any": "string type_url, bytes value",
    STRUCT: "map fields",
    VALUE: "kind enum null_value, kind double number_value, kind string string_value, kind bool bool_value, "
    "kind message struct_value, kind message list_value",
    LIST_VALUE: "repeated message values",
    "confluent.type.Decimal": "bytes value, uint32 precision, int32 scale",
}


def _time(found: Any) -> str:
    seconds, nanos = found.seconds, found.nanos
    text = None
    if 0 <= nanos < _SECOND:
        digits = _digits(nanos)
        text = instant_text((seconds * _SECOND + nanos) // 10 ** (9 - digits), digits)
    if not isinstance(text, str):
        raise Undecodable("is no time of the years 1 to 9999")
    return text


def _duration(found: Any) -> str:
    total = found.seconds * _SECOND + found.nanos
    seconds, nanos = divmod(abs(total), _SECOND)
    digits = _digits(nanos)
    fraction = f".{nanos // 10 ** (9 - digits):0{digits}d}" if digits else ""
    return f"{'-' if total < 0 else ''}{seconds}{fraction}s"


def _digits(nanos: int) -> int:
    """How many a fraction of a second is written with: 0, 3, 6 or 9."""
    if nanos % 10**6 == 0:
        return 3 if nanos else 0
    return 6 if nanos % 10**3 == 0 else 9


def _mask(found: Any) -> str:
    """Paths in camel case, as JSON has them; one that it could not have stays as it is."""
    return ",".join(
        _CAMEL.sub(lambda small: small[1].upper(), path) if _SNAKE.fullmatch(path) else path
        for path in found.paths
    )


def _any(found: Any) -> dict[str, str]:
    return {"@type": found.type_url, "value": b64encode(found.value).decode()}


def _decimal(found: Any) -> str:
    """A decimal of Confluent's, as text."""
    if len(found.value) > _DECIMAL_MAX_BYTES or abs(found.scale) > _DECIMAL_MAX_BYTES:
        raise Undecodable("is a decimal of too many digits")
    number = int.from_bytes(found.value, "big", signed=True)
    return f"{Decimal((number < 0, tuple(map(int, str(abs(number)))), -found.scale)):f}"


TEXTS: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": _time,
    "google.protobuf.Duration": _duration,
    "google.protobuf.FieldMask": _mask,
    "google.protobuf.Any": _any,
    "confluent.type.Decimal": _decimal,
}
"""What shows types that have a text, or two."""
