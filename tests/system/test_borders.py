"""Three gateways under clients of every kind, where nothing stays as it is: killed, paused and stopped while
topics are deleted and re-created, logs truncated, groups set back, and copies of the root started beside.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check as fsck
from log_tables.store.store import open_store
from tests.kit import lives
from tests.kit.clients import Task
from tests.kit.gateway import LEADER_TIMEOUT_MS, running_gateway
from tests.kit.history import At, Create, Operation, Placed, Truncate, Write
from tests.kit.several import COPIERS, LONG_S, READERS, TOPIC, Load, Several, loaded
from tests.kit.workload import read_partition

PHOENIX = "phoenix"
"""The topic that is re-created again and again."""

ONLY_IN_THE_COPY = "only in the copy"


class Scene:
    """Three gateways, the load of tests/kit/several.py, and clients of what does not stay."""

    def __init__(self, several: Several, load: Load, directory: Path, seed: int) -> None:
        self.several, self.load, self._directory = several, load, directory
        self._draw = ManualClock(seed=seed)
        self._copies = 0
        both = f"{READERS} {COPIERS}"
        load.work.start(
            Task("make again", "maker", At(PHOENIX, 0)),
            Task("truncate", "truncater", At(TOPIC, 0), both),
            Task("reset", "resetter", At(TOPIC, 1), READERS),
        )
        for index in range(2):
            load.work.start(
                Task("produce to lives", f"phoenix{index}", At(PHOENIX, index)),
                Task("fetch lives", f"fetcher of {PHOENIX}{index}", At(PHOENIX, index)),
                Task("read lives", f"reader of {PHOENIX}{index}", At(PHOENIX, index), PHOENIX),
            )

    def acts(self) -> list[Callable[[], None]]:
        """All disturbances; in as many rounds each happens at least once."""
        return [self.kill, self.pause, self.stop, self.copy, self.copy_plainly]

    def play(self, rounds: int) -> None:
        """Acts in random order, and clients that get on between them."""
        acts: list[Callable[[], None]] = []
        for _ in range(rounds):
            acts = acts or self.acts()
            acts.pop(int(self._draw.random() * len(acts)))()
            self.load.work.wait_for(10 + int(self._draw.random() * 50))
            self.load.work.wait_for(1, Create)
        self.load.wait_for_all()
        self.load.work.wait_for(1, Truncate)

    def _any(self) -> int:
        return int(self._draw.random() * len(self.several.gateways))

    def kill(self) -> None:
        number = self._any()
        self.several.gateways[number].kill()
        self.load.work.wait_for(3)
        self.several.start(number)

    def pause(self) -> None:
        number = self._any()
        self.several.pause(number)
        self.load.work.wait_for(3, Write, "idempotent")
        self.several.go_on(number)

    def stop(self) -> None:
        number = self._any()
        assert self.several.gateways[number].stop() == 0
        self.several.start(number)

    def copy(self) -> None:
        """A copy that the command makes is whole, and nothing of what is done there comes here."""
        there = self._there()
        sent = self._acknowledged()
        copied = _lakelog("root", "copy", self.several.root, str(there))
        assert copied.returncode == 0, copied.stderr
        assert fsck(open_store(there)).problems == []
        self._use(there, sent)
        shutil.rmtree(there)

    def copy_plainly(self) -> None:
        """A copy by `cp -r` is not served before it is adopted, and a torn copy cannot be adopted."""
        there, sent = self._there(), self._acknowledged()
        subprocess.run(["cp", "-r", self.several.root, str(there)], capture_output=True, check=False)
        assert _lakelog("serve", "--data", str(there), "--port", "0").returncode == 1
        adopted = _lakelog("root", "adopt", "--data", str(there))
        if adopted.returncode == 0:
            self._use(there, sent)
        else:
            assert adopted.returncode == 1
            assert adopted.stderr.startswith("lakelog: ")  # what is torn: a segment, a commit, a staged file
        shutil.rmtree(there)

    def _there(self) -> Path:
        self._copies += 1
        return self._directory / f"copy{self._copies}"

    def _acknowledged(self) -> list[Operation]:
        found = self.load.work.operations()
        writes = [op for op in found if op.ok and isinstance(op.asked, Write)]
        return [op for op in writes if _write(op).parts[0].at.topic != PHOENIX]

    def _use(self, there: Path, sent: list[Operation]) -> None:
        """A gateway serves the copy: what was acknowledged before is there, and it goes its own way."""
        with running_gateway(there) as gateway:
            _check_there(gateway.url, sent)
            answer = gateway.produce(TOPIC, ONLY_IN_THE_COPY, partition=0)
            assert answer.status_code == 200, answer.text
            offset = answer.json()["offsets"][0]["offset"]
            path = f"/topics/{TOPIC}/partitions/0/records?offset={offset}"
            assert [r["value"] for r in gateway.client.get(path).json()] == [ONLY_IN_THE_COPY]
            body = {"offsets": [{"topic": TOPIC, "partition": 2, "offset": 0}]}
            moved = gateway.client.put(f"/consumers/{COPIERS}/offsets?force=true", json=body)
            assert moved.status_code == 204, moved.text

    def faults(self) -> list[object]:
        """The findings about the clients' operations, and the problems of the tables."""
        found: list[object] = [*self.load.findings()]
        store = open_store(self.several.root)
        operations = self.load.work.operations()
        born = lives.lives(operations, store, PHOENIX)
        own = [op for op in operations if getattr(op.asked, "group", "") in ("", PHOENIX)]
        found += lives.check(own, born, PHOENIX)
        return [*found, *lives.not_emptied(store, PHOENIX), *fsck(store).problems]


def _lakelog(*command: str) -> "subprocess.CompletedProcess[str]":
    whole = [sys.executable, "-m", "lakelog", *command]
    named = {**os.environ, "LAKELOG_LEADER_TIMEOUT_MS": str(LEADER_TIMEOUT_MS)}
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=10 * LONG_S, env=named)


def _check_there(url: str, sent: Sequence[Operation]) -> None:
    """Each acknowledged value is where it was said to be, unless it was deleted since."""
    starts, held = {}, {}
    with httpx.Client(base_url=url, timeout=30) as client:
        for at in {part.at for op in sent for part in _write(op).parts}:
            starts[at], held[at] = read_partition(client, at)
    for op in sent:
        values = [(part.at, value) for part in _write(op).parts for value in part.values]
        offsets = op.answer.offsets if isinstance(op.answer, Placed) else ()
        for (at, value), offset in zip(values, offsets, strict=True):
            if offset is not None and offset >= starts[at]:
                assert held[at].get(offset) == value, f"{at}@{offset}"


def _write(op: Operation) -> Write:
    assert isinstance(op.asked, Write)
    return op.asked


@contextmanager
def scene(directory: Path, seed: int) -> Iterator[Scene]:
    several = Several(directory, 3)
    with loaded(several, directory) as load:
        yield Scene(several, load, directory, seed)


def test_borders_hold_while_nothing_stays_as_it_is(tmp_path: Path, seed: int) -> None:
    with scene(tmp_path, seed) as playing:
        playing.play(rounds=2)
        assert playing.faults() == []


@pytest.mark.torture
def test_borders_hold_for_long_while_nothing_stays_as_it_is(tmp_path: Path, seed: int) -> None:
    with scene(tmp_path, seed) as playing:
        playing.play(rounds=50)
        assert playing.faults() == []
