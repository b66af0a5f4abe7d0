"""Connections before their TLS handshake is through, which the HTTP of uvicorn does not see yet.

They are counted as connections, and have little time. Where there are too many, the one that has taken
longest gives way to a new one: a client that says nothing keeps nobody out.
"""

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from log_tables.limits import HANDSHAKES_LET_IN


class HandshakeQueue:
    """The handshakes under way at one gateway, oldest first. Used on the event loop."""

    def __init__(
        self,
        context: ssl.SSLContext,
        connections: Callable[[], int],
        most: int,
        per_ip: int,
        timeout_s: float,
    ) -> None:
        """There may be `most` together with `connections`, but always HANDSHAKES_LET_IN; of one address
        `per_ip`, 0 being any number. Each has `timeout_s`.
        """
        self.context, self.timeout_s = context, timeout_s
        self._connections, self._most, self._per_ip = connections, most, per_ip
        self._under_way: dict[Handshake, None] = {}
        self._by_ip = Counter[str]()

    def __len__(self) -> int:
        return len(self._under_way)

    def enter(self, new: "Handshake") -> None:
        """Count a new one. The oldest, or the oldest of its address, may be given up for it."""
        if 0 < self._per_ip <= self._by_ip[new.ip]:
            next(each for each in self._under_way if each.ip == new.ip).give_up()
        if len(self) >= max(HANDSHAKES_LET_IN, self._most - self._connections()):
            next(iter(self._under_way)).give_up()
        self._under_way[new] = None
        self._by_ip[new.ip] += 1

    def leave(self, handshake: "Handshake") -> None:
        """It is through, or over; twice is once."""
        if handshake in self._under_way:
            del self._under_way[handshake]
            self._by_ip[handshake.ip] -= 1
            if self._by_ip[handshake.ip] <= 0:
                del self._by_ip[handshake.ip]

    def close(self) -> None:
        """Give up all."""
        for handshake in [*self._under_way]:
            handshake.give_up()


class Handshake(asyncio.Protocol):
    """One connection, as it is accepted."""

    ip = ""

    def __init__(self, queue: HandshakeQueue, made: Callable[[], asyncio.Protocol]) -> None:
        """`made` makes the protocol of what comes after the handshake."""
        self._queue, self._made = queue, made
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted: Any = transport.get_extra_info("socket")
        self.ip = str((transport.get_extra_info("peername") or ("",))[0])
        # Its own: the transport is closed before it reads, which uvloop does not let it put off.
        try:
            self._socket = socket.socket(fileno=os.dup(accepted.fileno()))
        except OSError:
            return  # there are no more files
        finally:
            transport.abort()  # type: ignore[attr-defined]
        self._socket.setblocking(False)
        self._queue.enter(self)
        self._task = asyncio.get_running_loop().create_task(self._shake())

    async def _shake(self) -> None:
        queue = self._queue
        with suppress(
            OSError, asyncio.CancelledError
        ):  # what comes of a client that sends no TLS, or nothing
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._made, self._socket, ssl=queue.context, ssl_handshake_timeout=queue.timeout_s
                )
            finally:
                queue.leave(self)

    def give_up(self) -> None:
        """Close the connection."""
        self._queue.leave(self)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
