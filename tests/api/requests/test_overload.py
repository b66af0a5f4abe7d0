"""More than a gateway can hold: it says so, holds no more, and loses nothing that it acknowledged."""

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa

from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.produce import ARROW, post, records, refused, stream
from tests.kit.run_credential import credential_line

KIB = 1024


def read_all(gateway: RunningGateway, topic: str) -> list[str]:
    """The values of partition 0, by offset."""
    found: list[str] = []
    while True:
        path = f"/topics/{topic}/partitions/0/records"
        answer = gateway.client.get(path, params={"offset": len(found)})
        found += [record["value"] for record in answer.json()]
        if len(found) == int(answer.headers["High-Watermark"]):
            return found


def fill(gateway: RunningGateway, topic: str, size: int) -> tuple[list[str], httpx.Response]:
    """Send values of `size` bytes, acknowledged before they are durable, until one is refused."""
    taken: list[str] = []
    while True:
        value = f"{topic}-{len(taken):04}-".ljust(size, "x")
        answer = gateway.produce(topic, value, partition=0, acks="1")
        if answer.status_code != 200:
            return taken, answer
        taken.append(value)


def test_a_topic_that_fills_its_share_is_refused_and_others_go_on(tmp_path: Path) -> None:
    # Nothing is committed while the batch lingers, so what is taken is held.
    limits = {"buffer_memory": 256 * KIB, "max_request_bytes": 64 * KIB, "linger_ms": 60_000}
    gateway = start_gateway(tmp_path, **limits)
    for topic in ("greedy", "modest"):
        gateway.create_topic(topic)
    greedy, answer = fill(gateway, "greedy", 10_000)
    refused(answer, 429, 42901, "'greedy'")
    assert answer.headers["Retry-After"] == "1"
    assert 5 < len(greedy) * 10_000 / KIB <= 128 * KIB / KIB + 10
    assert gateway.produce("modest", "small", partition=0, acks="1").status_code == 200
    modest, answer = fill(gateway, "modest", 1_000)
    refused(answer, 429, 42901, "no room")
    # What needs no room still works.
    assert gateway.client.get("/health").status_code == 200
    assert gateway.client.get("/topics/modest/partitions/0/records").status_code == 200
    assert gateway.stop() == 0
    with running_gateway(tmp_path) as again:
        assert read_all(again, "greedy") == greedy
        assert read_all(again, "modest") == ["small", *modest]
        assert "lakelog_buffer_used_bytes 0.0" in again.client.get("/metrics").text


def test_under_more_than_it_can_hold_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    limits = {"buffer_memory": 256 * KIB, "max_request_bytes": 64 * KIB, "linger_ms": 20}
    with running_gateway(tmp_path, **limits) as gateway:
        gateway.create_topic("t")

        def send(writer: int) -> tuple[list[str], int]:
            sent, refusals = [f"{writer}-{number}-".ljust(30_000, "x") for number in range(5)], 0
            for value in sent:
                while (answer := gateway.produce("t", value, partition=0)).status_code != 200:
                    refused(answer, 429, 42901, "no room")
                    assert answer.headers["Retry-After"] == "1"
                    refusals += 1
            return sent, refusals

        with ThreadPoolExecutor(12) as pool:
            done = list(pool.map(send, range(12)))
        assert sum(refusals for _, refusals in done) > 0
        assert Counter(read_all(gateway, "t")) == Counter(value for sent, _ in done for value in sent)
        assert "lakelog_buffer_used_bytes 0.0" in gateway.client.get("/metrics").text


def test_a_body_that_grows_beyond_the_limit_is_refused_and_its_room_given_back(tmp_path: Path) -> None:
    with running_gateway(tmp_path, buffer_memory=256 * KIB, max_request_bytes=64 * KIB) as gateway:
        gateway.create_topic("t")
        body = records({"value": "x" * 100_000})
        refused(post(gateway, "/topics/t", body), 413, 413, "65536 are allowed")
        # In chunks, which do not say how many will come.
        refused(post(gateway, "/topics/t", iter([body[:50_000], body[50_000:]])), 413, 413, "65536 are")
        assert read_all(gateway, "t") == []
        assert "lakelog_buffer_used_bytes 0.0" in gateway.client.get("/metrics").text


def resident_peak(gateway: RunningGateway) -> int:
    """The most bytes that the process has had in memory."""
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) * KIB


def test_slow_readers_hold_little_of_what_they_asked_for(tmp_path: Path) -> None:
    body = stream(pa.table({"value": [f"{number:08}" * 125 for number in range(6_000)]}))
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        gateway.create_topic("t")
        for _ in range(8):
            assert post(gateway, "/topics/t/partitions/0", body, ARROW).status_code == 200
    # In a new process nothing is cached.
    with running_gateway(tmp_path) as gateway:
        url = httpx.URL(gateway.url)
        address = (url.host, url.port or 80)
        head = f"Host: localhost\r\nAccept: {ARROW}\r\n{credential_line()}\r\n"
        fetch = f"GET /topics/t/partitions/0/records HTTP/1.1\r\n{head}".encode()
        arrow = {"Accept": ARROW}
        whole = gateway.client.get("/topics/t/partitions/0/records", headers=arrow)
        assert len(whole.content) > 8 * 6_000 * 1_000
        before = resident_peak(gateway)
        readers = [socket.create_connection(address) for _ in range(8)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.sendall(fetch)
        assert all(reader.recv(1).startswith(b"H") for reader in readers)
        assert gateway.produce("t", "still at work", partition=0).status_code == 200
        assert resident_peak(gateway) - before < len(readers) * len(whole.content) / 2, (
            before,
            resident_peak(gateway),
        )
        for reader in readers:
            reader.close()
        assert json.loads(gateway.client.get("/topics").text) == ["t"]
