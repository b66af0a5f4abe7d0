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

    def __init__(
        self, limit_bytes: int, shares: str = "of topic", free_bytes: int = 0, request_bytes: int = 0
    ) -> None:
        """`shares` names the shares in the message that there is no room. The first `free_bytes` of each
        request need no room. A request with any content takes `request_bytes` besides.
        """
        self.limit_bytes, self._shares = limit_bytes, shares
        self.free_bytes, self.request_bytes = free_bytes, request_bytes
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

    def needed(self, size_bytes: int) -> int:
        """The room for a request whose content takes `size_bytes`."""
        return max(0, size_bytes + self.request_bytes - self.free_bytes) if size_bytes else 0

    def check(self, topic: str, size_bytes: int, held_bytes: int = 0, spare_bytes: int = 0) -> None:
        """Raise what `reserve` would raise now, and when it would leave less than `spare_bytes` for all."""
        mine = self._topics[topic]
        alone = mine == held_bytes
        full = self.used + size_bytes + spare_bytes > self.limit_bytes
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
        self._buffer, self._topic, self._taken = buffer, topic, 0
        self.size_bytes = 0
        self.limit_bytes = buffer.limit_bytes - buffer.request_bytes + buffer.free_bytes

    def settle(self, size_bytes: int) -> None:
        """Hold exactly `size_bytes` of content. Raises BufferFull, and holds what it held before then."""
        needed = self._buffer.needed(size_bytes)
        if needed > self._taken:
            self._buffer.reserve(self._topic, needed - self._taken, self._taken)
        elif needed < self._taken:
            self._buffer.release(self._topic, self._taken - needed)
        self.size_bytes, self._taken = size_bytes, needed

    def grow(self, size_bytes: int) -> None:
        """Hold at least `size_bytes`. Raises BufferFull."""
        if size_bytes > self.size_bytes:
            self.settle(size_bytes)

    def check(self, size_bytes: int, spare_bytes: int = 0) -> None:
        """Raise BufferFull when `grow` would raise it now, or would leave less than `spare_bytes`. Announced
        bytes hold no room.
        """
        more = self._buffer.needed(size_bytes) - self._taken
        if more > 0:
            self._buffer.check(self._topic, more, self._taken, spare_bytes)

    @contextmanager
    def more(self, size_bytes: int) -> Iterator[None]:
        """Hold `size_bytes` more within the context. Raises BufferFull."""
        self.settle(self.size_bytes + size_bytes)
        try:
            yield
        finally:
            self.settle(max(0, self.size_bytes - size_bytes))

    def detach(self) -> "Room":
        """Move the bytes held here into a room of their own, for records that outlive their request."""
        kept = self.part(self.size_bytes)
        kept._taken, self._taken = kept._taken + self._taken, 0
        return kept

    def part(self, size_bytes: int) -> "Room":
        """Move `size_bytes`, or all if there are fewer, into a room of their own, for some of the records."""
        part = Room(self._buffer, self._topic)
        part.size_bytes = min(size_bytes, self.size_bytes)
        part._taken = min(part.size_bytes, self._taken)
        self.size_bytes, self._taken = self.size_bytes - part.size_bytes, self._taken - part._taken
        return part

    def take_back(self, part: "Room") -> None:
        """Move here all that is held by `part`, which was made of this room."""
        self.size_bytes, self._taken = self.size_bytes + part.size_bytes, self._taken + part._taken
        part.size_bytes = part._taken = 0

    def __enter__(self) -> "Room":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle(0)
