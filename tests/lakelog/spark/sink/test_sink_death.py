"""`kill -9` of gateway, Spark driver and Python workers: topic to topic, each record once.

On a cluster of two workers at two addresses, as speculation asks for: it never runs a copy where the task is.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from lakelog.client.client import Client
from lakelog.spark.java import java_home
from log_tables.clock import ManualClock
from log_tables.record import Record
from log_tables.root import fsck
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.processes import alive, children, command, descendants, send
from tests.kit.spark import Topics
from tests.kit.spark_sink_copy import OFFSETS_PER_TRIGGER, PARTITIONS
from tests.kit.support import ROOT, free_port, listens, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
    ),
]

BEGIN_S = 15
"""Within how long frozen workers are given a task, if they can be."""

WAIT_S = 240
HOSTS = ("127.0.0.1", "127.0.0.2")

PLANNED, STAGED, DONE = "is planned", "is staged", "is done"
"""Stages of a micro-batch, at which something is killed. Between the last two it is published."""

GATEWAY, DRIVER, WORKERS, COMMITTER = "gateway", "driver", "workers", "committer"
"""What is killed; the committer is the driver's Python process that publishes."""

ALTERED = "driver, with another column"
"""The topic gets another column before the driver is killed: what is staged was judged without it."""

FROZEN = "frozen"
"""The workers at one address stand still for some batches: copies of their tasks take their part."""

WORKER = "pyspark.daemon pyspark.worker"
SINK = "python_streaming_sink_runner"
STARTED = re.compile("Starting task")
COPIED = re.compile("as speculatable")
LOST = re.compile("Lost task .*Python worker exited unexpectedly")


class Kill(NamedTuple):
    """The victim of a kill, and the stage of a batch at which it dies."""

    what: str
    stage: str


class SparkCluster:
    """A standalone master with a worker of one core at each of HOSTS."""

    def __init__(self, directory: Path) -> None:
        home, port = Path(pyspark.__file__).parent, free_port()
        self._log = directory / "cluster.log"
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self._class = [home / "bin" / "spark-class"]
        self.url = f"spark://127.0.0.1:{port}"
        self._master = self._start("master.Master", "--host", "127.0.0.1", "--port", port)
        wait_until(lambda: listens(port), "the master listens", WAIT_S)
        self.workers = [
            self._start(
                *("worker.Worker", "--host", host, "--cores", 1, "--memory", "600m"),
                *("--work-dir", directory / host, self.url),
            )
            for host in HOSTS
        ]
        registered = len(HOSTS)
        wait_until(lambda: self._registered() == registered, "the workers are registered", WAIT_S)

    def _start(self, name: str, *words: object) -> "subprocess.Popen[bytes]":
        command = [*self._class, f"org.apache.spark.deploy.{name}", *words, "--webui-port", 0]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in command], env=self._environment, stdout=log, stderr=log
            )

    def _registered(self) -> int:
        return self._log.read_text(errors="replace").count("Successfully registered with master")

    def python(self, worker: int) -> list[int]:
        """The Python processes of the tasks at one of HOSTS, without those that fork them."""
        found = [pid for pid in descendants(self.workers[worker].pid) if WORKER in command(pid)]
        return [pid for pid in found if not set(children(pid)) & set(found)]

    def close(self) -> None:
        family = [pid for process in self.workers for pid in descendants(process.pid)]
        for process in (*self.workers, self._master):
            process.kill()
            process.wait()
        send(signal.SIGKILL, family)


class Copy:
    """The query of tests/kit/spark_sink_copy.py, and its gateway: both start again when they were killed."""

    def __init__(self, directory: Path, batches: int) -> None:
        """A topic `in` that takes `batches` micro-batches, and the query, started."""
        self.all_batches, self.records = batches, batches * OFFSETS_PER_TRIGGER // PARTITIONS
        self._root, self._checkpoint = directory / "root", directory / "checkpoint"
        self._log = directory / "log"
        topics = Topics(open_store(self._root))
        topics.create("in", PARTITIONS)
        self._declared = "v string"
        topics.create("out", PARTITIONS, value_columns=self._declared, value_columns_mode="refuse")
        for index in range(PARTITIONS):
            topics.put("in", index, *[Record(value(index, offset)) for offset in range(self.records)])
        self.cluster = SparkCluster(directory)
        self._port = free_port()
        self.gateway = self._start_gateway()
        self.start()

    def _start_gateway(self) -> RunningGateway:
        return start_gateway(self._root, port=self._port)

    def start(self) -> None:
        self._may_fail = False
        words = (self.cluster.url, self._root, self.gateway.url, self._checkpoint)
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.spark_sink_copy", *map(str, words)],
                cwd=ROOT,
                env={**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def runs(self) -> bool:
        return self._driver.poll() is None

    def batches(self) -> int:
        """How many micro-batches are done."""
        return len(list(self._checkpoint.glob("commits/[0-9]*")))

    def reach(self, batch: int, stage: str) -> None:
        """Wait until `batch` is at `stage`, if it is not beyond that."""
        planned, done = self._checkpoint / f"offsets/{batch}", self._checkpoint / f"commits/{batch}"
        before: set[Path] = set()
        if stage == STAGED:
            self._wait((self._checkpoint / f"commits/{batch - 1}").exists, f"batch {batch - 1} is done")
            before = self._staged()
        reached = {
            PLANNED: planned.exists,
            STAGED: lambda: done.exists() or (planned.exists() and bool(self._staged() - before)),
            DONE: done.exists,
        }
        self._wait(reached[stage], f"batch {batch} {stage}")

    def _staged(self) -> set[Path]:
        return set((self._root / "staging").glob("*.arrow"))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            wait_until(lambda: condition() or not self.runs(), what, WAIT_S)
            if not self.runs():
                self._start_failed(what)

    def _start_failed(self, before: str) -> None:
        """Start the query again, which has failed with its committer."""
        said = self.said()[-4000:]
        assert self._may_fail, f"the query ended before: {before}\n{said}"
        assert "STREAM_FAILED" in said, said
        self.start()

    def kill(self, what: str) -> None:
        """Kill it, and start again what does not start again by itself."""
        {
            GATEWAY: self._kill_gateway,
            DRIVER: self._kill_driver,
            ALTERED: self._alter_and_kill_driver,
            WORKERS: self._kill_workers,
            COMMITTER: self._kill_committer,
            FROZEN: self._freeze,
        }[what]()

    def _kill_gateway(self) -> None:
        self.gateway.kill()
        self.gateway = self._start_gateway()

    def _kill_driver(self) -> None:
        """The driver and its JVM at once; executors that still have a task may go on with it for a while."""
        family = [self._driver.pid, *descendants(self._driver.pid)]
        assert len(family) > 2 or self._may_fail
        self._kill_group()
        wait_until(lambda: not any(map(alive, family)), "the driver's processes end")
        self.start()

    def _alter_and_kill_driver(self) -> None:
        self._declared += f", r{self._declared.count(',')} double FROM '/r'"
        self.gateway.alter_topic("out", value_columns=self._declared)
        self._kill_driver()

    def _kill_workers(self) -> None:
        """Kill the workers in the middle of a task: frozen, they get their next task, and are killed then.

        If each has a task already, no new one begins, and they die in the middle of the present one.
        """
        workers = [pid for index in range(len(HOSTS)) for pid in self.cluster.python(index)]
        started = self._count(STARTED)
        try:
            send(signal.SIGSTOP, workers)
            with suppress(AssertionError):
                wait_until(lambda: self._count(STARTED) > started, "a task has begun", BEGIN_S)
        finally:
            send(signal.SIGKILL, workers)

    def _freeze(self) -> None:
        workers, copies, batches = self.cluster.python(1), self._count(COPIED), self.batches()
        try:
            send(signal.SIGSTOP, workers)
            self._wait(lambda: self._count(COPIED) > copies, "a task is run a second time")
            self._wait(lambda: self.batches() > batches + 1, "the copies take its part")
        finally:
            send(signal.SIGCONT, workers)

    def _kill_committer(self) -> None:
        """Kill the process that commits. The query fails if it was just publishing."""
        self._may_fail = True
        send(signal.SIGKILL, [pid for pid in descendants(self._driver.pid) if SINK in command(pid)])

    def _count(self, said: re.Pattern[str]) -> int:
        return len(said.findall(self.said()))

    def finish(self) -> None:
        """Wait for the end of the query, and start it again where a commit of it was killed."""
        wait_until(lambda: not self.runs(), "the query ends", WAIT_S)
        while self._driver.wait() != 0:
            self._start_failed("its end")
            wait_until(lambda: not self.runs(), "the query ends", WAIT_S)

    def check_each_once(self) -> None:
        """Every record of `in` is in `out`, once, wherever; and the root is sound."""
        with Client(self.gateway.url) as client:
            rows = [record for index in range(PARTITIONS) for record in client.read("out", index)]
        found = sorted((row.key or b"", json.loads(row.value or b"")["v"].encode()) for row in rows)
        offsets = [(index, offset) for index in range(PARTITIONS) for offset in range(self.records)]
        assert found == sorted((b"%d-%d" % at, value(*at)) for at in offsets)
        assert fsck.check(open_store(self._root), deep=True).problems == []

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()

    def close(self) -> None:
        """End all that was started, whether or not it still runs."""
        family = [*descendants(self._driver.pid)]
        self._kill_group()
        send(signal.SIGKILL, family)
        self.cluster.close()
        self.gateway.kill()


def value(partition: int, offset: int) -> bytes:
    return b"v%d-%d" % (partition, offset)


def break_it(copy: Copy, kills: Sequence[Kill]) -> None:
    """Do `kills` one after the other, spread over the batches; then let the query end."""
    spacing = copy.all_batches // (len(kills) + 1)
    for number, (what, stage) in enumerate(kills):
        copy.reach(max(copy.batches(), number * spacing) + 1, stage)
        copy.kill(what)
    copy.finish()


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path, 15)
    yield made
    made.close()


@pytest.fixture
def long_copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path, 200)
    yield made
    made.close()


def test_each_record_is_written_once_though_gateway_driver_and_workers_are_killed(copy: Copy) -> None:
    kills = [Kill(WORKERS, DONE), Kill(GATEWAY, STAGED)]
    break_it(copy, kills)
    copy.check_each_once()


@pytest.mark.torture
def test_each_record_is_written_once_though_much_is_killed(long_copy: Copy, seed: int) -> None:
    """Each kind of victim dies at each stage, in random order."""
    draw = ManualClock(seed=seed)
    kinds = [GATEWAY, WORKERS, DRIVER, ALTERED] * 6 + [COMMITTER, FROZEN]
    kills = sorted((draw.random(), Kill(what, stage)) for what in kinds for stage in (PLANNED, STAGED, DONE))
    break_it(long_copy, [kill for _, kill in kills])
    long_copy.check_each_once()
    assert LOST.search(long_copy.said()), "no worker was killed in the middle of a task"
