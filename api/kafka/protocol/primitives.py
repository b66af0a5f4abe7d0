"""Small parts of every message: varints, strings, and the one error of bytes that are no message."""

from collections.abc import Sequence
from typing import Final

_VARINT_MAX_BYTES: Final = 5

ONE_BYTE: Final = 0x80
"""Values below this take one byte as a varint, as nearly all lengths do."""


class Fragments:
    """Bytes that are sent one after the other: to join them would be to copy them."""

    __slots__ = ("_size", "fragments")

    def __init__(self, fragments: Sequence[bytes | memoryview]) -> None:
        self.fragments = fragments
        self._size = sum(map(len, fragments))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.fragments)


class Malformed(ValueError):
    """Bytes that are no message of their API and version. The connection that sent them ends."""


def varint_tail(data: memoryview, at: int, first: int) -> tuple[int, int]:
    """An unsigned varint whose first byte, `first`, says that more follow from `at` on; and where it ends.

    Raises Malformed: it takes more than five bytes. IndexError: it does not end.
    """
    value, shift = first & 0x7F, 7
    while shift < 7 * _VARINT_MAX_BYTES:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            return value, at
        shift += 7
    raise Malformed(f"a varint takes more than {_VARINT_MAX_BYTES} bytes")


def varint(value: int) -> bytes:
    """`value`, from 0 to 2**32 - 1, as an unsigned varint."""
    out = bytearray()
    while value >= ONE_BYTE:
        out.append(value & 0x7F | ONE_BYTE)
        value >>= 7
    out.append(value)
    return bytes(out)


class TooMany(Malformed):
    """A message that has more elements than its reader wants, or than any may have."""


def no_room(field: str, count: int) -> Malformed:
    """The error of a field that is `count` bytes or elements long, by its own words."""
    return Malformed(f"{field}: {count} is more than follows, or than one text may have")


def too_many(field: str, count: int) -> TooMany:
    """The error of an array that has `count` elements, by its own words."""
    return TooMany(f"{field}: {count} elements are more than one request may have; send several")


def no_null(field: str) -> Malformed:
    """The error of a field that is null where this version has no null."""
    return Malformed(f"{field} must not be null")


def skip_tags(data: memoryview, at: int, count: int, budget: int) -> tuple[int, int]:
    """Where `count` tagged fields from `at` on end, and the `budget` of elements less them.

    Raises Malformed: they are more than the budget, or than the bytes that follow. IndexError: they do not
    end.
    """
    budget -= count
    if budget < 0:
        raise too_many("tagged fields", count)
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        at += size
        if at > len(data):
            raise no_room("a tagged field", size)
    return at, budget


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The unsigned varint at `at`, and where it ends. Errors as of `varint_tail`."""
    first = data[at]
    return (first, at + 1) if first < ONE_BYTE else varint_tail(data, at + 1, first)
