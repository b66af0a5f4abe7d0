"""Kafka's protocol spoken by a test itself, over a socket: right, wrong, slow or not at all."""

import base64
import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from api.kafka.protocol.apis import APIS
from api.kafka.protocol.codec import decode, encode
from api.kafka.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from api.kafka.protocol.notation import Message
from tests.kit.support import WAIT_S

CLIENT_ID = "test"

_KEYS = {api.request: key for key, api in APIS.items()}

M = TypeVar("M", bound=Message)


class Closed(Exception):
    """The gateway has ended the connection."""


class Asker:
    """One connection, whose requests are answered in their order."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> None:
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S, source_address=(source, 0))
        self.socket = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._number = 0

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The answer to a request, by default in the newest version. Raises Closed."""
        shown = type(request).versions.last if version is None else version
        self.send(request, shown)
        return self.answer(type(request), shown)

    def send(self, request: Message, version: int) -> None:
        """Send a request, and wait for nothing."""
        self._number += 1
        self.write(frame(request, version, self._number))

    def answer(self, asked: type[Message], version: int) -> Any:
        """The next answer, which is to a request of this kind. Raises Closed."""
        api = APIS[_KEYS[asked]]
        body = memoryview(self.read_frame())[4:]
        if api.response.flexible_header and version >= api.response.first_flexible:
            body = body[1:]
        return decode(api.response, version, body)

    def write(self, data: bytes) -> None:
        """Send bytes. Raises Closed."""
        try:
            self.socket.sendall(data)
        except (OSError, ssl.SSLError):
            raise Closed from None

    def read_frame(self) -> bytes:
        """The next frame without its length. Raises Closed."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                more = self.socket.recv(size - len(found))
            except TimeoutError:
                raise
            except (OSError, ssl.SSLError):
                more = b""
            if not more:
                raise Closed
            found += more
        return bytes(found)

    def is_closed(self) -> bool:
        """Whether the gateway closes the connection without sending anything before."""
        try:
            self._read(1)
        except Closed:
            return True
        return False

    def close(self) -> None:
        self.socket.close()

    # Logging in.

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        found: SaslHandshakeResponse = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        return found

    def authenticate(self, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
        found: SaslAuthenticateResponse = self.ask(SaslAuthenticateRequest(auth_bytes=message), version)
        return found

    def plain(self, name: str, password: str) -> SaslAuthenticateResponse:
        """Log in by PLAIN."""
        self.handshake("PLAIN")
        return self.authenticate(plain_message(name, password))

    def key(self, key: str) -> SaslAuthenticateResponse:
        """Log in by an API key."""
        return self.plain(*key.split("."))

    def scram(self, name: str, password: str, digest: str = "256") -> SaslAuthenticateResponse:
        """Log in by SCRAM. Raises AssertionError where the gateway does not prove itself."""
        self.handshake(f"SCRAM-SHA-{digest}")
        bare = f"n={name},r=abc"
        first = self.authenticate(f"n,,{bare}".encode())
        if first.error_code:
            return first
        said = bytes(first.auth_bytes).decode()
        parts = dict(part.split("=", 1) for part in said.split(","))
        algorithm = f"sha{digest}"
        salt = base64.b64decode(parts["s"])
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        unproven = f"c=biws,r={parts['r']}"
        about = f"{bare},{said},{unproven}".encode()
        signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), about, algorithm)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        last = self.authenticate(f"{unproven},p={base64.b64encode(proof).decode()}".encode())
        if not last.error_code:
            server_key = hmac.digest(salted, b"Server Key", algorithm)
            shown = base64.b64encode(hmac.digest(server_key, about, algorithm))
            assert bytes(last.auth_bytes) == b"v=" + shown
        return last


def plain_message(name: str, password: str) -> bytes:
    """The message of PLAIN."""
    return f"\0{name}\0{password}".encode()


def frame(request: Message, version: int, number: int = 1) -> bytes:
    """A request as it is sent, with its length and header."""
    head = struct.pack(">hhih", _KEYS[type(request)], version, number, len(CLIENT_ID)) + CLIENT_ID.encode()
    if version >= type(request).first_flexible:
        head += b"\0"
    return framed(head + encode(request, version))


def framed(data: bytes) -> bytes:
    """`data` behind its length."""
    return struct.pack(">i", len(data)) + data


@contextmanager
def asker(port: int, **given: Any) -> Iterator[Asker]:
    """A connection that is closed at the end."""
    client = Asker(port, **given)
    try:
        yield client
    finally:
        client.close()
