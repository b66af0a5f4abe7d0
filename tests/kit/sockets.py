"""Requests as bytes on a socket, for what no client library sends."""

import socket
from dataclasses import dataclass, field

import httpx
import msgspec

from tests.kit.gateway import RunningGateway
from tests.kit.run_credential import credential_headers

WAIT_S = 180.0


def connect(gateway: RunningGateway) -> socket.socket:
    url = httpx.URL(gateway.url)
    connection = socket.create_connection((url.host, url.port or 80))
    connection.settimeout(WAIT_S)
    if gateway.ssl_context is None:
        return connection
    return gateway.ssl_context.wrap_socket(connection, server_hostname=url.host)


@dataclass
class Heard:
    """The bytes and statuses that came on a connection until it was closed."""

    data: bytes = b""
    statuses: list[int] = field(default_factory=list)

    @property
    def error_code(self) -> int:
        """The error code of the last answer."""
        code: int = msgspec.json.decode(self.data.rpartition(b"\r\n\r\n")[2])["error_code"]
        return code


def hear(connection: socket.socket) -> Heard:
    """Read everything until the gateway closes the connection."""
    data = b""
    while part := connection.recv(65_536):
        data += part
    connection.close()
    answers = data.split(b"HTTP/1.1 ")[1:]
    return Heard(data, [int(answer[:3]) for answer in answers])


def tell(gateway: RunningGateway, *parts: bytes) -> Heard:
    """Send `parts`, as far as they are taken, and hear what comes until the connection is closed."""
    connection = connect(gateway)
    try:
        for part in parts:
            connection.sendall(part)
    except ConnectionError:
        pass  # it was refused meanwhile; the answer is there
    return hear(connection)


def head(line: str, **headers: str) -> bytes:
    """The head of a request to a gateway on this machine; `_` in a header's name stands for `-`."""
    lines = [f"{line} HTTP/1.1", "Host: 127.0.0.1"]
    told = credential_headers() | {name.replace("_", "-"): value for name, value in headers.items()}
    lines += [f"{name}: {value}" for name, value in told.items()]
    return "\r\n".join([*lines, "", ""]).encode()
