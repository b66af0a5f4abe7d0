"""Avro: a reader of binary values, compiled of a schema (the specification, 1.12).

fastavro reads the schema. It does not read the values: it names no field in its errors, and follows lengths,
counts and recursion wherever they lead. A reader here stays within the bytes of the value and a room for what
it makes.

A value becomes what JSON can have, by the table of docs/columns.md. A union of null and one type is that type
or null; one of several types is an object with the name of the type. A type within itself is text, its JSON.
"""

import json
import struct
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType

from log_tables.limits import VALUE_DEPTH_MAX
from log_tables.schemas.moments import date_text, duration_text, instant_text, local_text, real, time_text
from log_tables.schemas.room import Room
from log_tables.schemas.schema import InvalidSchema, Schema, Undecodable, guid
from log_tables.schemas.varint import zigzag

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_DURATION = struct.Struct("<III")
_WITHOUT_BYTES_MAX = 1_000
"""Items of a block that take no bytes."""

_RECORD_BYTES, _ENTRY_BYTES = 64, 16
"""About what a record takes, and an item, besides the bytes in the value."""

Type = str | list[Any] | dict[str, Any]
"""A type of a schema as JSON has it."""


Read = Callable[[bytes, int, Room], tuple[Any, int]]
"""Reads what begins at a place: gives it, and where the next begins. Raises IndexError at the end."""


def to_json(schema: Schema) -> Callable[[bytes, int], bytes]:
    """A function from a value, and where in it the encoded part begins, to its JSON.

    It raises Undecodable. Raises InvalidSchema for a schema that is none.
    """
    named: dict[str, Any] = {}
    read = _Compiler(named).reader(parsed(schema, named))

    def decode(value: bytes, start: int) -> bytes:
        try:
            found, end = read(value, start, Room())
        except IndexError:
            raise Undecodable("ends too early") from None
        except RecursionError:
            raise Undecodable(f"is nested more than {VALUE_DEPTH_MAX} deep") from None
        if end != len(value):
            raise Undecodable(f"has {len(value) - end} bytes after its end")
        return msgspec.json.encode(found)

    return decode


def steps(schema: Schema) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """A function from the steps of a pointer to those of the same fields in `schema`: a step that is an alias
    of a field becomes its name. Raises InvalidSchema.
    """
    named: dict[str, Any] = {}
    whole = parsed(schema, named)

    def resolved(pointer: Sequence[str]) -> tuple[str, ...]:
        found, at = [], [whole]
        for step in pointer:
            name, at = _inside(at, step, named)
            found.append(name)
        return tuple(found)

    return resolved


def _inside(kinds: Sequence[Type], step: str, named: dict[str, Any]) -> tuple[str, list[Type]]:
    """(The field to which `step` leads from one of `kinds`, its types); without types where it is unknown."""
    left = [*kinds]
    while left:
        kind = left.pop()
        if isinstance(kind, list):
            several = sum(each != "null" for each in kind) > 1
            if not several:
                left += kind
            elif step in (names := branch_names(kind)):
                return step, [kind[names.index(step)]]
        elif isinstance(kind, str):
            left += [named[kind]] if kind in named else []
        elif kind["type"] in ("record", "error"):
            field = _field(kind["fields"], step)
            if field is not None:
                return field["name"], [field["type"]]
        elif kind["type"] in ("array", "map"):
            return step, [kind["items" if kind["type"] == "array" else "values"]]
        elif not isinstance(kind["type"], str):
            left.append(kind["type"])
    return step, []


def _field(fields: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The field of this name; without one, the field that has it as an alias."""
    own = (each for each in fields if each["name"] == name)
    others = (each for each in fields if name in each.get("aliases", ()))
    return next(own, None) or next(others, None)


def parsed(schema: Schema, named: dict[str, Any]) -> Type:
    """The type that `schema` is, with full names; `named` gets those that have one. Raises InvalidSchema."""
    try:
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        found: Type = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        return found
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"the schema is no Avro schema: {error!r:.200}") from None
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None


class _Compiler:
    """Makes readers of types, of which `named` are those with names."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._readers: dict[str, Read | None] = {}
        self._leasts: dict[str, int] = {}

    def reader(self, kind: Type) -> Read:
        """The reader of a type."""
        if isinstance(kind, list):
            return self._union(kind)
        if isinstance(kind, str):
            return _PLAIN[kind] if kind in _PLAIN else self._named_reader(kind)
        name = kind["type"]
        logical = _LOGICAL.get((name, kind.get("logicalType", ""))) if isinstance(name, str) else None
        made = logical(kind) if logical is not None else None
        return self._plain(name, kind) if made is None else made

    def _plain(self, name: Type, kind: dict[str, Any]) -> Read:
        """The reader of a type of this name, whatever it stands for."""
        match name:
            case "record" | "error":
                return self._record(kind)
            case "array":
                return _items(self.reader(kind["items"]), self._least(kind["items"]))
            case "map":
                return _entries(self.reader(kind["values"]))
            case "enum":
                return _enum(kind["symbols"])
            case "fixed":
                return _fixed(kind["size"], _base64)
        return self.reader(name)

    def _named_reader(self, name: str) -> Read:
        known = self._readers.get(name)
        if known is not None or name not in self._readers:
            return known or self.reader(self._named[name])
        readers = self._readers  # it is within itself: its reader is there when this one is called

        def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
            inner = readers[name]
            assert inner is not None
            return inner(data, at, room)

        return read

    def _record(self, kind: dict[str, Any]) -> Read:
        type_name = kind["name"]
        self._readers[type_name] = None
        fields = [(each["name"], self.reader(each["type"])) for each in kind["fields"]]
        size = _RECORD_BYTES + sum(len(name) + _ENTRY_BYTES for name, _ in fields)

        def read_fields(data: bytes, at: int, room: Room) -> tuple[Any, int]:
            room.take(size)
            found, name = {}, ""
            try:
                for name, of_field in fields:
                    found[name], at = of_field(data, at, room)
            except Undecodable as error:
                raise error.within(name) from None
            except IndexError:
                raise Undecodable("ends too early", (name,)) from None
            return found, at

        def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
            if type_name in room.within:
                return _as_text(read_fields, data, at, room)
            room.within.add(type_name)
            found = read_fields(data, at, room)
            room.within.discard(type_name)
            return found

        made = read if self._leads_to(kind["fields"], type_name) else read_fields
        self._readers[type_name] = made
        return made

    def _leads_to(self, fields: Sequence[dict[str, Any]], name: str) -> bool:
        """Whether a type of this name may be in the types of `fields`."""
        left: list[Any] = [each["type"] for each in fields]
        seen = set[str]()
        while left:
            kind = left.pop()
            if isinstance(kind, list):
                left += kind
            elif name in (kind, kind.get("name") if isinstance(kind, dict) else None):
                return True
            elif isinstance(kind, dict):
                left += [kind[part] for part in ("type", "items", "values") if part in kind]
                left += [each["type"] for each in kind.get("fields", ())]
            elif kind in self._named and kind not in seen:
                seen.add(kind)
                left.append(self._named[kind])
        return False

    def _union(self, kinds: list[Type]) -> Read:
        readers = [self.reader(kind) for kind in kinds]
        names: list[str | None] = [None] * len(kinds)
        if sum(kind != "null" for kind in kinds) > 1:
            names = branch_names(kinds)

        def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
            branch, at = zigzag(data, at)
            if not 0 <= branch < len(readers):
                raise Undecodable(f"has branch {branch} of a union of {len(readers)}")
            found, at = readers[branch](data, at, room)
            name = names[branch]
            return (found if name is None or found is None else {name: found}), at

        return read

    def _least(self, kind: Type) -> int:
        """The bytes that a value of a type has at the least; 0 for a type within itself."""
        if isinstance(kind, list):
            return 1
        if isinstance(kind, str):
            if kind in _LEAST:
                return _LEAST[kind]
            return self._leasts[kind] if kind in self._leasts else self._least(self._named[kind])
        name = kind["type"]
        if name in ("record", "error"):
            self._leasts.setdefault(kind["name"], 0)  # for the type within itself
            least = sum(self._least(each["type"]) for each in kind["fields"])
            self._leasts[kind["name"]] = least
            return least
        if name == "fixed":
            return int(kind["size"])
        return 1 if name in ("array", "map", "enum") else self._least(name)


def branch_names(kinds: Sequence[Type]) -> list[str | None]:
    """The names of the types of a union, None for null: that of a record without its namespace, if no other
    has it.
    """
    full = [_name(kind) for kind in kinds]
    short = Counter(name.rpartition(".")[2] for name in full)
    names = (name.rpartition(".")[2] if short[name.rpartition(".")[2]] == 1 else name for name in full)
    return [None if name == "null" else name for name in names]


def _name(kind: Type) -> str:
    if isinstance(kind, dict):
        name = kind["name"] if kind["type"] in ("record", "error", "enum", "fixed") else kind["type"]
        return _name(name)
    return kind if isinstance(kind, str) else "union"


def _as_text(read: Read, data: bytes, at: int, room: Room) -> tuple[Any, int]:
    """Read a type within itself, as the text of its JSON; within such a text as it is."""
    with room.deeper() as outermost:
        found, at = read(data, at, room)
    return (msgspec.json.encode(found).decode() if outermost else found), at


def _blocks(data: bytes, at: int, least: int) -> tuple[int, int]:
    """(The number of items in the block at `at`, where they begin); each has `least` bytes or more."""
    count, at = zigzag(data, at)
    if count < 0:  # the size of the block follows
        count = -count
        _, at = zigzag(data, at)
    if count > ((len(data) - at) // least if least else _WITHOUT_BYTES_MAX):
        raise Undecodable(f"has {count} items in {len(data) - at} bytes")
    return count, at


def _items(read_item: Read, least: int) -> Read:
    def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _blocks(data, at, least)
            if count == 0:
                return found, at
            room.take(count * _ENTRY_BYTES)
            for _ in range(count):
                item, at = read_item(data, at, room)
                found.append(item)

    return read


def _entries(read_item: Read) -> Read:
    def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _blocks(data, at, 1)
            if count == 0:
                return found, at
            room.take(count * _ENTRY_BYTES)
            for _ in range(count):
                key, at = _string(data, at, room)
                found[key], at = read_item(data, at, room)

    return read


def _enum(symbols: Sequence[str]) -> Read:
    def read(data: bytes, at: int, room: Room) -> tuple[Any, int]:
        number, at = zigzag(data, at)
        if not 0 <= number < len(symbols):
            raise Undecodable(f"has symbol {number} of an enum of {len(symbols)}")
        room.take(len(symbols[number]))
        return symbols[number], at

    return read


def _cut(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise Undecodable(f"has a length of {size}, and {len(data) - at} bytes are left")
    return data[at:end], end


def _fixed(size: int, form: Callable[[bytes], object]) -> Read:
    def read(data: bytes, at: int, _: Room) -> tuple[Any, int]:
        found, at = _cut(data, at, size)
        return form(found), at

    return read


def _bytes(form: Callable[[bytes], object]) -> Read:
    def read(data: bytes, at: int, _: Room) -> tuple[Any, int]:
        size, at = zigzag(data, at)
        found, at = _cut(data, at, size)
        return form(found), at

    return read


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Undecodable("has text that is not UTF-8") from None


_string = _bytes(_utf8)


def _number(data: bytes, at: int, _: Room) -> tuple[Any, int]:
    return zigzag(data, at)


def _null(_data: bytes, at: int, _: Room) -> tuple[Any, int]:
    return None, at


def _boolean(data: bytes, at: int, _: Room) -> tuple[Any, int]:
    byte = data[at]
    if byte > 1:
        raise Undecodable(f"has {byte} as a boolean")
    return byte == 1, at + 1


def _real(form: struct.Struct) -> Read:
    def read(data: bytes, at: int, _: Room) -> tuple[Any, int]:
        end = at + form.size
        if end > len(data):
            raise Undecodable("ends too early")
        return real(form.unpack_from(data, at)[0]), end

    return read


_PLAIN: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number,
    "long": _number,
    "float": _real(_FLOAT),
    "double": _real(_DOUBLE),
    "bytes": _bytes(_base64),
    "string": _string,
}
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


def _of_number(form: Callable[..., object], *args: int) -> Callable[[dict[str, Any]], Read]:
    """The reader of numbers as `form(number, *args)` has them, whatever else the type says."""

    def read(data: bytes, at: int, _: Room) -> tuple[Any, int]:
        number, at = zigzag(data, at)
        return form(number, *args), at

    return lambda _: read


def _decimal(kind: dict[str, Any]) -> Read | None:
    """The reader of a decimal; None for one that no Delta column could hold, which stays bytes."""
    precision, scale = kind.get("precision"), kind.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return None

    def form(data: bytes) -> str:
        if len(data) > precision // 2 + 1:  # a byte has more than two digits
            raise Undecodable(f"has more than {precision} digits")
        number = int.from_bytes(data, "big", signed=True)
        if abs(number) >= 10**precision:
            raise Undecodable(f"has more than {precision} digits")
        return f"{Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)):f}"

    return _fixed(kind["size"], form) if kind["type"] == "fixed" else _bytes(form)


def _uuid_bytes(kind: dict[str, Any]) -> Read | None:
    return _fixed(16, guid) if kind["size"] == 16 else None


def _duration(kind: dict[str, Any]) -> Read | None:
    return _fixed(12, lambda data: duration_text(*_DURATION.unpack(data))) if kind["size"] == 12 else None


_LOGICAL: dict[tuple[str, str], Callable[[dict[str, Any]], Read | None]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("fixed", "uuid"): _uuid_bytes,
    ("fixed", "duration"): _duration,
    ("int", "date"): _of_number(date_text),
    ("int", "time-millis"): _of_number(time_text, 3),
    ("long", "time-micros"): _of_number(time_text, 6),
    ("long", "timestamp-millis"): _of_number(instant_text, 3),
    ("long", "timestamp-micros"): _of_number(instant_text, 6),
    ("long", "timestamp-nanos"): _of_number(instant_text, 9),
    ("long", "local-timestamp-millis"): _of_number(local_text, 3),
    ("long", "local-timestamp-micros"): _of_number(local_text, 6),
    ("long", "local-timestamp-nanos"): _of_number(local_text, 9),
}
"""Readers by type and logical type; any other logical type is the type itself, as the specification says."""
