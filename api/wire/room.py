"""The room that a request holds while it is worked on: taken before anything is made, and for what is left of
it afterwards.
"""

from collections.abc import Callable

import pyarrow as pa

from api.errors import RequestTooLarge
from ingest.buffer import Room

Reserve = Callable[[int], None]
"""Told how many bytes all that is made takes, before it is made. Raises BufferFull when there is no room for
them, and RequestTooLarge when there never is."""


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
