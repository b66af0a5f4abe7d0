"""Protobuf: a reader of messages, compiled of a schema, by the runtime of Protobuf.

A message becomes what JSON can have, by the table of docs/columns.md: much like the JSON of proto3, with the
names of the file, and whole numbers as numbers. A message within itself is text, its JSON.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from log_tables.schemas.moments import real
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.proto_known import LIST_VALUE, STRUCT, TEXT_BYTES, TEXTS, VALUE, is_map, known
from log_tables.schemas.proto_wire import Wire
from log_tables.schemas.room import Room
from log_tables.schemas.schema import InvalidSchema, Schema, Undecodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

_ENTRY_BYTES = 16
_TYPES_MAX_DEPTH = 300
_STEP_MAX_DIGITS = 9
"""No number of a field is longer."""


Show = Callable[[Any, Room], Any]
"""From a message, or one of its fields, as the runtime has it to what JSON can have."""


def to_json(schema: Schema, message: Sequence[int]) -> Callable[[bytes, int], bytes]:
    """A function from a value, and where in it the message begins, to its JSON.

    `message` are the indexes of its type in the file. It raises Undecodable. Raises InvalidSchema for a
    schema that is none.
    """
    descriptor = message_of(schema, message)
    from google.protobuf.message import DecodeError

    made = class_of(descriptor)
    # Those of the class: a field may have the same name.
    parse, has = made.FromString, made.HasField
    show, wire = _Compiler(has).compiled(descriptor), Wire(descriptor)

    def decode(value: bytes, start: int) -> bytes:
        data = value[start:]
        wire.check(data)
        try:
            found = parse(data)
        except DecodeError:
            raise wire.why_not(data) from None
        try:
            return msgspec.json.encode(show(found, Room()))
        except RecursionError:
            raise Undecodable("is nested too deep") from None

    return decode


def class_of(descriptor: "Descriptor") -> Any:
    """The class of the messages of a type. Raises InvalidSchema."""
    from google.protobuf.message_factory import GetMessageClass

    # It goes from type to type by recursion, in this order, and if that fails it leaves half of them.
    seen, way = {descriptor.full_name}, [iter(descriptor.fields)]
    while way:
        kind = next((each.message_type for each in way[-1] if each.message_type is not None), None)
        if kind is None:
            way.pop()
        elif kind.full_name not in seen:
            seen.add(kind.full_name)
            way.append(iter(kind.fields))
            if len(way) > _TYPES_MAX_DEPTH:
                raise InvalidSchema("the types of the schema lead too far, each to the next")
    return GetMessageClass(descriptor)


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
    if step.isdecimal() and len(step) <= _STEP_MAX_DIGITS:
        return message.fields_by_number.get(int(step))
    return message.fields_by_name.get(step)


def _inside(field: "FieldDescriptor") -> "Descriptor | None":
    """The message type of a field, or of the values of a map; None where JSON does not have its fields."""
    found: Descriptor | None = field.message_type
    if is_map(field):
        found = field.message_type.fields_by_name["value"].message_type
    return None if found is None or known(found) else found


@dataclass(slots=True)
class _Fields:
    """The fields of a type of messages: what shows them, and the bytes that they take at the least.

    `nulls` has the names of all, in order. Those of `scalars` are read at once, by `read`; some become
    something else by `forms`, or are no number of JSON, as `reals` may be. Those of `options` may be absent.
    `parts` are all others.
    """

    size: int = 0
    nulls: dict[str, Any] = field(default_factory=dict)
    scalars: tuple[str, ...] = ()
    read: Callable[[Any], Iterable[Any]] = tuple
    forms: list[tuple[str, Callable[[Any], Any]]] = field(default_factory=list)
    reals: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    parts: list[tuple[str, Show]] = field(default_factory=list)
    has: Callable[[Any, str], bool] = hasattr
    has_messages: bool = False

    def show(self, found: Any, room: Room) -> dict[str, Any]:
        """A message, as JSON has it. Raises Undecodable."""
        room.take(self.size)
        shown, at = self.nulls.copy(), ""
        try:
            shown.update(zip(self.scalars, self.read(found), strict=True))
            for at, form in self.forms:
                shown[at] = form(shown[at])
            for at in self.reals:
                if not isfinite(shown[at]):
                    shown[at] = real(shown[at])
            for at in self.options:
                if not self.has(found, at):
                    shown[at] = None
            for at, part in self.parts:
                shown[at] = part(found, room)
        except Undecodable as error:
            raise error.within(at) from None
        except UnicodeDecodeError:
            raise Undecodable("has text that is not UTF-8", (at or _not_text(found, self.scalars),)) from None
        return shown


def _not_text(found: Any, names: Iterable[str]) -> str:
    """The first of the fields with `names` that cannot be read."""
    for name in names:
        try:
            getattr(found, name)
        except UnicodeDecodeError:
            return name
    return ""


class _Compiler:
    """Makes what shows messages, of each type once. `has` says whether a message has a field."""

    def __init__(self, has: Callable[[Any, str], bool]) -> None:
        self._has = has
        self._made: dict[str, Show] = {}
        self._left: list[Callable[[], None]] = []

    def compiled(self, descriptor: "Descriptor") -> Show:
        """The function that shows messages of a type. However long types lead from one to the next."""
        show = self._message(descriptor)
        while self._left:
            self._left.pop()()
        return show

    def _message(self, descriptor: "Descriptor") -> Show:
        """The function that shows messages of a type, which is ready once none are left."""
        name = descriptor.full_name
        if name not in self._made:
            if known(descriptor):
                self._made[name] = self._known(descriptor)
            else:
                fields = _Fields()
                self._left.append(lambda: self._fill(descriptor, fields))
                self._made[name] = _within_itself(name, fields)
        return self._made[name]

    def _fill(self, descriptor: "Descriptor", fields: _Fields) -> None:
        fields.has, scalars = self._has, list[str]()
        for each in descriptor.fields:
            name, form, width = each.name, *_form(each)
            fields.nulls[name] = None
            fields.size += len(name) + width
            fields.has_messages |= each.message_type is not None
            if each.message_type is not None or each.is_repeated:
                fields.parts.append((name, self._part(each)))
                continue
            scalars.append(name)
            if form is real:
                fields.reals.append(name)
            elif form is not None:
                fields.forms.append((name, form))
            if each.has_presence:
                fields.options.append(name)
        fields.scalars = tuple(scalars)
        if len(scalars) == 1:
            read_one = attrgetter(*scalars)
            fields.read = lambda found: (read_one(found),)
        elif scalars:
            fields.read = attrgetter(*scalars)
        else:
            fields.read = lambda _: ()

    def _part(self, each: "FieldDescriptor") -> Show:
        """The function that shows a field of a message that is a message, or has several values."""
        name, has = each.name, self._has
        if is_map(each):
            return self._map(name, each.message_type)
        if each.is_repeated:
            return self._items(each)
        show = self._message(each.message_type)
        return lambda found, room: show(getattr(found, name), room) if has(found, name) else None

    def _items(self, each: "FieldDescriptor") -> Show:
        name, form, width = each.name, *_form(each)
        show = None if each.message_type is None else self._message(each.message_type)

        def items(found: Any, room: Room) -> list[Any]:
            values = getattr(found, name)
            room.take(len(values) * width)
            if show is not None:
                return [show(item, room) for item in values]
            return [*values] if form is None else [form(item) for item in values]

        return items

    def _map(self, name: str, entry: "Descriptor") -> Show:
        value, (key_form, _) = entry.fields_by_name["value"], _form(entry.fields_by_name["key"])
        form, width = _form(value)
        show = None if value.message_type is None else self._message(value.message_type)
        width += _ENTRY_BYTES

        def entries(found: Any, room: Room) -> dict[str, Any]:
            values: Mapping[Any, Any] = getattr(found, name)
            room.take(len(values) * width)
            # In order: the runtime has them in another one in each process.
            keys = sorted(map(key_form, values)) if key_form is not None else sorted(values)
            if show is not None:
                return {_key(key): show(values[key], room) for key in keys}
            return {_key(key): values[key] if form is None else form(values[key]) for key in keys}

        return entries

    def _known(self, descriptor: "Descriptor") -> Show:
        """The function that shows a type that JSON has a form of its own for."""
        name, first = descriptor.full_name, descriptor.fields[0]
        if name in TEXTS:
            text = TEXTS[name]

            def texts(found: Any, room: Room) -> Any:
                room.take(TEXT_BYTES)
                return text(found)

            return texts
        if name == VALUE:
            return self._value(descriptor)
        if name in (STRUCT, LIST_VALUE):
            return self._map(first.name, first.message_type) if name == STRUCT else self._items(first)
        form, width = _form(first)

        def wrapped(found: Any, room: Room) -> Any:
            room.take(width)
            return found.value if form is None else form(found.value)

        return wrapped

    def _value(self, descriptor: "Descriptor") -> Show:
        """The function that shows a value of any kind."""
        inner: dict[str, Show] = {}
        kinds = {each.name: each.message_type for each in descriptor.fields if each.message_type is not None}
        self._left.append(lambda: inner.update({name: self._message(each) for name, each in kinds.items()}))

        def value(found: Any, room: Room) -> Any:
            room.take(_ENTRY_BYTES)
            kind = found.WhichOneof("kind")
            if kind is None or kind == "null_value":
                return None
            if kind in inner:
                return inner[kind](getattr(found, kind), room)
            return real(found.number_value) if kind == "number_value" else getattr(found, kind)

        return value


def _within_itself(name: str, fields: _Fields) -> Show:
    """Shows a message: as text, if it is within one of the same type."""

    def show(found: Any, room: Room) -> Any:
        if not fields.has_messages:
            return fields.show(found, room)
        if name in room.within:
            with room.deeper() as outermost:
                shown = fields.show(found, room)
            return msgspec.json.encode(shown).decode() if outermost else shown
        room.within.add(name)
        shown = fields.show(found, room)
        room.within.discard(name)
        return shown

    return show


def _form(each: "FieldDescriptor") -> tuple[Callable[[Any], Any] | None, int]:
    """(What a value of a field that is no message becomes, None: what it is; the bytes that it takes)."""
    if each.enum_type is not None:
        return _enum(each.enum_type)
    if each.cpp_type in (each.CPPTYPE_FLOAT, each.CPPTYPE_DOUBLE):
        return real, _ENTRY_BYTES
    if each.type == each.TYPE_STRING:
        return (_text if _may_be_bytes(each.file) else None), _ENTRY_BYTES
    return (_base64 if each.type == each.TYPE_BYTES else None), _ENTRY_BYTES


def _enum(kind: "EnumDescriptor") -> tuple[Callable[[int], str | int], int]:
    names = {number: each.name for number, each in kind.values_by_number.items()}
    return lambda value: names.get(value, value), _ENTRY_BYTES + max(map(len, names.values()), default=0)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


@lru_cache(maxsize=64)
def _may_be_bytes(file: "FileDescriptor") -> bool:
    """Whether the runtime gives text of this file as bytes where it is not UTF-8: only proto3 checks it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    said = FileDescriptorProto()
    file.CopyToProto(said)
    return bool(said.syntax != "proto3")


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        raise Undecodable("has text that is not UTF-8")
    return value


def _key(key: Any) -> str:
    """The key of a map as a name: true and false as JSON has them."""
    return str(key).lower() if isinstance(key, bool) else str(key)
