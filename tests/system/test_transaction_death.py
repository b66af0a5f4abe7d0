"""Gateways that are killed amid transactions: each input has its output once, and nothing stays pending."""

import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import lakelog
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import pending_files
from log_tables.errors import (
    Conflict,
)
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.support import free_port, wait_until
from tests.kit.transaction_scene import JSON, values

PARTITIONS = 3
WORKERS = 2


class Flow:
    """Workers that copy one topic into another, each input once, while their gateway is killed."""

    def __init__(self, data: Path, records: int) -> None:
        self._data, self._port = data, free_port()
        self.gateway = self.start()
        for name in ("in", "out"):
            self.gateway.create_topic(name, PARTITIONS)
        for partition in range(PARTITIONS):
            self.gateway.produce("in", *range(partition, records, PARTITIONS), partition=partition)
        self.records = records
        self.done = threading.Semaphore(0)
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(f"w{n}",)) for n in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def start(self) -> RunningGateway:
        return start_gateway(self._data, "--port", str(self._port), linger_ms=1)

    def _work(self, name: str) -> None:
        url = f"http://127.0.0.1:{self._port}"
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "auto_commit": False}
        with lakelog.Consumer(url, "g", "in", name=name, retry_ms=60_000, **settings) as reading:
            while not self._end.is_set():
                table = reading.poll(200, max_bytes=400)
                if not table.num_rows:
                    continue
                try:
                    with reading.transaction() as transaction:
                        for value in table.column("value").to_pylist():
                            transaction.send("out", value, key=value)
                            transaction.send("out", b"-" + value, key=b"-" + value)
                except Conflict:
                    continue
                self.done.release()

    def committed(self) -> int:
        answer = self.gateway.client.get("/consumers/g/offsets")
        return sum(at["offset"] for at in answer.json().get("offsets", []))

    def kill(self, draw: ManualClock) -> None:
        """After some transactions, in the middle of another one."""
        for _ in range(int(draw.random() * 4)):
            assert self.done.acquire(timeout=60)
        if draw.random() < 0.7:
            staging = self._data / "staging"
            wait_until(lambda: staging.is_dir() and any(staging.iterdir()), "something is staged")
        self.gateway.kill()
        self.gateway = self.start()

    def finish(self) -> Counter[bytes]:
        """Wait until all is consumed; what came out of it."""
        wait_until(lambda: self.committed() == self.records, "all is consumed")
        self._end.set()
        for thread in self._threads:
            thread.join()
        with lakelog.Client(self.gateway.url) as client:
            found = Counter(r.value or b"" for p in range(PARTITIONS) for r in client.read("out", p))
        self.gateway.stop()
        return found


def flow(data: Path, seed: int, kills: int, records: int) -> None:
    draw, running = ManualClock(seed=seed), Flow(data, records)
    for _ in range(kills):
        running.kill(draw)
    found = running.finish()
    assert found == Counter(b"%s%d" % (sign, n) for n in range(records) for sign in (b"", b"-"))
    assert check(open_store(data)).problems == []


def test_each_input_has_its_output_once_though_the_gateway_is_killed(tmp_path: Path, seed: int) -> None:
    flow(tmp_path / "data", seed, kills=3, records=400)


@pytest.mark.torture
def test_each_input_has_its_output_once_though_the_gateway_is_killed_often(tmp_path: Path, seed: int) -> None:
    flow(tmp_path / "data", seed, kills=20, records=6_000)


def test_what_a_gateway_left_is_applied_though_nobody_asks(tmp_path: Path) -> None:
    """The gateway is killed before it marks a transaction, and its client has left. The next gateway applies
    it.
    """
    staging = tmp_path / "staging"
    body = {"records": [{"topic": "out", "partition": p, "value": p} for p in range(2)]}
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("out", 2)
    post = threading.Thread(target=_post_once, args=(f"{gateway.url}/consumers/g/transactions", body))
    post.start()
    wait_until(lambda: staging.is_dir() and any(staging.iterdir()), "something is staged")
    gateway.kill()
    post.join()
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        store = open_store(tmp_path)
        log = Cluster.open(store, create=False).cached_topic(CONSUMER_OFFSETS)

        def nothing_is_pending() -> bool:
            if log is None:
                return True
            log.partition(0).refresh()
            return not pending_files(log.partitions())

        wait_until(nothing_is_pending, "nothing is pending")
        counts = {len(values(gateway, "out", partition)) for partition in range(2)}
    assert counts in ({0}, {1})


def _post_once(url: str, body: dict[str, Any]) -> None:
    with suppress(httpx.TransportError):
        httpx.post(url, content=json.dumps(body), headers={"Content-Type": JSON})
