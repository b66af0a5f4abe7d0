"""The memory that produce requests may hold together until they are answered.

Thread-safe, as a large request is decoded in a thread. A room belongs to one request.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from log_tables.errors import BufferFull

RETRY_AFTER_S = 1


class Buffer:
    """`limit_bytes` for all requests. One topic takes at most half, unless it is the only one."""

    def __init__(self, limit_bytes: int, shares: str = "of topic", free_bytes: int = 0) -> None:
        """`shares` names the shares in the message that there is no room. The first `free_bytes` of each
        request need no room.
        """
        self.limit_bytes, self._shares, self.free_bytes = limit_bytes, shares, free_bytes
        self.used = 0
        self._topics: Counter[str] = Counter()
        self._lock = threading.Lock()

    def room(self, topic: str) -> "Room":
        """Room for one request to `topic`, empty at first: a context manager that gives it back."""
        return Room(self, topic)

    def reserve(self, topic: str, size_bytes: int, held_bytes: int = 0) -> None:
        """Take room for a request that holds `held_bytes` so far.

        Raises BufferFull when there is none: nothing of the request may be kept then.
        """
        with self._lock:
            self.check(topic, size_bytes, held_bytes)
            self.used += size_bytes
            self._topics[topic] += size_bytes

    def check(self, topic: str, size_bytes: int, held_bytes: int = 0) -> None:
        """Raise what `reserve` would raise now."""
        mine = self._topics[topic]
        alone = mine == held_bytes
        full = self.used + size_bytes > self.limit_bytes
        if full or (not alone and mine + size_bytes > self.limit_bytes // 2):
            raise BufferFull(
                f"the gateway holds {self.used} of {self.limit_bytes} bytes, "
                f"{mine} {self._shares} {topic!r}, and has no room for {size_bytes} more; "
                "repeat the request later",
                retry_after_s=RETRY_AFTER_S,
            )

    def release(self, topic: str, size_bytes: int) -> None:
        """Give room back."""
        with self._lock:
            self.used -= size_bytes
            self._topics[topic] -= size_bytes
            if self._topics[topic] == 0:
                del self._topics[topic]


class Room:
    """The part of a Buffer that one request holds."""

    def __init__(self, buffer: Buffer, topic: str) -> None:
        self._buffer, self._topic, self.size_bytes = buffer, topic, 0
        self.limit_bytes = buffer.limit_bytes

    def grow(self, size_bytes: int) -> None:
        """Hold at least `size_bytes`. Raises BufferFull."""
        size_bytes -= self._buffer.free_bytes
        if size_bytes > self.size_bytes:
            self._buffer.reserve(self._topic, size_bytes - self.size_bytes, self.size_bytes)
            self.size_bytes = size_bytes

    def check(self, size_bytes: int) -> None:
        """Raise BufferFull when `grow` would raise it now. Announced bytes hold no room."""
        size_bytes -= self._buffer.free_bytes
        if size_bytes > self.size_bytes:
            self._buffer.check(self._topic, size_bytes - self.size_bytes, self.size_bytes)

    @contextmanager
    def more(self, size_bytes: int) -> Iterator[None]:
        """Hold `size_bytes` more within the context. Raises BufferFull."""
        before = self.size_bytes
        self.grow(before + size_bytes)
        try:
            yield
        finally:
            self._buffer.release(self._topic, self.size_bytes - before)
            self.size_bytes = before

    def detach(self) -> "Room":
        """Move the bytes held here into a room of their own, for records that outlive their request."""
        kept = Room(self._buffer, self._topic)
        kept.size_bytes, self.size_bytes = self.size_bytes, 0
        return kept

    def __enter__(self) -> "Room":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size_bytes:
            self._buffer.release(self._topic, self.size_bytes)
            self.size_bytes = 0
