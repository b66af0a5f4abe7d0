"""Frames of one connection, and the room that they take."""

import pytest

from api.kafka.connections.frame_reader import SMALL_FRAME_BYTES, Frame, FrameReader
from ingest.buffer import Buffer
from log_tables.errors import BufferFull

SIZE = 4 * SMALL_FRAME_BYTES
FRAME = SIZE.to_bytes(4, "big") + bytes(SIZE)


def taken(reader: FrameReader, data: bytes = FRAME) -> Frame:
    """The frame of `data`, which comes in two parts: a large one takes room amid it."""
    left = memoryview(data)
    frame = None
    while left:
        left, frame = reader.take(left, range(1, SIZE + 1), now=0.0)
    assert frame is not None
    return frame


def test_frames_of_one_connection_fill_half_of_the_buffer_side_by_side() -> None:
    buffer = Buffer(10 * SIZE)
    reader = FrameReader(buffer, "a client", 0.0)
    frames = [taken(reader) for _ in range(5)]
    assert buffer.used == 5 * SIZE
    with pytest.raises(BufferFull):
        taken(reader)
    frames[0].room.settle(0)
    taken(reader, FRAME[4 + SMALL_FRAME_BYTES :])  # of the frame that began
    assert buffer.used == 5 * SIZE


def test_frames_of_several_connections_leave_half_of_the_buffer_for_what_is_made_of_them() -> None:
    buffer = Buffer(10 * SIZE)
    for number in range(5):
        taken(FrameReader(buffer, f"client {number}", 0.0))
    with pytest.raises(BufferFull):
        taken(FrameReader(buffer, "another client", 0.0))


def test_a_frame_of_more_than_half_is_taken_when_nothing_else_is_there() -> None:
    buffer = Buffer(SIZE + SIZE // 2)
    reader = FrameReader(buffer, "a client", 0.0)
    frame = taken(reader)
    with pytest.raises(BufferFull):
        taken(reader)
    frame.room.settle(0)
    taken(reader, FRAME[4 + SMALL_FRAME_BYTES :])
