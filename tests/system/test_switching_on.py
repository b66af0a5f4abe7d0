"""Security is switched on step by step, while a client that has its key works on: no request of it fails."""

import threading
from pathlib import Path

import httpx
import pytest

from tests.kit.gateway import NEVER_MS, RunningGateway, start_gateway
from tests.kit.secured import Secured, bearer, error_code, everything
from tests.kit.support import free_port, wait_until

JSON = "application/vnd.kafka.json.v2+json"
TOPIC, PARTITIONS, USER = "t", 6, "User:app"
SECURED = {"authentication_methods": "api-key"}


class Load:
    """A client with a key that writes, reads and commits at all gateways in turn, until it is ended.

    A gateway that stops answers `Retriable` or closes its connection, as it does without security: then the
    client goes on at the next one.
    """

    def __init__(self, urls: list[str], key: str) -> None:
        self._urls, self._headers = urls, bearer(key) | {"Content-Type": JSON, "Accept": JSON}
        self.done, self.failed = 0, list[str]()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(headers=self._headers, timeout=60) as client:
            while not self._ending.is_set():
                for url in self._urls:
                    self._round(client, url)

    def _round(self, client: httpx.Client, url: str) -> None:
        number = self.done % PARTITIONS
        sent = {"records": [{"value": self.done}]}
        offsets = {"offsets": [{"topic": TOPIC, "partition": number, "offset": 0}]}
        for method, path, body in (
            ("POST", f"/topics/{TOPIC}/partitions/{number}", sent),
            ("GET", f"/topics/{TOPIC}/partitions/{number}/records?max_bytes=1000", None),
            ("PUT", "/consumers/g/offsets", offsets),
            ("GET", "/consumers/g/offsets", None),
        ):
            try:
                answer = client.request(method, url + path, json=body)
            except httpx.TransportError:
                return  # it is being restarted
            if answer.status_code == 503:
                return
            if not answer.is_success:
                self.failed.append(f"{method} {path} at {url}: {answer.status_code} {answer.text}")
        self.done += 1

    def wait_for_more(self, rounds: int = 20) -> None:
        wanted = self.done + rounds
        wait_until(lambda: self.done >= wanted or bool(self.failed), "the client goes on")

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def start(root: Path, port: int, **settings: object) -> RunningGateway:
    return start_gateway(root, "--port", str(port), linger_ms=0, leader_timeout_ms=NEVER_MS, **settings)


def test_a_client_that_has_its_key_notices_nothing(tmp_path: Path, process: None) -> None:
    ports = [free_port(), free_port()]
    gateways = [start(tmp_path, port) for port in ports]
    load = None
    try:
        gateways[0].create_topic(TOPIC, PARTITIONS)
        root = Secured(tmp_path)
        root.allow(*everything(USER))
        load = Load([gateway.url for gateway in gateways], root.key(USER))
        load.wait_for_more()
        for number, port in enumerate(ports):
            assert gateways[number].stop() == 0
            gateways[number] = start(tmp_path, port, **SECURED)
            load.wait_for_more()
        root.secure()
        load.wait_for_more()
        assert load.failed == []
        assert [error_code(each.client.get("/topics")) for each in gateways] == [40101, 40101]
    finally:
        if load is not None:
            load.end()
        for gateway in gateways:
            gateway.stop()
    assert load.failed == []


def test_an_open_gateway_stops_once_the_cluster_is_secured(tmp_path: Path, process: None) -> None:
    gateways = [start(tmp_path, free_port()), start(tmp_path, free_port(), **SECURED)]
    try:
        root = Secured(tmp_path)
        name = gateways[0].create_topic(TOPIC, PARTITIONS)
        key = root.key()
        root.secure()
        assert gateways[0].process.wait(60) == 2

        def written() -> bool:
            body = {"records": [{"value": 1, "partition": number} for number in range(PARTITIONS)]}
            headers = bearer(key) | {"Content-Type": JSON}
            answer = gateways[1].client.post(f"/topics/{name}", json=body, headers=headers)
            return answer.is_success and all(each["offset"] == 0 for each in answer.json()["offsets"])

        wait_until(written, "the other one leads what it led")
    finally:
        for gateway in gateways:
            gateway.stop()


def test_a_gateway_that_has_lost_the_store_keeps_the_rules_that_it_knows(
    tmp_path: Path, process: None, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "root"
    root = Secured(data)
    key = root.key()
    gateway = start(data, free_port(), **SECURED)
    try:
        gateway.client.get("/topics", headers=bearer(key)).raise_for_status()
        data.rename(tmp_path / "away")
        said = ""

        def told() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return "credentials" in said

        wait_until(told, "the gateway says that it cannot follow them")
        assert error_code(gateway.client.get("/v3/clusters")) == 40101
        assert gateway.client.get("/v3/clusters", headers=bearer(key)).status_code == 200
        assert error_code(gateway.client.get("/v3/clusters", headers=bearer("a.b"))) == 40101
    finally:
        (tmp_path / "away").rename(data)
        gateway.stop()
