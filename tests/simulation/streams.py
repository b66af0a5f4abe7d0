"""Connections of Kafka's clients: bytes in order, both ways, between a thread and an asyncio protocol."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.scheduler import Process
from tests.simulation.threads import SimulatedEvent

if TYPE_CHECKING:
    from tests.simulation.network import Network

MakeProtocol = Callable[[], asyncio.Protocol]


class Disconnected(ConnectionError):
    """Nobody listens there, or the connection has ended."""


class Stream(asyncio.Transport):
    """A connection from a thread of `source` to `process`: its transport, and the socket of the other end."""

    def __init__(self, network: "Network", source: Process, process: Process, number: int) -> None:
        super().__init__()
        self._network, self._source, self._process = network, source, process
        self._peer = ("127.0.0.1", number)
        self._protocol: asyncio.Protocol | None = None
        self._there_us = self._back_us = 0
        self._received, self._news = bytearray(), SimulatedEvent()
        self._is_paused, self._held = False, bytearray()
        self._is_over = False
        process.died.append(self._broken)
        source.died.append(self._left)

    def open(self, make: MakeProtocol) -> None:
        """Begin, at the other side."""

        def made() -> None:
            self._protocol = make()
            self._protocol.connection_made(self)

        self._there(made)

    # The client's end.

    def send(self, data: bytes) -> None:
        """Send bytes. Raises Disconnected."""
        self._network.rests.rest(self._source)
        if self._is_over:
            raise Disconnected("the connection has ended")
        if self._network.loses(self._source, self._process):
            self._network.later(self._broken, self._network.broken_us)
            return
        self._there(lambda: self._take(data))

    def receive(self, timeout_s: float) -> bytes:
        """Some bytes. Raises Disconnected, TimeoutError."""
        while not self._received:
            if self._is_over:
                raise Disconnected("the connection has ended")
            self._news.clear()
            if not self._news.wait(timeout_s):
                raise TimeoutError
        found = bytes(self._received)
        self._received.clear()
        return found

    def leave(self) -> None:
        """Close it."""
        self._left()

    def _there(self, then: Callable[[], None]) -> None:
        """Call `then` in the other process, after all that was sent before."""
        self._there_us = max(self._there_us + 1, self._network.arrival_us())
        self._network.at(self._there_us, self._process, lambda: self._process.loop.call_soon(then))

    def _take(self, data: bytes) -> None:
        if self._is_over or self._protocol is None:
            return
        if self._is_paused:
            self._held += data
        else:
            self._protocol.data_received(data)

    # The gateway's end.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_over:
            return
        if self._network.loses(self._process, self._source):
            self._network.later(self._broken, self._network.broken_us)
            return
        copied = bytes(data)
        self._back_us = max(self._back_us + 1, self._network.arrival_us())

        def arrives() -> None:
            if not self._is_over:
                self._received.extend(copied)
                self._news.set()

        self._network.at(self._back_us, self._source, arrives)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._peer if name == "peername" else default

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._process.loop.call_soon(self._take, held)

    def is_closing(self) -> bool:
        return self._is_over

    def close(self) -> None:
        # What was written before comes to the client first.
        self._network.at(max(self._back_us + 1, self._network.arrival_us()), None, self._broken)

    def abort(self) -> None:
        self._broken()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    # The end.

    def _broken(self) -> None:
        """The client hears that it is over."""
        self._end()
        self._news.set()

    def _left(self) -> None:
        self._there(self._end)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        protocol = self._protocol
        if protocol is not None and not self._process.dead:
            self._process.loop.call_soon(protocol.connection_lost, None)
