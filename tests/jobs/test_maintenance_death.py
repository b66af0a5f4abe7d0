"""`kill -9` of `lakelog maintain`, its JVM and its workers under load: every record is there, once.

The seed chooses the engine of each scheduler. Before each, other columns are declared, to which it retypes
all.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import killpg
from pathlib import Path

import httpx
import pytest

from jobs.maintenance import JOBS
from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import alter_topic
from log_tables.cluster.cluster import Cluster
from log_tables.columns.declaration import parse
from log_tables.layout import MAINTENANCE
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.folds import check_streamed
from tests.kit.gateway import start_gateway
from tests.kit.joined import JoinedReader
from tests.kit.partitions import values
from tests.kit.processes import alive, children, command, descendants, send
from tests.kit.support import ROOT, exit_code, wait_until
from tests.lakelog.spark.source.test_death import WORKER

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
    ),
]

MERGED, TIERED = "merged", "tiered"
PARTITIONS = 2
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
DECLARED = "n bigint, s string", "n bigint"
ALL = [word for job in JOBS for word in ("--job", job.name)]
TINY = {"segment_bytes": "32768", "merge_min_age_ms": "0"}
WAIT_S = 600
WORKERS = {"local": "jobs.local_worker", "spark": WORKER}
"""What the command of a worker has in it, by engine."""

RUN_S = 3.0
"""Within how long after a first run has begun its scheduler is killed."""


class Scene:
    """A gateway, idempotent producers and consumers of two topics, and a scheduler that is killed."""

    def __init__(self, directory: Path) -> None:
        self._data, self._away, self._log = directory / "data", directory / "away", directory / "log"
        store = open_store(self._data)
        set_remote_root(Cluster.open(store), self._away)
        self.gateway = start_gateway(self._data, linger_ms=0)
        self.gateway.create_topic(MERGED, PARTITIONS, **TINY)
        limits = {**TINY, "remote_storage_enable": "true", "local_retention_ms": "500"}
        self.gateway.create_topic(TIERED, PARTITIONS, **limits)
        self.acknowledged = {self._place(writer): 0 for writer in range(2 * PARTITIONS)}
        self.consumed: dict[tuple[str, int], list[object]] = {place: [] for place in self.acknowledged}
        self._declared = DECLARED
        self._stop, self._written = threading.Event(), threading.Event()
        self._writers, self._readers = (
            [threading.Thread(target=target, args=(writer,)) for writer in range(2 * PARTITIONS)]
            for target in (self._write, self._read)
        )
        for thread in (*self._writers, *self._readers):
            thread.start()
        self._joined = JoinedReader(self._data, TIERED)

    @staticmethod
    def _place(writer: int) -> tuple[str, int]:
        return (MERGED, TIERED)[writer % 2], writer // 2

    def _write(self, writer: int) -> None:
        """Number after number, each until it is acknowledged."""
        (topic, partition), number = self._place(writer), 0
        with httpx.Client(base_url=self.gateway.url, timeout=60) as client:
            while not self._stop.wait(0.05):
                stamp = {"Producer-Id": f"{writer}", "Producer-Epoch": "0", "Producer-Seq": f"{number}"}
                body = json.dumps({"records": [{"value": padded(number)}]})
                path = f"/topics/{topic}/partitions/{partition}"
                answer = client.post(path, content=body, headers={**JSON, **stamp})
                if answer.status_code == 200:
                    number += 1
                    self.acknowledged[topic, partition] = number

    def _read(self, writer: int) -> None:
        """Read a partition from its first offset to its end, while that moves on."""
        topic, partition = self._place(writer)
        found = self.consumed[topic, partition]
        with httpx.Client(base_url=self.gateway.url, timeout=60) as client:
            while not self._written.is_set() or len(found) < self.acknowledged[topic, partition]:
                path = f"/topics/{topic}/partitions/{partition}/records"
                answer = client.get(path, params={"offset": len(found), "timeout": 200})
                assert answer.status_code == 200, answer.text
                for record in answer.json():
                    assert record["offset"] == len(found)
                    found.append(record["value"])

    def start(self, draw: ManualClock) -> None:
        """Start a scheduler with the engine that is drawn."""
        self._engine = sorted(WORKERS)[int(draw.random() * len(WORKERS))]
        self._declared = self._declared[::-1]
        cluster = Cluster.open(open_store(self._data), create=False)
        for topic in (MERGED, TIERED):
            alter_topic(cluster, topic, {"value.columns": self._declared[0]})
        words = ["--data", str(self._data), "--every", "1s", "--nice", "0", "--set", "log_level=warning"]
        words += ["--engine", self._engine, *ALL]
        with self._log.open("ab") as log:
            self.scheduler = subprocess.Popen(
                [sys.executable, "-m", "lakelog", "maintain", *words],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._begun = self._said().count(" changed in ")

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def await_workers(self) -> None:
        """Wait until a job of the scheduler has its workers."""
        self._await(lambda: bool(self._workers()), "there are workers")

    def await_run(self) -> None:
        """Wait until the scheduler has completed a run."""
        self._await(lambda: self._said().count(" changed in ") > self._begun, "a run is complete")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or self.scheduler.poll() is not None, what, WAIT_S)
        assert self.scheduler.poll() is None, self._said()[-4_000:]

    def _workers(self) -> list[int]:
        found = [pid for pid in descendants(self.scheduler.pid) if WORKERS[self._engine] in command(pid)]
        return [pid for pid in found if not set(children(pid)) & set(found)]

    def kill_worker(self) -> None:
        """Kill a busy worker while its driver goes on; the scheduler must survive it."""
        send(signal.SIGKILL, self._workers()[:1])

    def kill_scheduler(self) -> None:
        """Kill the driver and its JVM at once; returns when all processes that they started have ended."""
        family = [self.scheduler.pid, *descendants(self.scheduler.pid)]
        with suppress(ProcessLookupError):
            killpg(self.scheduler.pid, signal.SIGKILL)
        exit_code(self.scheduler)
        wait_until(lambda: not any(map(alive, family)), "the scheduler's processes end", WAIT_S)

    def maintain_once(self) -> None:
        """A complete run, in which nothing fails."""
        words = ["--data", str(self._data), "--once", "--nice", "0", "--engine", self._engine, *ALL]
        done = subprocess.run(
            [sys.executable, "-m", "lakelog", "maintain", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4_000:]

    def end_load(self) -> None:
        self._stop.set()
        for thread in self._writers:
            thread.join()
        self._written.set()  # not before: a reader would end before the last answer of its writer
        for thread in self._readers:
            thread.join()

    def partitions(self) -> dict[tuple[str, int], Partition]:
        """Every partition, as a process that has just been started opens it."""
        cluster = Cluster.open(open_store(self._data), create=False)
        return {place: cluster.topic(place[0]).partition(place[1]) for place in self.acknowledged}

    def check(self) -> None:
        """Assert that each acknowledged record is in the log once, at its offset, and that each consumer saw
        it.
        """
        for place, partition in self.partitions().items():
            expected = [padded(number) for number in range(self.acknowledged[place])]
            assert self.consumed[place] == expected
            assert [json.loads(value or b"") for value in values(partition)] == expected
            assert {segment.columns for segment in partition.snapshot.segments} == {
                parse(self._declared[0]).id
            }
        assert check(open_store(self._data), deep=True).problems == []
        self._joined.end()
        for topic in (MERGED, TIERED):
            check_streamed(self._data, topic)

    def close(self) -> None:
        self.end_load()
        self.kill_scheduler()
        self._joined.stop()
        self.gateway.stop()


def padded(number: int) -> dict[str, object]:
    """A value of some hundred bytes that do not compress to nothing; one in ten does not fit its columns."""
    return {"n": number if number % 10 else f"{number}", "s": ManualClock(seed=number).random_hex(300)}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


RUNS_TO_TIER = 4
"""What a merge is about to take waits, and a run merges what the one before has merged, as long as that
pays."""


def survive(scene: Scene, draw: ManualClock, kills: int) -> None:
    """Kill the scheduler so often, in the midst of its first jobs; once before that a worker alone."""
    never = threading.Event()
    for number in range(kills):
        scene.start(draw)
        scene.await_workers()
        if number == kills - 1:
            scene.kill_worker()
            scene.await_run()
        never.wait(draw.random() * RUN_S)
        scene.kill_scheduler()
    scene.end_load()
    for _ in range(RUNS_TO_TIER):
        scene.maintain_once()
    scene.check()
    for (topic, _), partition in scene.partitions().items():
        assert (partition.snapshot.tiered > 0) == (topic == TIERED)
    runs = Cluster.open(open_store(scene.gateway.data), create=False).topic(MAINTENANCE)
    assert runs.partition(0).high_watermark > 0


def test_what_is_acknowledged_survives_kills_of_the_scheduler_once(scene: Scene, seed: int) -> None:
    survive(scene, ManualClock(seed=seed), 2)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(5))
def test_what_is_acknowledged_survives_many_kills_of_the_scheduler_once(
    scene: Scene, seed: int, part: int
) -> None:
    survive(scene, ManualClock(seed=seed + part), 10)
