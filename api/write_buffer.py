"""The bytes that a client has not taken yet, and since when it has taken none."""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress

_SO_NWRITE = 0x1024
"""macOS: the bytes in a socket's send buffer (getsockopt(2)); Python has no name for it."""


class WriteBuffer:
    """The bytes that one connection has yet to send. Times are seconds of the event loop."""

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport, self.since = transport, now
        self._seen = (0, 0)

    def size_bytes(self, now: float) -> int:
        """The bytes of answers that this process still holds.

        A slow client takes bytes from the kernel for minutes before the kernel takes more from this process.
        So both counts show whether the client takes anything.
        """
        size: int = self._transport.get_write_buffer_size()
        seen = (size, _in_kernel(self._transport) if size else 0)
        if seen != self._seen:
            self._seen, self.since = seen, now
        return size


def _in_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the client's kernel has not acknowledged; 0 where the system does not say."""
    connection = transport.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        if sys.platform == "darwin":
            return int(connection.getsockopt(socket.SOL_SOCKET, _SO_NWRITE))
        told: int = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        return told
    return 0
