"""Variable-length whole numbers in zigzag form, as Avro and the indexes of Protobuf messages have them."""

from log_tables.schemas.schema import Undecodable

_LOW, _MORE = 0x7F, 0x80
_BITS_MAX = 70
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """(The number at `at`, where the next byte is). Raises IndexError at the end of `data`, Undecodable."""
    byte = data[at]
    at += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & _LOW, 7
    while byte >= _MORE:
        byte = data[at]
        at += 1
        number |= (byte & _LOW) << shift
        shift += 7
        if shift > _BITS_MAX:
            raise Undecodable("has a number of more than 64 bits")
    if number >= 2**64:
        raise Undecodable("has a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def to_zigzag(number: int) -> bytes:
    """`number`, of 64 bits, as `zigzag` reads it."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left >= _MORE:
        found.append(left & _LOW | _MORE)
        left >>= 7
    return bytes([*found, left])
