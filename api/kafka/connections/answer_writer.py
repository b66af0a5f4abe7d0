"""The way out of a connection: what its client has not taken yet, and how the connection ends."""

import asyncio
import logging
from collections.abc import Iterable

from api.write_buffer import WriteBuffer
from ingest.buffer import Buffer, Room

REVOKED = "its credential is no longer right"

UNSENT_HIGH_BYTES = 256 * 1024
"""Bytes that a client has not taken yet beyond which nothing more is worked at for it."""

SLOW_S = 10.0
"""How long a client may take its answer where answers are short of memory."""

_log = logging.getLogger(__name__)


class AnswerWriter:
    """Writes the answers of one connection. Times are seconds of the event loop."""

    def __init__(self, transport: asyncio.Transport, share: str, room: Room, now: float) -> None:
        """`share` names the connection; `room` is held until the client has its answers."""
        transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES)
        self._transport, self._room = transport, room
        self.share = share
        """Its name in the log."""
        self._buffer = WriteBuffer(transport, now)
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused_since = now
        self.is_closing = False
        """Whether nothing more is sent."""
        self.is_refused = False
        self.is_left = False
        """Whether the client has ended the connection, and not this gateway."""

    def write(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send these bytes, one after the other."""
        self._transport.writelines(parts)
        if self._writable.is_set():
            self._room.settle(0)

    def pause(self, now: float) -> None:
        """The client takes less than is sent."""
        self._writable.clear()
        self._paused_since = now

    def resume(self) -> None:
        """The client has taken most of it."""
        self._writable.set()
        self._room.settle(0)

    @property
    def is_writable(self) -> bool:
        """Whether the client takes what is sent."""
        return self._writable.is_set()

    async def wait(self) -> None:
        """Until the client has taken most of what was sent, or is gone."""
        await self._writable.wait()

    def late(self, now: float, timeout_s: float, answers: Buffer) -> str:
        """Why the client takes its answers too slowly; nothing if it does not. `answers` hold the memory of
        those of all clients.
        """
        if not self._buffer.size_bytes(now):
            return ""
        if now - self._buffer.since > timeout_s:
            return "the client takes nothing of its answer"
        is_short = answers.used > answers.limit_bytes // 2
        if is_short and not self._writable.is_set() and now - self._paused_since > SLOW_S:
            return "the client takes its answer slowly, and others wait for memory"
        return ""

    def close(self) -> None:
        """Close the connection when all is sent."""
        self.is_closing = True
        self._transport.close()

    def refuse(self, why: str) -> None:
        """End the connection now: Kafka's protocol has no other answer to what is no request."""
        if not self.is_closing:
            _log.info("the connection of %s is closed: %s", self.share, why)
        self.is_closing = self.is_refused = True
        self._transport.abort()

    def lose(self) -> None:
        """The connection is gone."""
        self.is_left, self.is_closing = not self.is_closing, True
        self.resume()
