"""The gateway process: it starts, stops in order, and comes back with everything it acknowledged."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import httpx

from tests.gateway import running_gateway, start_gateway


def test_an_orderly_stop_keeps_what_was_only_accepted(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=5_000)
    gateway.create_topic("t")
    for acks in ("0", "1"):
        assert gateway.produce("t", "a", "b", partition=0, acks=acks).status_code in (200, 202)
    assert gateway.stop() == 0
    with running_gateway(tmp_path) as again:
        offsets = again.client.get("/topics/t/partitions/0/offsets").json()
        assert offsets == {"beginning_offset": 0, "end_offset": 4}


def test_requests_in_flight_are_answered_before_the_end(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=1_000)
    gateway.create_topic("t")
    answers: list[httpx.Response] = []

    def produce() -> None:
        with httpx.Client(base_url=gateway.url, timeout=30) as client:
            answers.append(client.post("/topics/t/partitions/0", json={"records": [{"value": 1}]}))

    def buffered() -> bool:
        text = gateway.client.get("/metrics").text
        return "lakelog_buffer_used_bytes 0.0" not in text

    thread = Thread(target=produce)
    thread.start()
    while not buffered() and not answers:
        pass
    assert gateway.stop() == 0
    thread.join()
    assert answers[0].status_code == 200
    assert answers[0].json()["offsets"][0]["offset"] == 0


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


def test_a_long_poll_does_not_delay_the_end(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path)
    gateway.create_topic("t")
    answers: list[httpx.Response] = []

    def poll() -> None:
        with httpx.Client(base_url=gateway.url, timeout=120) as client:
            query = {"offset": "0", "timeout": "100000"}
            answers.append(client.get("/topics/t/partitions/0/records", params=query))

    thread = Thread(target=poll)
    thread.start()
    while not answers and gateway.client.get("/health").status_code != 200:
        pass
    assert gateway.stop() == 0
    thread.join()


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


def test_a_root_that_cannot_be_opened_ends_the_start_with_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = serve("--data", str(tmp_path / "file"), "--port", "0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def serve(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lakelog", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
