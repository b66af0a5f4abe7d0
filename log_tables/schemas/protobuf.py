"""Protobuf: a reader of messages, compiled of a schema, by the runtime of Protobuf.

A message becomes what JSON can have, by the table of docs/columns.md: much like the JSON of proto3, with the
names of the file, and whole numbers as numbers. A message within itself is text, its JSON.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from log_tables.limits import VALUE_DEPTH_MAX
from log_tables.schemas.moments import real
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.room import Room
from log_tables.schemas.schema import Schema, Undecodable, Unencodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_ENTRY_BYTES = 16
_DECIMAL_MAX_BYTES = 64

Show = Callable[[Any, Room], Any]
"""From a field as the runtime has it to what JSON can have."""


def to_json(schema: Schema, message: Sequence[int]) -> Callable[[bytes, int], bytes]:
    """A function from a value, and where in it the message begins, to its JSON.

    `message` are the indexes of its type in the file. It raises Undecodable. Raises InvalidSchema for a
    schema that is none.
    """
    descriptor = message_of(schema, message)
    show = _Compiler().message(descriptor)
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    parse = GetMessageClass(descriptor).FromString

    def decode(value: bytes, start: int) -> bytes:
        try:
            found = parse(value[start:])
        except DecodeError:
            raise Undecodable(f"is no {descriptor.full_name}") from None
        try:
            return msgspec.json.encode(show(found, Room()))
        except UnicodeDecodeError:
            raise Undecodable("has text that is not UTF-8") from None
        except RecursionError:
            raise Undecodable(f"is nested more than {VALUE_DEPTH_MAX} deep") from None

    return decode


def from_json(schema: Schema, message: Sequence[int]) -> Callable[[object], bytes]:
    """A function from decoded JSON, that of proto3 or ours, to the message that it stands for.

    It raises Unencodable. Raises InvalidSchema for a schema that is none.
    """
    descriptor = message_of(schema, message)
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message_factory import GetMessageClass

    made = GetMessageClass(descriptor)

    def encode(value: object) -> bytes:
        if not isinstance(value, dict):
            raise Unencodable("is no object")
        try:
            encoded: bytes = ParseDict(value, made()).SerializeToString(deterministic=True)
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Unencodable(f"is no {descriptor.full_name} ({error!s:.120})") from None
        return encoded

    return encode


def steps(schema: Schema, message: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """A function from the steps of a pointer to those of the same fields, where the number of a field becomes
    its name. Raises InvalidSchema.
    """
    descriptor = message_of(schema, message)

    def resolved(pointer: Sequence[str]) -> tuple[str, ...]:
        at: Descriptor | None = descriptor
        is_part, found = False, list[str]()
        for step in pointer:
            field = None if at is None or is_part else _field(at, step)
            found.append(step if field is None else field.name)
            if is_part:  # an item, or the value of a key
                is_part = False
            elif field is None:
                at = None
            else:
                at, is_part = _inside(field), bool(field.is_repeated)
        return tuple(found)

    return resolved


def _field(message: "Descriptor", step: str) -> "FieldDescriptor | None":
    if step.isdecimal():
        return message.fields_by_number.get(int(step))
    return message.fields_by_name.get(step)


def _inside(field: "FieldDescriptor") -> "Descriptor | None":
    """The message type of a field, or of the values of a map."""
    found: Descriptor | None = field.message_type
    if found is not None and found.GetOptions().map_entry:
        return found.fields_by_name["value"].message_type
    return found


class _Compiler:
    """Makes what shows messages, of each type once."""

    def __init__(self) -> None:
        self._made: dict[str, Show | None] = {}

    def message(self, descriptor: "Descriptor") -> Show:
        """The function that shows messages of a type."""
        name = descriptor.full_name
        if name in _WELL_KNOWN:
            return _WELL_KNOWN[name]
        if name in self._made:
            return self._made[name] or self._within_itself(name)
        self._made[name] = None
        fields = [(each.name, self._field(each)) for each in descriptor.fields]
        size = sum(len(each) + _ENTRY_BYTES for each, _ in fields)

        def show(found: Any, room: Room) -> dict[str, Any]:
            room.take(size)
            shown, at = {}, ""
            try:
                for at, of_field in fields:
                    shown[at] = of_field(found, room)
            except Undecodable as error:
                raise error.within(at) from None
            except UnicodeDecodeError:
                raise Undecodable("has text that is not UTF-8", (at,)) from None
            return shown

        self._made[name] = show
        return show

    def _within_itself(self, name: str) -> Show:
        def show(found: Any, room: Room) -> Any:
            inner = self._made[name]
            assert inner is not None
            with room.deeper() as outermost:
                shown = inner(found, room)
            return msgspec.json.encode(shown).decode() if outermost else shown

        return show

    def _field(self, field: "FieldDescriptor") -> Show:
        """The function that shows a field of a message."""
        name, is_map = (
            field.name,
            field.message_type is not None and field.message_type.GetOptions().map_entry,
        )
        if is_map:
            return self._map(name, field.message_type)
        show = self._single(field)
        if field.is_repeated:

            def items(found: Any, room: Room) -> list[Any]:
                values = getattr(found, name)
                room.take(len(values) * _ENTRY_BYTES)
                return [show(item, room) for item in values]

            return items
        if field.has_presence:
            return lambda found, room: show(getattr(found, name), room) if found.HasField(name) else None
        return lambda found, room: show(getattr(found, name), room)

    def _map(self, name: str, entry: "Descriptor") -> Show:
        show = self._single(entry.fields_by_name["value"])

        def entries(found: Any, room: Room) -> dict[str, Any]:
            values: Mapping[Any, Any] = getattr(found, name)
            room.take(len(values) * _ENTRY_BYTES)
            return {_key(key): show(values[key], room) for key in values}

        return entries

    def _single(self, field: "FieldDescriptor") -> Show:
        """The function that shows one value of a field."""
        if field.message_type is not None:
            return self.message(field.message_type)
        if field.enum_type is not None:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return lambda value, _: names.get(value, value)
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return lambda value, _: real(value)
        if field.type == field.TYPE_BYTES:
            return lambda value, _: b64encode(value).decode()
        return lambda value, _: value


def _key(key: Any) -> str:
    """The key of a map as a name: true and false as JSON has them."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _text(found: Any, _: Room) -> str:
    """A time, a duration or a field mask, as the JSON of proto3 has it."""
    try:
        text: str = found.ToJsonString()
    except (ValueError, OverflowError):
        raise Undecodable(f"is no {found.DESCRIPTOR.name} of the years 1 to 9999") from None
    return text


def _value(found: Any, _: Room) -> Any:
    """The value in a wrapper."""
    value = found.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return real(value) if isinstance(value, float) else value


def _plain(found: Any, room: Room) -> Any:
    """A value of any kind, as JSON."""
    from google.protobuf.json_format import MessageToDict, SerializeToJsonError

    room.take(found.ByteSize() * _ENTRY_BYTES)
    try:
        return MessageToDict(found)
    except (SerializeToJsonError, ValueError):
        raise Undecodable("is no JSON") from None


def _any(found: Any, _: Room) -> dict[str, str]:
    return {"@type": found.type_url, "value": b64encode(found.value).decode()}


def _decimal(found: Any, _: Room) -> str:
    """A decimal of Confluent's, as text."""
    if len(found.value) > _DECIMAL_MAX_BYTES or not 0 <= found.scale <= _DECIMAL_MAX_BYTES:
        raise Undecodable("is a decimal of too many digits")
    number = int.from_bytes(found.value, "big", signed=True)
    return f"{Decimal((number < 0, tuple(map(int, str(abs(number)))), -found.scale)):f}"


_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WELL_KNOWN: dict[str, Show] = {
    **{f"google.protobuf.{name}": _text for name in ("Timestamp", "Duration", "FieldMask")},
    **{f"google.protobuf.{name}": _plain for name in ("Struct", "Value", "ListValue")},
    **{f"google.protobuf.{name}Value": _value for name in _WRAPPERS},
    "google.protobuf.Any": _any,
    "confluent.type.Decimal": _decimal,
}
