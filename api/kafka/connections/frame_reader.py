"""From bytes to frames: a length of four bytes, and so many bytes. A client that is beyond its quota is not
read for a while (KIP-219).

Announced bytes take no memory: a frame has room in the buffer, and a place to be, once its first
SMALL_FRAME_BYTES are there. So connections that announce much and send nothing keep out nobody.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from api.kafka.protocol.codec import Malformed
from ingest.buffer import Buffer, Room

SMALL_FRAME_BYTES = 4_096
"""A frame up to this size takes no room, so that a heartbeat never waits for records."""

LENGTH_BYTES = 4


class Frame(NamedTuple):
    """One that is whole, without its length, and the room that it holds."""

    data: bytearray
    room: Room


class FrameReader:
    """Reads the requests of one connection. Times are seconds of the event loop."""

    def __init__(self, buffer: Buffer, share: str, now: float) -> None:
        """A large frame takes room in `buffer`, in its `share`."""
        self._buffer, self._share = buffer, share
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._filled = self._size = 0
        self._room: Room | None = None
        self.since: float | None = None
        """When the first byte of the frame came that is not whole; None between frames."""
        self.moved = now
        """When a byte came last."""

    @property
    def holds_room(self) -> bool:
        """Whether a part of a large frame is there."""
        return self._room is not None and self._room.size_bytes > 0

    @property
    def needs_room(self) -> bool:
        """Whether the next byte needs the room of a large frame."""
        return self._frame is not None and self._filled == len(self._frame) < self._size

    @property
    def size_bytes(self) -> int:
        """The bytes of the request that begins, if it `needs_room`."""
        return self._size

    @property
    def api_key(self) -> int:
        """The API of the request that begins, if it `needs_room`."""
        return int.from_bytes((self._frame or b"")[:2], "big", signed=True)

    def take(self, data: memoryview, sizes: range, now: float) -> tuple[memoryview, Frame | None]:
        """Take bytes up to the end of a frame of one of these `sizes`. Returns those that are left, and the
        frame if it is whole.

        Raises BufferFull, and has taken nothing then; Malformed for another size.
        """
        if self.needs_room:
            self._enlarge()
        self.moved = now
        if self.since is None:
            self.since = now
        if self._frame is None:
            data = self._take_length(data, sizes)
        if self._frame is None:
            return data, None
        end = min(len(self._frame), self._filled + len(data))
        taken = data[: end - self._filled]
        self._frame[self._filled : end] = taken
        self._filled, data = end, data[len(taken) :]
        return data, self._whole() if end == self._size else None

    def go_on(self, now: float) -> None:
        """The client was made to wait: its time begins again."""
        self.moved = now
        if self.since is not None:
            self.since = now

    def close(self) -> None:
        """Give back what a frame holds that does not become whole."""
        if self._room is not None:
            self._room.settle(0)
        self._frame = self._room = None

    def _take_length(self, data: memoryview, sizes: range) -> memoryview:
        taken = data[: LENGTH_BYTES - len(self._head)]
        self._head += taken
        if len(self._head) == LENGTH_BYTES:
            self._size = int.from_bytes(self._head, "big", signed=True)
            if self._size not in sizes:
                raise Malformed(
                    f"a request of {self._size} bytes; {sizes.start} to {sizes.stop - 1} are allowed"
                )
            self._head.clear()
            self._frame, self._filled = bytearray(min(self._size, SMALL_FRAME_BYTES)), 0
            self._room = self._buffer.room(self._share)
        return data[len(taken) :]

    def _enlarge(self) -> None:
        assert self._frame is not None
        assert self._room is not None
        if self._buffer.used:
            # Half is left for what is made of frames: else they could all be there, and none be unpacked.
            self._room.check(self._size, self._buffer.limit_bytes // 2)
        self._room.settle(self._size)
        whole = bytearray(self._size)
        whole[: self._filled] = self._frame
        self._frame = whole

    def _whole(self) -> Frame:
        assert self._frame is not None
        assert self._room is not None
        whole = Frame(self._frame, self._room)
        self._frame = self._room = self.since = None
        return whole


class Throttle:
    """Delays one connection. Used on the event loop."""

    def __init__(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Both are called when it is so."""
        self._begun, self._ended = begun, ended
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._over = asyncio.Event()
        self._over.set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_shut = False

    @property
    def is_over(self) -> bool:
        """Whether the client is read."""
        return self._over.is_set()

    @property
    def left_s(self) -> float:
        """How long it lasts; 0 if it is over."""
        return max(0.0, self._until - self._loop.time())

    def begin(self, seconds: float) -> None:
        """Let it last for so long at least."""
        if seconds <= 0 or self._is_shut:
            return
        self._until = max(self._until, self._loop.time() + seconds)
        self._over.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._until, self._end)
        self._begun()

    def _end(self) -> None:
        self._timer = None
        self._over.set()
        self._ended()

    def shut(self) -> None:
        """End it, and begin no other."""
        self._is_shut = True
        if self._timer is not None:
            self._timer.cancel()
        self._over.set()

    async def wait(self) -> None:
        """Until it is over."""
        await self._over.wait()
