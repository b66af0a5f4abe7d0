"""TLS handshakes that stall: they have little time, are counted as connections, and keep nobody out."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from log_tables.limits import HANDSHAKES_LET_IN
from tests.kit.certificates import Authority
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.support import WAIT_S, wait_until


@contextmanager
def over_tls(tmp_path: Path, **settings: object) -> Iterator[RunningGateway]:
    """A gateway that speaks TLS, and whose client trusts it."""
    authority = Authority(tmp_path)
    pair = authority.pair("gateway")
    files = {"ssl_certfile": pair.certfile, "ssl_keyfile": pair.keyfile, "peer_ca_certs": authority.ca_file}
    with running_gateway(tmp_path / "root", **files, **settings) as gateway:
        gateway.ssl_context = authority.trusted()
        gateway.client.close()
        gateway.client = httpx.Client(base_url=gateway.url, timeout=WAIT_S, verify=gateway.ssl_context)
        yield gateway


def silent(gateway: RunningGateway) -> socket.socket:
    """A connection that sends nothing."""
    url = httpx.URL(gateway.url)
    return socket.create_connection((url.host, url.port or 443), timeout=WAIT_S)


def connections(gateway: RunningGateway) -> int:
    lines = gateway.client.get("/metrics").text.splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("lakelog_connections "))
    return int(float(found))


def is_closed(connection: socket.socket) -> bool:
    """Whether the gateway has already closed the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_handshake_that_stalls_is_counted_and_given_up(tmp_path: Path) -> None:
    with over_tls(tmp_path, receive_timeout_ms=1_000) as gateway, ExitStack() as stack:
        assert connections(gateway) == 1
        held = [stack.enter_context(silent(gateway)) for _ in range(20)]
        held[0].sendall(b"\x16\x03\x01")  # the beginning of a handshake is none
        wait_until(lambda: connections(gateway) > 10, "they are counted")
        wait_until(lambda: all(map(is_closed, held)), "they are closed")
        wait_until(lambda: connections(gateway) == 1, "they are forgotten")


def test_those_that_stall_keep_nobody_out(tmp_path: Path) -> None:
    """There are as many as there may be: the oldest gives way."""
    with over_tls(tmp_path, max_connections=HANDSHAKES_LET_IN) as gateway, ExitStack() as stack:
        held = [stack.enter_context(silent(gateway)) for _ in range(3 * HANDSHAKES_LET_IN)]
        for _ in range(3):
            with httpx.Client(base_url=gateway.url, verify=gateway.ssl_context or False) as client:
                assert client.get("/health").status_code == 200
        wait_until(lambda: is_closed(held[0]), "the oldest is closed")
        assert sum(map(is_closed, held)) > HANDSHAKES_LET_IN
        assert not is_closed(held[-1])


def test_an_address_has_only_its_share_and_a_stop_waits_for_none(tmp_path: Path) -> None:
    with over_tls(tmp_path, max_connections_per_ip=4) as gateway, ExitStack() as stack:
        held = [stack.enter_context(silent(gateway)) for _ in range(8)]
        wait_until(lambda: all(map(is_closed, held[:4])), "the older ones are closed")
        assert not is_closed(held[-1])
        assert gateway.stop() == 0
        wait_until(lambda: is_closed(held[-1]), "it is closed")
