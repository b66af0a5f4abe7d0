"""The gateway process: it starts, stops in order, and comes back with everything it acknowledged."""

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from tests.kit.forked import run_lakelog
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway, two_gateways
from tests.kit.run_credential import credential_headers, credential_line
from tests.kit.support import exit_code

JSON = {"Content-Type": "application/json"}


def test_an_orderly_stop_keeps_what_was_only_accepted(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=5_000)
    gateway.create_topic("t")
    for acks in ("0", "1"):
        assert gateway.produce("t", "a", "b", partition=0, acks=acks).status_code in (200, 202)
    assert gateway.stop() == 0
    with running_gateway(tmp_path) as again:
        offsets = again.client.get("/topics/t/partitions/0/offsets").json()
        assert offsets == {"beginning_offset": 0, "end_offset": 4}


def test_gateways_of_one_process_have_the_same_routes(tmp_path: Path) -> None:
    """FastAPI would make each of them at the first request of each gateway, on its event loop."""
    one, other = (
        create_app(open_gateway(Settings(data=str(tmp_path / name)), "http://test")).routes for name in "ab"
    )
    assert len(one) > 20
    assert all(route is its for route, its in zip(one, other, strict=True))


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="no /proc: it shows what a process has loaded"
)
def test_a_gateway_never_loads_pandas(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.create_topic("t")
        assert gateway.produce("t", "a", None, partition=0).status_code == 200
        assert len(gateway.client.get("/topics/t/partitions/0/records").json()) == 2
        loaded = Path(f"/proc/{gateway.process.pid}/maps").read_text()
        assert "pyarrow" in loaded
        assert "pandas" not in loaded


def test_a_stop_that_cannot_flush_in_time_says_so(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=60_000, shutdown_timeout_ms=0)
    gateway.create_topic("t")
    assert gateway.produce("t", "a", partition=0, acks="1").status_code == 200
    assert gateway.stop() == 1


def test_requests_in_flight_are_answered_before_the_end(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=1_000)
    gateway.create_topic("t")
    connection = connected(gateway)
    body = json.dumps({"records": [{"value": 1}]})
    connection.request("POST", "/topics/t/partitions/0", body, JSON | credential_headers())
    assert gateway.stop() == 0
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.loads(answer.read())["offsets"][0]["offset"] == 0


def connected(gateway: RunningGateway) -> HTTPConnection:
    """A connection that the gateway has accepted, so that what is sent on it is in flight."""
    connection = HTTPConnection(gateway.url.removeprefix("http://"))
    connection.request("GET", "/health")
    connection.getresponse().read()
    return connection


def test_a_killed_gateway_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("t")
    for value in range(5):
        assert gateway.produce("t", value, partition=0).status_code == 200
    assert gateway.kill() == -signal.SIGKILL
    with running_gateway(tmp_path) as again:
        assert again.produce("t", 5, partition=0).json()["offsets"][0]["offset"] == 5
        records = again.client.get("/topics/t/partitions/0/records", params={"offset": 0}).json()
        assert [record["value"] for record in records] == [0, 1, 2, 3, 4, 5]


def test_a_long_poll_is_answered_when_the_gateway_stops(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path)
    gateway.create_topic("t")
    connection = connected(gateway)
    connection.request(
        "GET", "/topics/t/partitions/0/records?offset=0&timeout=100000", headers=credential_headers()
    )
    assert gateway.stop() == 0
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, [])


def test_two_gateways_that_create_one_topic_leave_one_that_works(tmp_path: Path) -> None:
    with two_gateways(tmp_path) as (first, second):
        topics = f"{first.cluster}/topics"

        def create(gateway: RunningGateway, name: str) -> int:
            return gateway.client.post(topics, json={"topic_name": name}).status_code

        with ThreadPoolExecutor(2) as pool:
            for name in (f"race-{number}" for number in range(5)):
                answers = pool.map(create, (first, second), (name, name))
                assert sorted(answers) == [201, 400]
                for gateway in (first, second):
                    offsets = gateway.client.get(f"/topics/{name}/partitions/0/offsets")
                    assert offsets.json() == {"beginning_offset": 0, "end_offset": 0}


def test_half_a_request_changes_nothing_and_is_nobody_s_error(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.create_topic("t")
        for path in ("/topics/t/partitions/0", f"{gateway.cluster}/topics"):
            with socket.create_connection(address(gateway)) as connection:
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                head += credential_line()
                connection.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"records": ['.encode())
        offsets = gateway.client.get("/topics/t/partitions/0/offsets").json()
        assert offsets == {"beginning_offset": 0, "end_offset": 0}
        metrics = gateway.client.get("/metrics").text
        assert 'error_code="50002"' not in metrics
        assert "lakelog_buffer_used_bytes 0.0" in metrics


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path)
    gateway.create_topic("t")
    # A request whose body never comes keeps an orderly stop waiting.
    with socket.create_connection(address(gateway)) as connection:
        head = "POST /topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}{credential_line()}Content-Length: 9\r\n\r\n".encode())
        assert gateway.client.get("/health").status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        while accepts(gateway.url):
            pass
        gateway.process.send_signal(signal.SIGINT)
        assert exit_code(gateway.process) == 130


def address(gateway: RunningGateway) -> tuple[str, int]:
    url = httpx.URL(gateway.url)
    return url.host, url.port or 80


def accepts(url: str) -> bool:
    try:
        httpx.get(f"{url}/health")
    except httpx.TransportError:
        return False
    return True


def test_two_starts_on_one_port_tell_the_second_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve("--data", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_setting_ends_the_start_with_exit_code_2(tmp_path: Path) -> None:
    done = serve("--data", str(tmp_path), "--set", "linger=3")
    assert done.returncode == 2
    assert "unknown setting linger" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_root_that_is_no_directory_ends_the_start_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = serve("--data", str(tmp_path / "file"), "--port", "0")
    assert done.returncode == 2
    assert f"{tmp_path}/file" in done.stderr
    assert "Traceback" not in done.stderr


def serve(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_lakelog("serve", *arguments)
