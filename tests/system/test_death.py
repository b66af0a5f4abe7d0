"""`kill -9` of a gateway under load: what was acknowledged is there once, and the log goes on."""

import json
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.folds import check_streamed, unfolded
from tests.kit.gateway import RunningGateway, start_gateway

TOPIC = "ledger"
PARTITIONS = 3
WRITERS = 4
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


class Load:
    """Writers that send numbered values for as long as it lasts, through every death of the gateway."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._alive = threading.Event()
        self._stop = threading.Event()
        self._answers = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.sent: Counter[str] = Counter()
        self.gateway: RunningGateway
        self.revive()
        self.gateway.create_topic(TOPIC, PARTITIONS)
        targets = [self._write_plain] * WRITERS + [self._write_idempotent] * PARTITIONS
        self._threads = [
            threading.Thread(target=target, args=(number,)) for number, target in enumerate(targets)
        ]
        for thread in self._threads:
            thread.start()

    def revive(self) -> None:
        self.gateway = start_gateway(self._data, linger_ms=1)
        self._alive.set()

    def kill_after(self, answers: int) -> None:
        """Kill the gateway when it has given so many more answers."""
        for _ in range(answers):
            assert self._answers.acquire(timeout=60)
        self._alive.clear()
        self.gateway.kill()

    def end(self) -> None:
        self._stop.set()
        self._alive.set()
        for thread in self._threads:
            thread.join()

    def _write_plain(self, writer: int) -> None:
        """Each value is sent once: an answer that is lost leaves it there once or not at all."""
        number = 0
        while not self._stop.is_set():
            values = [f"{writer}-{number}-{place}" for place in range(3)]
            number += 1
            self._send(f"/topics/{TOPIC}", values, {})

    def _write_idempotent(self, writer: int) -> None:
        """Each value is sent until it is acknowledged, by a producer of one partition."""
        partition, sequence = writer - WRITERS, 0
        while not self._stop.is_set():
            values = [f"{writer}-{sequence + place}" for place in range(2)]
            stamp = {"Producer-Id": str(writer), "Producer-Epoch": "0", "Producer-Seq": str(sequence)}
            while not self._send(f"/topics/{TOPIC}/partitions/{partition}", values, stamp):
                if self._stop.is_set():
                    return
            sequence += len(values)

    def _send(self, path: str, values: list[str], headers: dict[str, str]) -> bool:
        self._alive.wait()
        url = self.gateway.url
        with self._lock:
            self.sent.update(set(values) - self.sent.keys())
        try:
            body = json.dumps({"records": [{"value": value} for value in values]})
            answer = httpx.post(url + path, content=body, headers={**JSON, **headers}, timeout=30)
        except httpx.HTTPError:
            return False
        if answer.status_code != 200:
            assert answer.status_code == 503, answer.text
            return False
        with self._lock:
            for value, placed in zip(values, answer.json()["offsets"], strict=True):
                assert placed["offset"] is not None
                self.acknowledged[value] = (placed["partition"], placed["offset"])
        self._answers.release()
        return True


def read_all(gateway: RunningGateway) -> dict[tuple[int, int], str]:
    """Every record by (partition, offset)."""
    found: dict[tuple[int, int], str] = {}
    for partition in range(PARTITIONS):
        offset = 0
        while True:
            path = f"/topics/{TOPIC}/partitions/{partition}/records"
            answer = gateway.client.get(path, params={"offset": offset})
            assert answer.status_code == 200, answer.text
            for record in answer.json():
                assert record["offset"] == offset
                found[partition, offset] = record["value"]
                offset += 1
            if offset == int(answer.headers["High-Watermark"]):
                break
    return found


def survive(data: Path, seed: int, kills: int) -> None:
    draw = ManualClock(seed=seed)
    load = Load(data)
    for _ in range(kills):
        load.kill_after(int(draw.random() * 150))
        load.revive()
    for _ in range(20):
        assert load._answers.acquire(timeout=60)
    load.end()
    found = read_all(load.gateway)
    load.gateway.stop()

    times = Counter(found.values())
    assert [value for value, count in times.items() if count > 1] == []
    assert [value for value, place in load.acknowledged.items() if found.get(place) != value] == []
    assert set(times) <= set(load.sent)
    assert check(open_store(data)).problems == []
    assert unfolded(data, TOPIC) == []
    check_streamed(data, TOPIC)


def test_acknowledged_records_survive_kills_once(tmp_path: Path, seed: int) -> None:
    survive(tmp_path / "data", seed, kills=3)


@pytest.mark.torture
@pytest.mark.parametrize("round", range(4))
def test_acknowledged_records_survive_many_kills_once(tmp_path: Path, seed: int, round: int) -> None:  # noqa: A002
    survive(tmp_path / "data", seed + round, kills=10)
