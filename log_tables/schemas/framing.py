"""How a value or a key names its schema: by a prefix, or in a header.

The prefix is a zero byte and the id in four, in network order. The header has a byte 01 and the sixteen of a
UUID, and the value is bare (`__value_schema_id`, `__key_schema_id`). For Protobuf, the indexes of the message
type come after either. Both are the wire formats of Confluent's serializers, which others follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from log_tables.schemas.schema import SchemaId, Undecodable, guid
from log_tables.schemas.varint import zigzag

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"

_PREFIX, _PREFIX_BYTES = 0, 5
_GUID, _GUID_BYTES = 1, 17
_DEPTH_MAX = 64

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Framed:
    """The id of the schema of a value, and where in its bytes the encoded part begins.

    `indexes` are bytes that begin with the indexes of a Protobuf message, which stand in a header; None where
    they stand in the value.
    """

    schema_id: SchemaId
    start: int = 0
    indexes: bytes | None = None


def framed(value: bytes, headers: Headers = (), header: str = VALUE_HEADER) -> Framed | None:
    """How `value` names its schema; None if it names none. The last header of the name counts."""
    found: Framed | None = None
    for name, data in headers:
        if name == header and data is not None and len(data) >= _GUID_BYTES and data[0] == _GUID:
            found = Framed(guid(data[1:_GUID_BYTES]), 0, data[_GUID_BYTES:])
    if found is None and len(value) >= _PREFIX_BYTES and value[0] == _PREFIX:
        return Framed(int.from_bytes(value[1:_PREFIX_BYTES], "big"), _PREFIX_BYTES)
    return found


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """(The indexes that lead to a message of a Protobuf file, where the message begins), from `at` on.

    They are a count and so many numbers, as zigzag varints; a count of 0 stands for the first message. Raises
    Undecodable.
    """
    try:
        count, at = zigzag(data, at)
        if not 0 <= count <= _DEPTH_MAX:
            raise Undecodable(f"has {count} indexes of its message type")
        found = []
        for _ in range(count):
            index, at = zigzag(data, at)
            found.append(index)
    except IndexError:
        raise Undecodable("ends in the indexes of its message type") from None
    return tuple(found) or (0,), at


def prefixed(schema_id: int, payload: bytes) -> bytes:
    """`payload` behind the prefix of this id."""
    return bytes([_PREFIX]) + schema_id.to_bytes(4, "big") + payload
