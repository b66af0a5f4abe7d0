"""One gateway under all kinds of clients, killed and started again: their history is a correct one."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from tests.kit.clients import Task
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.history import At, Commit, Fetch, Write
from tests.kit.history_checker import Finding
from tests.kit.support import free_port, wait_until
from tests.kit.workload import Workload, lag

TOPIC, COPY, PARTITIONS = "t", "copy", 2
READERS, COPIERS = "readers", "copiers"


class Scene:
    """A gateway at a port of its own, and a workload."""

    def __init__(self, directory: Path) -> None:
        self._data, self._port = directory / "data", free_port()
        self.gateway = self._start()
        for topic in (TOPIC, COPY):
            self.gateway.create_topic(topic, PARTITIONS)
        self.url = f"http://127.0.0.1:{self._port}"
        self.load = Workload([self.url], directory)
        for index in range(PARTITIONS):
            at = At(TOPIC, index)
            self.load.start(
                Task("produce", f"idempotent{index}", at),
                Task("produce plainly", f"plain{index}", at),
                Task("fetch", f"fetcher{index}", at),
                Task("read", f"reader{index}", at, READERS),
                Task("copy", f"copier{index}", at, COPIERS, tuple(At(COPY, to) for to in range(PARTITIONS))),
            )
        self.load.start_process(Task("produce", "process", At(TOPIC, 0)))

    def _start(self) -> RunningGateway:
        return start_gateway(self._data, "--port", str(self._port), linger_ms=1)

    def kill(self) -> None:
        """Kill it and start it again at the same port."""
        self.gateway.kill()
        self.gateway = self._start()

    def findings(self) -> list[Finding]:
        """End the load, let the groups reach the end, and look."""
        self.load.end_writers()
        for group in (READERS, COPIERS):
            wait_until(partial(self._is_at_the_end, group), f"{group} are at the end")
        self.load.end()
        return self.load.findings({TOPIC: PARTITIONS, COPY: PARTITIONS}, [READERS, COPIERS])

    def _is_at_the_end(self, group: str) -> bool:
        return lag(self.url, group, TOPIC, PARTITIONS) == 0

    def close(self) -> None:
        try:
            self.load.end()
        finally:
            self.gateway.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def survive(scene: Scene, seed: int, kills: int) -> None:
    draw = ManualClock(seed=seed)
    for _ in range(kills):
        scene.load.wait_for(10 + int(draw.random() * 100))
        scene.kill()
    scene.load.wait_for(20, Write, "idempotent")
    scene.load.wait_for(5, Write, "copier")
    scene.load.wait_for(5, Commit)
    scene.load.wait_for(5, Fetch)
    assert scene.findings() == []


def test_a_gateway_that_is_killed_leaves_a_correct_history(scene: Scene, seed: int) -> None:
    survive(scene, seed, kills=2)


@pytest.mark.torture
def test_a_gateway_that_is_killed_often_leaves_a_correct_history(scene: Scene, seed: int) -> None:
    survive(scene, seed, kills=25)
