"""Compressed bytes, unpacked in steps: each step is told before its memory is taken, and the end is bounded.

A few bytes may stand for gigabytes.
"""

import gzip
import io
import zlib
from typing import BinaryIO, cast

import pyarrow as pa

from api.wire.room import Reserve
from log_tables.limits import KIB, MIB

_STEP_MIN_BYTES = 4 * KIB
_STEP_MAX_BYTES = 1 * MIB
_EXPECTED_RATIO = 8


def inflate_stream(packed: bytes | memoryview, codec: str, most_bytes: int, hold: Reserve) -> bytes | None:
    """`packed` unpacked by `codec`, one of Arrow's; None if that is more than `most_bytes`.

    Zeros may follow on the end of gzip, as tools leave them that write in blocks. Raises OSError or
    ArrowException if it is not whole, and what `hold` raises.
    """
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(packed), codec)
        return _unpacked(stream, len(packed), most_bytes, hold)
    except (OSError, pa.ArrowException):
        if codec != "gzip" or packed[-1:] != b"\0":
            raise
    try:  # Python's reader of gzip leaves out the zeros, and takes longer
        stream = gzip.GzipFile(fileobj=cast("BinaryIO", pa.BufferReader(packed)))
        return _unpacked(stream, len(packed), most_bytes, hold)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from None


def _unpacked(stream: io.BufferedIOBase, packed_bytes: int, most_bytes: int, hold: Reserve) -> bytes | None:
    parts: list[bytearray] = []
    part = bytearray()
    taken, step = 0, _step(_EXPECTED_RATIO * packed_bytes)
    try:
        with stream:
            while True:
                step = min(step, most_bytes + 1 - taken)
                hold(2 * (taken + step))  # the parts and all of them together, or a window of the codec
                part = bytearray(step)  # not stream.read(), which leaks a step where the stream is not whole
                size = stream.readinto(part)
                del part[size:]
                taken += size
                if taken > most_bytes:
                    return None
                if part:
                    parts.append(part)
                if size < step:
                    return b"".join(parts)
                step = _step(taken)
    finally:
        parts.clear()  # an error would keep them, with this frame, until all garbage is looked for
        part = bytearray()


def _step(wanted_bytes: int) -> int:
    return min(max(wanted_bytes, _STEP_MIN_BYTES), _STEP_MAX_BYTES)
