"""The room that a request holds while it is worked on: taken before anything is made, and for what is left of
it afterwards. Compressed bytes, of which a few may stand for gigabytes, are unpacked in steps within it.
"""

import gzip
import io
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

import pyarrow as pa

from api.errors import RequestTooLarge
from ingest.buffer import Room
from log_tables.limits import KIB, MIB

Reserve = Callable[[int], None]
"""Told how many bytes all that is made takes, before it is made. Raises BufferFull when there is no room for
them, and RequestTooLarge when there never is."""

_STEP_MIN_BYTES = 4 * KIB
_STEP_MAX_BYTES = 1 * MIB
_EXPECTED_RATIO = 8


def hold(room: Room, size_bytes: int) -> None:
    """Hold at least `size_bytes`. Raises BufferFull; RequestTooLarge when there is never so much room for a
    request.
    """
    if size_bytes > room.size_bytes:
        settle(room, size_bytes)


def settle(room: Room, size_bytes: int) -> None:
    """Hold exactly `size_bytes`, whatever was held before. Raises as `hold`."""
    if size_bytes > room.limit_bytes:
        raise RequestTooLarge(
            f"the request takes {size_bytes} bytes while it is worked on, buffer_memory leaves "
            f"{room.limit_bytes} for one; send fewer records at once"
        )
    room.settle(size_bytes)


def besides(room: Room) -> Reserve:
    """Told what is made besides all that `room` holds now."""
    held = room.size_bytes
    return lambda size_bytes: hold(room, held + size_bytes)


def batch_in(body: bytes, batch: pa.RecordBatch) -> int:
    """The bytes that `batch` keeps in memory: those of its own buffers, and `body` if one stands in it."""
    begin = pa.py_buffer(body).address
    kept, own = 0, 0
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is None:
                continue
            if begin <= buffer.address < begin + len(body):
                kept = len(body)
            else:
                own += buffer.size
    return kept + own


def inflate_stream(packed: bytes | memoryview, codec: str, most_bytes: int, hold: Reserve) -> bytes | None:
    """`packed` unpacked by `codec`, one of Arrow's; None if that is more than `most_bytes`. `hold` is told
    each step before its memory is taken.

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
