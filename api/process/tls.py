"""TLS of a gateway: its certificate, which may change while it runs, its trust in other gateways, handshakes.

Connections before their handshake is through, which the HTTP of uvicorn does not see yet, are counted as
connections, and have little time. Where there are too many, the one that has taken longest gives way to a new
one: a client that says nothing keeps nobody out.
"""

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ingest.settings import Settings
from log_tables.errors import InvalidConfig, LakelogError
from log_tables.limits import HANDSHAKES_LET_IN
from log_tables.store.file import unusable

RELOAD_INTERVAL_S = 2.0
"""How often it is looked whether the files have changed."""

_FLIGHTS = 4
"""Turns of a handshake: TLS 1.3 takes two."""

Stamp = tuple[int, int, int]
"""The inode, the size and the time of a file: it is another one where they differ."""


class ServerCertificate:
    """The certificate that clients are shown, from files that may be replaced at any time.

    `context` is what a server listens with. Each connection gets the newest pair that is whole, and the
    authorities of that time; connections that are there already keep theirs.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidConfig."""
        self._settings = settings
        self._stamps = self._looked()
        self.context = self._newest = _server_context(settings)
        # The callback is called for each connection, also for one that names no server. Loading into one and
        # the same context would leave half a pair there if the other half is broken, and old authorities.
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Take the files if they have changed. Raises InvalidConfig if they are wrong: the last ones stay."""
        stamps = self._looked()
        if stamps != self._stamps:
            self._newest = _server_context(self._settings)
            self._stamps = stamps

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _looked(self) -> list[Stamp | None]:
        given = self._settings
        return [_stamp(path) for path in (given.ssl_certfile, given.ssl_keyfile, given.ssl_ca_certs) if path]


def peer_context(settings: Settings) -> ssl.SSLContext:
    """The trust in other gateways: the setting's authorities, or the system's. Raises InvalidConfig."""
    try:
        return ssl.create_default_context(cafile=settings.peer_ca_certs or None)
    except OSError as error:
        raise _wrong(f"peer_ca_certs = {settings.peer_ca_certs!r}", error) from None


def check_own_certificate(settings: Settings, server: ssl.SSLContext) -> None:
    """Raise InvalidConfig if gateways with these settings do not trust one another's certificates."""
    name = settings.peer_server_name or urlsplit(settings.peer_url).hostname or ""
    try:
        _shake_hands(server, peer_context(settings), name)
    except ssl.SSLError as error:
        raise InvalidConfig(
            f"other gateways reach this one as {name}, and do not trust its certificate there "
            f"({getattr(error, 'verify_message', '') or error.reason}); set peer_ca_certs, or "
            "peer_server_name, or peer_url"
        ) from None


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_FLIGHTS):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()


def _server_context(settings: Settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    pair = f"ssl_certfile = {settings.ssl_certfile!r} and ssl_keyfile = {settings.ssl_keyfile!r}"
    try:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile or None, _password(settings))
    except (OSError, ValueError) as error:
        raise _wrong(pair, error) from None
    if settings.ssl_client_auth != "none":
        # Not CERT_REQUIRED: /health needs none. api/process/guard.py asks for one.
        context.verify_mode = ssl.CERT_OPTIONAL
        # A session that is resumed would bring a certificate that nobody verifies again, for hours. TLS 1.2
        # resumes them by ids as well as by tickets, and only tickets can be switched off from Python.
        context.minimum_version, context.num_tickets = ssl.TLSVersion.TLSv1_3, 0
        try:
            context.load_verify_locations(settings.ssl_ca_certs)
        except OSError as error:
            raise _wrong(f"ssl_ca_certs = {settings.ssl_ca_certs!r}", error) from None
    return context


def _password(settings: Settings) -> Callable[[], str]:
    def tell() -> str:
        password = settings.ssl_keyfile_password.get_secret_value()
        if not password:  # OpenSSL would ask the terminal
            raise ValueError("the key has a password; set ssl_keyfile_password")
        return password

    return tell


def _stamp(path: str) -> Stamp | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None


def _wrong(what: str, error: Exception) -> LakelogError:
    advice = "name files in PEM that belong together"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return unusable(f"{what} cannot be used", error, advice, InvalidConfig)
    reason: Any = str(error)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "no certificate in PEM"
    return InvalidConfig(f"{what} cannot be used ({reason}); {advice}")


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
