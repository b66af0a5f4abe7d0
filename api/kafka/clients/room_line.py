"""The batches that wait for room, the oldest first.

Their frames hold room, too. Where just that is missing, none of them would ever get in: so the younger ones
give way.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ingest.buffer import Buffer
from log_tables.clock import Clock

GIVE_WAY_S = 1.0
"""How long nothing may move until all but the oldest give way."""


class RoomLine:
    """Of one gateway. Used on the event loop."""

    def __init__(self, buffer: Buffer, clock: Clock) -> None:
        self._buffer, self._clock = buffer, clock
        self._waiting: dict[object, None] = {}
        self._least, self._moved = buffer.limit_bytes, 0.0

    @contextmanager
    def place(self) -> "Iterator[WaitingBatch]":
        """A place at the end, kept within the context."""
        place = WaitingBatch(self)
        try:
            yield place
        finally:
            if place in self._waiting:
                del self._waiting[place]
                self._moved = self._clock.monotonic()

    def _wait(self, place: "WaitingBatch") -> bool:
        """Let `place` wait on; returns whether it gives way."""
        now, used = self._clock.monotonic(), self._buffer.used
        if not self._waiting:
            self._least, self._moved = used, now
        self._waiting.setdefault(place)
        if used < self._least:
            self._least, self._moved = used, now
        return next(iter(self._waiting)) is not place and now - self._moved > GIVE_WAY_S


class WaitingBatch:
    """A batch in its place of the line."""

    def __init__(self, line: RoomLine) -> None:
        self._line = line

    def gives_way(self) -> bool:
        """Whether this batch, which found no room just now, is refused, so that an older one gets in."""
        return self._line._wait(self)
