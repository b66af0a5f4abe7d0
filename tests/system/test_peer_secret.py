"""The peer secret of several processes: workers in a bucket, and one that is replaced under load."""

import itertools
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.kit.gateway import NEVER_MS, RunningGateway, start_gateway
from tests.kit.processes import descendants
from tests.kit.several import LONG_S, brokers, leaders
from tests.kit.support import S3Server, free_port, wait_until

OLD, NEW = "1" * 32, "2" * 32
PARTITIONS = 4


def all_live(url: str, count: int) -> Callable[[], bool]:
    return lambda: sum(each["alive"] for each in brokers(url)) == count


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc: it shows processes")
def test_workers_in_a_bucket_share_a_secret_of_their_parent(s3: S3Server) -> None:
    settings = {"store_options": json.dumps(s3.options), "linger_ms": 0, "leader_timeout_ms": NEVER_MS}
    gateway = start_gateway(s3.bucket("workers"), "--workers", "3", **settings)
    try:
        wait_until(all_live(gateway.url, 3), "all see one another", LONG_S)
        gateway.create_topic("t", 3)
        for each in brokers(gateway.url):
            for index in range(3):
                answer = httpx.post(
                    f"{each['url']}/topics/t/partitions/{index}",
                    json={"records": [{"value": each["broker"]}]},
                    timeout=LONG_S,
                )
                assert answer.status_code == 200, answer.text
        wait_until(lambda: len(set(leaders(gateway.url, "t"))) == 3, "each leads one", LONG_S)
        for pid in (gateway.process.pid, *descendants(gateway.process.pid)):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            assert not re.search(rb"peer_secret|[0-9a-f]{64}", command)
            assert b"\0LAKELOG_" not in variables
    finally:
        gateway.stop()


class Rotated:
    """Two gateways, of which one at a time is restarted, and a client that is at the other one meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._file, self._root = directory / "secret", directory / "root"
        self._ports = [free_port(), free_port()]
        self.gateways = [self._start(number, OLD) for number in range(2)]
        self._wait()
        self.gateways[0].create_topic("t", PARTITIONS)
        self.failed: list[str] = []
        self.sent = 0
        self._at = 0
        self._pausing = threading.Lock()
        self._ending = threading.Event()
        self._client = threading.Thread(target=self._produce)
        self._client.start()

    def _start(self, number: int, *secrets: str) -> RunningGateway:
        self._file.write_text("\n".join(secrets))
        self._file.chmod(0o600)
        port = str(self._ports[number])
        return start_gateway(self._root, "--port", port, peer_secret_file=self._file, linger_ms=0)

    def _wait(self) -> None:
        for gateway in self.gateways:
            wait_until(all_live(gateway.url, 2), "they see one another", LONG_S)

    def _produce(self) -> None:
        with httpx.Client(timeout=LONG_S) as client:
            for number in itertools.count():
                if self._ending.is_set():
                    return
                with self._pausing:
                    url = f"{self.gateways[self._at].url}/topics/t/partitions/{number % PARTITIONS}"
                    answer = client.post(url, json={"records": [{"value": number}]})
                if answer.status_code != 200:
                    self.failed.append(answer.text)
                self.sent += 1

    def _until_more(self) -> None:
        begin = self.sent
        wait_until(lambda: self.sent >= begin + 4 * PARTITIONS, "requests go on", LONG_S)

    def restart(self, number: int, *secrets: str) -> None:
        with self._pausing:
            self._at = 1 - number
        self._until_more()
        assert self.gateways[number].stop() == 0
        self.gateways[number] = self._start(number, *secrets)
        self._wait()
        self._until_more()
        with self._pausing:
            self._at = number
        self._until_more()

    def close(self) -> None:
        self._ending.set()
        self._client.join()
        for gateway in self.gateways:
            gateway.stop()


@pytest.mark.torture
def test_a_secret_is_replaced_under_load_without_a_failed_request(tmp_path: Path, process: None) -> None:
    """The gateways take the steps in two orders."""
    rotated = Rotated(tmp_path)
    try:
        for number, secrets in ((0, (OLD, NEW)), (1, (NEW, OLD)), (1, (NEW,)), (0, (NEW,))):
            rotated.restart(number, *secrets)
    finally:
        rotated.close()
    assert rotated.failed == []
    assert rotated.sent > 40 * PARTITIONS
