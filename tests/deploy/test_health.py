"""The check of a container's health: it asks where the settings say that the gateway listens."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kit.deployed import HEALTH, environment_of


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def healthy_at(host: str) -> Iterator[int]:
    """The port of a server that answers as a gateway that lives."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, 0), _Healthy)
    except OSError as error:
        pytest.skip(f"nothing can listen on {host} here: {error}")
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:  # else its thread would ask for ever for clients of a socket that is closed
            server.shutdown()


def checked(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HEALTH], env=environment_of(variables), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("host", "named"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::1", "::1"), ("::1", "::")],
)
def test_a_gateway_is_asked_at_any_address_that_it_may_listen_on(host: str, named: str) -> None:
    with healthy_at(host) as port:
        done = checked(LAKELOG_HOST=named, LAKELOG_PORT=str(port))
    assert (done.returncode, done.stderr) == (0, "")


def test_no_proxy_is_asked_about_the_own_container() -> None:
    with healthy_at("127.0.0.1") as port:
        done = checked(LAKELOG_HOST="127.0.0.1", LAKELOG_PORT=str(port), HTTP_PROXY="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_who_answers_is_said_in_a_line() -> None:
    with healthy_at("127.0.0.1") as port:
        pass
    done = checked(LAKELOG_HOST="127.0.0.1", LAKELOG_PORT=str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"http://127.0.0.1:{port}/health: ")
    assert "Traceback" not in done.stderr
