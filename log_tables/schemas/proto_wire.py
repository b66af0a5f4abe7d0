"""Bytes of Protobuf, looked at before or instead of making a message of them.

The runtime makes all fields of each message within another: 2 bytes of a value become 40 KB where the type
has 5,000 fields. And it does not say where bytes are no message.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from log_tables.limits import EXPANDED_MAX_BYTES
from log_tables.schemas.room import Room
from log_tables.schemas.schema import Undecodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DEPTH_MAX = 100
"""The runtime reads no deeper."""

_MESSAGE_BYTES, _TEXT_BYTES, _OTHER_BYTES, _ENTRY_BYTES = 32, 16, 8, 96
"""About what the runtime takes for a message, for each of its fields, and for an entry of a map."""

_LEAST_BYTES = 2
"""A tag and a length: what a message within another takes of a value."""

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MORE, _VARINT_MAX_BYTES, _SHORT_MAX_BYTES, _TAG_MAX, _LENGTH_MAX = 0x80, 10, 5, 2**32 - 1, 2**31 - 1


@dataclass(slots=True)
class _Type:
    """A type of messages: its bytes in memory, and its fields by their numbers: the names, the types of those
    that are messages or groups, which are text, and the bytes of an item where items may be packed, 0 for
    varints.
    """

    full_name: str
    size: int
    names: dict[int, str] = field(default_factory=dict)
    messages: dict[int, "_Type"] = field(default_factory=dict)
    groups: dict[int, "_Type"] = field(default_factory=dict)
    texts: set[int] = field(default_factory=set)
    packed: dict[int, int] = field(default_factory=dict)


class Wire:
    """Looks at values of one type of messages."""

    def __init__(self, descriptor: "Descriptor") -> None:
        types = [*_types(descriptor)]
        self._type = types[0]
        within = (each.size for one in types for each in (*one.messages.values(), *one.groups.values()))
        self._largest = max(within, default=0)

    def check(self, value: bytes) -> None:
        """Raises Undecodable if the messages within `value` would take more than EXPANDED_MAX_BYTES."""
        if len(value) // _LEAST_BYTES * self._largest > EXPANDED_MAX_BYTES:
            self.count(value, Room())

    def count(self, value: bytes, room: Room) -> None:
        """Take of `room` what the messages within `value` would. Raises Undecodable if that is too much, and
        for what the runtime does not read either.
        """
        _Look(value, room, strict=False).through(0, len(value), self._type, 0)

    def why_not(self, value: bytes) -> Undecodable:
        """The reason why `value` is no such message, with the path of a field if it is found."""
        try:
            _Look(value, Room(), strict=True).through(0, len(value), self._type, 0)
        except Undecodable as error:
            return error
        return Undecodable(f"is no {self._type.full_name}")


def _types(descriptor: "Descriptor") -> Iterator[_Type]:
    """The type that `descriptor` is, and all that are within it."""
    made = {descriptor.full_name: _Type(descriptor.full_name, 0)}
    left, entries = [descriptor], []
    while left:
        each = left.pop()
        noted = made[each.full_name]
        for one in each.fields:
            if one.message_type is not None and one.message_type.full_name not in made:
                made[one.message_type.full_name] = _Type(one.message_type.full_name, 0)
                left.append(one.message_type)
            _note(one, noted, made)
        noted.size += _MESSAGE_BYTES
        if each.GetOptions().map_entry:
            noted.names.clear()  # an entry has the path of its map
            entries.append(noted)
    for noted in entries:  # an entry without a value has one, too
        inner = (*noted.messages.values(), *noted.groups.values())
        noted.size = _ENTRY_BYTES + sum(each.size for each in inner)
    yield from made.values()


def _note(one: "FieldDescriptor", noted: _Type, made: dict[str, _Type]) -> None:
    noted.names[one.number] = one.name
    noted.size += _TEXT_BYTES if one.cpp_type == one.CPPTYPE_STRING else _OTHER_BYTES
    if one.message_type is not None:
        inner = noted.groups if one.type == one.TYPE_GROUP else noted.messages
        inner[one.number] = made[one.message_type.full_name]
    elif one.type == one.TYPE_STRING:
        noted.texts.add(one.number)
    elif one.is_repeated and one.type != one.TYPE_BYTES:
        noted.packed[one.number] = _width(one)


def _width(one: "FieldDescriptor") -> int:
    if one.type in (one.TYPE_DOUBLE, one.TYPE_FIXED64, one.TYPE_SFIXED64):
        return 8
    return 4 if one.type in (one.TYPE_FLOAT, one.TYPE_FIXED32, one.TYPE_SFIXED32) else 0


class _TooDeep(Undecodable):
    """A value is nested too deep; its path would be as long."""

    def within(self, name: str) -> Undecodable:
        del name
        return self


@dataclass(slots=True)
class _Look:
    """One look through `data`, which takes of `room` what the messages in it would.

    `strict` says whether to look at text and at packed items, too, which take no room.
    """

    data: bytes
    room: Room
    strict: bool

    def through(self, at: int, end: int, kind: _Type | None, depth: int, group: int = 0) -> int:
        """Where a message from `at` on ends: at `end`, or behind the end of the group with this number, of
        which the type may not be known. Raises Undecodable.
        """
        if depth > _DEPTH_MAX:
            raise _TooDeep(f"is nested more than {_DEPTH_MAX} deep")
        while at < end:
            start = at
            tag = self.data[at]
            if tag < _MORE:
                at += 1
            else:
                tag, at = self._varint(start, end)
            number, wire = tag >> 3, tag & 7
            if tag > _TAG_MAX or at - start > _SHORT_MAX_BYTES or (number == 0 and kind is not None):
                raise Undecodable("has a broken tag")
            if wire == _GROUP_END:
                if number != group:
                    raise Undecodable("ends a group that has not begun")
                return at
            try:
                at = self._past(at, end, number, wire, kind, depth)
            except Undecodable as error:
                name = None if kind is None else kind.names.get(number)
                raise error if name is None else error.within(name) from None
        if group:
            raise Undecodable("ends too early")
        return at

    def _past(self, at: int, end: int, number: int, wire: int, kind: _Type | None, depth: int) -> int:
        """Where the field ends of which the value begins at `at`."""
        if wire == _VARINT:
            return self._varint(at, end)[1]
        if wire == _GROUP:
            inner = None if kind is None else kind.groups.get(number)
            self.room.take(0 if inner is None else inner.size)
            return self.through(at, end, inner, depth + 1, number)
        at, past = self._bounds(at, end, wire)
        if wire == _BYTES and kind is not None:
            inner = kind.messages.get(number)
            if inner is not None:
                self.room.take(inner.size)
                return self.through(at, past, inner, depth + 1)
            if self.strict:
                self._check(at, past, number, kind)
        return past

    def _bounds(self, at: int, end: int, wire: int) -> tuple[int, int]:
        """(Where what has a length begins, where it ends)."""
        size = _SIZES.get(wire)
        if size is None:
            if wire != _BYTES:
                raise Undecodable("has a broken tag")
            start = at
            size, at = self._varint(start, end)
            size = size if at - start <= _SHORT_MAX_BYTES else _LENGTH_MAX + 1
        if size > _LENGTH_MAX:
            raise Undecodable("has a length of 2 GiB or more")
        if at + size > end:
            raise Undecodable("ends too early")
        return at, at + size

    def _check(self, at: int, end: int, number: int, kind: _Type) -> None:
        """Raises Undecodable for text that is none, and for items that do not fill their length."""
        if number in kind.texts:
            try:
                self.data[at:end].decode()
            except UnicodeDecodeError:
                raise Undecodable("has text that is not UTF-8") from None
        width = kind.packed.get(number)
        if width:
            if (end - at) % width:
                raise Undecodable("ends too early")
        elif width == 0:
            while at < end:
                at = self._varint(at, end)[1]

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """(The number at `at`, where the next byte is)."""
        data, found, shift = self.data, 0, 0
        most = min(end, at + _VARINT_MAX_BYTES)
        while at < most:
            byte = data[at]
            at += 1
            if byte < _MORE:
                return found | byte << shift, at
            found |= (byte & ~_MORE) << shift
            shift += 7
        if shift < 7 * _VARINT_MAX_BYTES:
            raise Undecodable("ends too early")
        raise Undecodable("has a number of more than 64 bits")
