"""Consumers and their gateway are killed under load: every record is processed, and no commit is early."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from log_tables.clock import ManualClock
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import ROOT, free_port, wait_until

PARTITIONS = 4
READERS = 3
GROUP, TOPIC = "readers", "t"


class Scene:
    """A gateway at a port of its own, a producer, and consumers that share one topic."""

    def __init__(self, directory: Path, mode: str) -> None:
        self._directory, self._mode, self._port = directory, mode, free_port()
        self.gateway = self._start_gateway()
        self.gateway.create_topic(TOPIC, PARTITIONS)
        self._started = 0
        self.readers = [self._start_reader() for _ in range(READERS)]
        self._stop = threading.Event()
        self._producer = threading.Thread(target=self._produce)
        self._producer.start()

    def _start_gateway(self) -> RunningGateway:
        return start_gateway(self._directory / "data", "--port", str(self._port))

    def _start_reader(self) -> "subprocess.Popen[bytes]":
        """A reader with a name of its own: what is given to one that dies must not be another's to commit."""
        name = f"reader-{self._started}"
        self._started += 1
        url, file = f"http://127.0.0.1:{self._port}", self._directory / name
        command = [
            sys.executable,
            "-m",
            "tests.kit.group_reader",
            url,
            GROUP,
            name,
            TOPIC,
            str(file),
        ]
        return subprocess.Popen([*command, self._mode], cwd=ROOT)

    def _produce(self) -> None:
        body = {"records": [{"value": index, "partition": index % PARTITIONS} for index in range(40)]}
        with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=10) as client:
            while not self._stop.wait(0.01):
                with suppress(httpx.TransportError):
                    client.post(f"/topics/{TOPIC}", json=body)

    def kill_reader(self, index: int) -> None:
        self.readers[index].kill()
        self.readers[index].wait()
        self.readers[index] = self._start_reader()

    def kill_gateway(self) -> None:
        self.gateway.kill()
        self.gateway = self._start_gateway()

    def processed(self) -> dict[int, set[int]]:
        """The offsets of each partition that some reader has noted."""
        found: dict[int, set[int]] = {index: set() for index in range(PARTITIONS)}
        for file in self._directory.glob("reader-*"):
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # who was killed may have written half a line
                    partition, offset = map(int, line.split())
                    found[partition].add(offset)
        return found

    def wait_for(self, more: int) -> None:
        """Return when so many more records are processed."""
        wanted = sum(map(len, self.processed().values())) + more
        wait_until(lambda: sum(map(len, self.processed().values())) >= wanted, f"{more} more are processed")

    def committed(self) -> dict[int, int]:
        answer = self.gateway.client.get(f"/consumers/{GROUP}/offsets")
        if answer.status_code == 404:
            return {}
        return {place["partition"]: place["offset"] for place in answer.json()["offsets"]}

    def ends(self) -> dict[int, int]:
        paths = {index: f"/topics/{TOPIC}/partitions/{index}/offsets" for index in range(PARTITIONS)}
        return {index: self.gateway.client.get(path).json()["end_offset"] for index, path in paths.items()}

    def check_commits(self) -> None:
        """Nothing is committed that nobody has processed: the commits are looked at first."""
        committed, processed = self.committed(), self.processed()
        for partition, offset in committed.items():
            assert set(range(offset)) <= processed[partition], f"partition {partition}: {offset} is committed"

    def lag(self) -> int:
        """How many records there are that nobody has committed."""
        committed = self.committed()
        return sum(end - committed.get(partition, 0) for partition, end in self.ends().items())

    def end_load(self) -> None:
        self._stop.set()
        self._producer.join()

    def close(self) -> None:
        self.end_load()
        for reader in self.readers:
            reader.kill()
            reader.wait()
        self.gateway.stop()


@pytest.fixture(params=["manual", "auto"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, request.param)
    yield made
    made.close()


def break_it(scene: Scene, draw: ManualClock, deaths: int) -> None:
    """`deaths` of each kind at random moments; then everything that was written must have been processed."""
    for turn in range(2 * deaths):
        scene.wait_for(int(draw.random() * 400))
        if turn % 2:
            scene.kill_gateway()
        else:
            scene.kill_reader(int(draw.random() * READERS))
        scene.check_commits()
    scene.end_load()
    wait_until(lambda: scene.lag() == 0, "all is committed")
    scene.check_commits()
    ends, processed = scene.ends(), scene.processed()
    assert min(ends.values()) > 0
    for partition, end in ends.items():
        assert processed[partition] == set(range(end))


def test_nothing_is_missed_though_consumers_and_gateway_die(scene: Scene, seed: int) -> None:
    break_it(scene, ManualClock(seed=seed), 2)


@pytest.mark.torture
def test_nothing_is_missed_though_they_die_often(scene: Scene, seed: int) -> None:
    break_it(scene, ManualClock(seed=seed), 20)
