"""Variable-length integers with zigzag, as records have them: one at a time, and a column of them.

Seven bits stand in each byte, the lowest first; every byte but the last has its highest bit set. Zigzag puts
the sign into the lowest bit (Kafka's protocol, "Varint" and "Varlong").
"""

import numpy as np

from api.kafka.records.errors import InvalidBatch, invalid

INT = 32
LONG = 64


def read_varint(data: bytes | memoryview, at: int, bits: int = INT) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends.

    Raises InvalidBatch, and IndexError when the data ends first.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> bits:
                raise _too_long(bits)
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift >= bits:
            raise _too_long(bits)


def write_varint(value: int) -> bytes:
    """`value`, which fits 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 128:
        return bytes((rest,))
    made = bytearray()
    while rest > 127:
        made.append(rest & 127 | 128)
        rest >>= 7
    made.append(rest)
    return bytes(made)


def read_varints(data: np.ndarray, at: np.ndarray, bits: int = INT) -> tuple[np.ndarray, np.ndarray]:
    """The numbers (int64) that begin at the places `at` (int64) of `data` (bytes), and where each ends.

    A number that begins or goes on behind the data has any value, and an end behind it. Raises InvalidBatch.
    """
    byte = data.take(at, mode="clip")
    at = at + 1
    if byte.max() < 128:
        return unzigzag(byte.astype(np.uint64)), at
    value = (byte & 127).astype(np.uint64)
    more = byte > 127
    shift = 0
    while more.any():
        shift += 7
        if shift >= bits:
            raise _too_long(bits)
        byte = data.take(at, mode="clip") * more
        if bits - shift < 7 and byte.max() >> (bits - shift):
            raise _too_long(bits)
        value |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        at += more
        more = byte > 127
    return unzigzag(value), at


def unzigzag(value: np.ndarray) -> np.ndarray:
    """Numbers (int64) whose sign is in the lowest bit of `value` (uint64)."""
    bits = value.view(np.int64)
    return (value >> np.uint64(1)).view(np.int64) ^ -(bits & 1)


def zigzag(values: np.ndarray) -> np.ndarray:
    """Numbers (int64) as uint64 with the sign in the lowest bit."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def widths(values: np.ndarray) -> np.ndarray:
    """The bytes that each of `values` (uint64, after zigzag) takes."""
    sizes = np.ones(len(values), np.int64)
    most = int(values.max())
    shift = 7
    while most >> shift:
        sizes += values >> np.uint64(shift) != 0
        shift += 7
    return sizes


def _too_long(bits: int) -> InvalidBatch:
    return invalid(f"a record has a number of more than {bits} bits")
