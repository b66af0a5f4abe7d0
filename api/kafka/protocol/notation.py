"""How Kafka's messages are described: classes whose annotations are the fields, in the order of the wire.

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, Versions(9)] = -1
        replica_directory_id: Annotated[Uuid, Versions(17), Tagged(0)] = ZERO_UUID

A field is named as in Kafka's own descriptions, in snake case, and has Kafka's default. It is in every
version of its struct unless `Versions` says otherwise. A field that may be None may be null in each of its
versions, unless `Nullable` says otherwise. A tagged struct that is None is not sent, as Kafka does with its
default.
"""

import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin

import msgspec

from api.kafka.protocol.primitives import Fragments

LATEST: Final = 2**15 - 1
"""The last version that there can be: a version is an int16."""

ZERO_UUID: Final = bytes(16)
"""No topic, and no directory."""


# Not tuples: two that are equal would be one annotation, as `typing` remembers those that it has made.
@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a message that have a field, both ends included."""

    first: int
    last: int = LATEST

    def include(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Nullable(Versions):
    """The versions in which a field may be null."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """The tag of a field that comes after all others, and only where it is not its default (KIP-482)."""

    number: int


@dataclass(frozen=True, slots=True)
class Wire:
    """How a value is laid out: a format of `struct`, or the name of a layout that has a length."""

    layout: str


EVERY_VERSION: Final = Versions(0)
NEVER: Final = LATEST + 1
"""The first flexible version of a message that has none."""

Int8 = Annotated[int, Wire("b")]
Int16 = Annotated[int, Wire("h")]
UInt16 = Annotated[int, Wire("H")]
Int32 = Annotated[int, Wire("i")]
Int64 = Annotated[int, Wire("q")]
Float64 = Annotated[float, Wire("d")]
Uuid = Annotated[bytes, Wire("16s")]
Records = Annotated[bytes | bytearray | memoryview | None, Wire("records")]
"""Record batches, which are decoded elsewhere: a view of the frame where they come, and never copied."""

MadeRecords = Annotated[bytes | bytearray | memoryview | Fragments | None, Wire("records")]
"""Record batches, in pieces where they are made here."""

_LAYOUTS: Final = {bool: "?", str: "string", bytes: "bytes"}

STRING, BYTES, RECORDS = "string", "bytes", "records"


class Struct(msgspec.Struct):
    """A part of a message."""


class Message(Struct):
    """A request or a response."""

    versions: ClassVar[Versions]
    first_flexible: ClassVar[int] = NEVER
    """The first version with compact lengths and tagged fields (KIP-482)."""

    advertised_min: ClassVar[int | None] = None
    """The least version that ApiVersions names, where that is not the first of `versions`."""

    flexible_header: ClassVar[bool] = True
    """Whether the header of a response has tagged fields in flexible versions, too."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it is laid out."""

    name: str
    element: str | type[Struct]
    """The layout of the value, or of each element of an array: `Wire.layout`, or a struct's class."""

    repeated: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: object

    def null_in(self, version: int) -> bool:
        """Whether it may be null in `version`."""
        return self.nullable is not None and self.nullable.include(version)


@cache
def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The fields of `struct`, in the order of the wire."""
    return tuple(_field(info) for info in msgspec.structs.fields(struct))


def fields_in(struct: type[Struct], version: int) -> list[Field]:
    """The fields of `struct` in `version`, without tagged ones."""
    return [field for field in fields_of(struct) if field.tag is None and field.versions.include(version)]


def tagged_in(struct: type[Struct], version: int) -> list[Field]:
    """The tagged fields of `struct` in `version`, by tag: their order on the wire."""
    tagged = [field for field in fields_of(struct) if field.tag is not None]
    return sorted(
        (field for field in tagged if field.versions.include(version)), key=lambda field: field.tag or 0
    )


def has_more(struct: Struct, most: int) -> bool:
    """Whether the arrays of `struct` have more than `most` elements together."""
    return _left(struct, most) < 0


def _left(struct: Struct, most: int) -> int:
    for name, nested in _arrays(type(struct)):
        value = getattr(struct, name)
        if not value:
            continue
        some = value if isinstance(value, list) else [value]
        most -= len(some)
        if nested:
            for each in some:
                most = _left(each, most)
                if most < 0:
                    break
        if most < 0:
            break
    return most


@cache
def _arrays(struct: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """The arrays and structs in `struct` that may have arrays, and whether theirs are to be looked at."""
    found = []
    for field in fields_of(struct):
        nested = isinstance(field.element, type) and bool(_arrays(field.element))
        if field.repeated or nested:
            found.append((field.name, nested))
    return tuple(found)


@cache
def names_in(message: type[Message]) -> tuple[str, ...]:
    """The arrays of `message` itself: what a request names, as topics or groups."""
    return tuple(field.name for field in fields_of(message) if field.repeated)


def _field(info: msgspec.structs.FieldInfo) -> Field:
    kind, marks = _unwrapped(info.type)
    optional = False
    if get_origin(kind) in (Union, types.UnionType):
        optional = type(None) in get_args(kind)
        if not any(isinstance(mark, Wire) for mark in marks):
            kind = next(part for part in get_args(kind) if part is not type(None))
            kind, inner = _unwrapped(kind)
            marks = [*marks, *inner]
    repeated = get_origin(kind) is list
    if repeated:
        kind, inner = _unwrapped(get_args(kind)[0])
        marks = [*marks, *inner]
    versions, tag, element = EVERY_VERSION, None, _LAYOUTS.get(kind, kind)
    nullable: Versions | None = None
    for mark in marks:
        match mark:
            case Nullable():
                nullable = mark
            case Versions():
                versions = mark
            case Tagged():
                tag = mark.number
            case Wire():
                element = mark.layout
    if optional and nullable is None:
        nullable = versions
    default = list[Any]() if info.default_factory is list else info.default
    return Field(info.name, element, repeated, versions, nullable, tag, default)


def _unwrapped(kind: Any) -> tuple[Any, list[object]]:
    if get_origin(kind) is Annotated:
        plain, *marks = get_args(kind)
        return plain, marks
    return kind, []
