"""`kill -9` of a Spark driver and of its Python processes: topic to Delta table, each record once."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.processes import alive, children, command, descendants, send
from tests.kit.spark import Topics
from tests.kit.spark_copy import HAS_FAILED, OFFSETS_PER_TRIGGER
from tests.kit.support import ROOT, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
    ),
]

PARTITIONS = 3
BATCHES = 12
BATCHES_MANY = 48
"""For more kills: to be met in the middle of a task the workers may have to be tried for several batches."""
WAIT_S = 180

LOST_TASK = re.compile("Lost task .*Python worker exited unexpectedly")
WORKER = "pyspark.daemon pyspark.worker"
PLANNER = "python_streaming_source_runner"

PLANNED = "_checkpoint/offsets/{}"
WRITTEN = "_delta_log/{:020}.json"
DONE = "_checkpoint/commits/{}"
"""The files of the target that a micro-batch makes, in this order."""


class Copy:
    """The query of tests/kit/spark_copy.py, as a process that is started again from its checkpoint."""

    def __init__(self, directory: Path, batches: int) -> None:
        """A topic that takes `batches` micro-batches, and the query, started."""
        self.all_batches, self.records = batches, batches * OFFSETS_PER_TRIGGER // PARTITIONS
        self._root, self.target = directory / "root", directory / "target"
        self._log = directory / "log"
        topics = Topics(open_store(self._root))
        topics.create("t", PARTITIONS)
        for index in range(PARTITIONS):
            for base in range(0, self.records, 40):
                end = min(base + 40, self.records)
                topics.put("t", index, *[Record(value(index, offset)) for offset in range(base, end)])
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.kit.spark_copy", str(self._root), str(self.target)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def runs(self) -> bool:
        return self._process.poll() is None

    def batches(self) -> int:
        """How many micro-batches are done."""
        return len(list(self.target.glob("_checkpoint/commits/[0-9]*")))

    def reach(self, file: str, batch: int) -> None:
        """Wait until the query has made `file` of `batch`."""
        path = self.target / file.format(batch)
        self._wait(path.exists, f"batch {batch} has {path}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or not self.runs(), what, WAIT_S)
        assert self.runs(), f"the query ended before: {what}\n{self.said()[-4000:]}"

    def kill_driver(self) -> None:
        """The driver and its JVM at once; returns when what they had started has ended too."""
        family = [self._process.pid, *descendants(self._process.pid)]
        assert len(family) > 2
        self._kill_group()
        wait_until(lambda: not any(map(alive, family)), "the driver's processes end")

    def kill_workers(self) -> None:
        """Workers in the middle of a task: frozen between two batches, they are given the next tasks."""
        before = self._lost_tasks()
        while self._lost_tasks() == before:
            self.reach(DONE, batch := self.batches())
            self._freeze_and_kill(self.target / DONE.format(batch))
            self._wait(
                partial(self._shows, before, batch + 2), "Spark has missed the workers or done without"
            )

    def _freeze_and_kill(self, last: Path) -> None:
        """Freeze the workers and kill them as soon as the batch after `last` has a task."""
        workers = self._python(WORKER)
        try:
            send(signal.SIGSTOP, workers)
            since = last.stat().st_mtime_ns
            self._wait(lambda: self._task_since(since), "a task has begun")
        finally:
            send(signal.SIGKILL, workers)

    def _task_since(self, time_ns: int) -> bool:
        """Whether the first task of a batch has opened its file, and so has its worker."""
        return any(part.stat().st_mtime_ns > time_ns for part in self.target.glob("part-00000-*"))

    def _shows(self, lost_tasks: int, batches: int) -> bool:
        return self._lost_tasks() > lost_tasks or self.batches() > batches

    def _lost_tasks(self) -> int:
        return len(LOST_TASK.findall(self.said()))

    def kill_planner(self) -> None:
        """The process that plans: its query fails, and says so. The driver starts it again."""
        (planner,) = self._python(PLANNER)
        before = self.failures()
        os.kill(planner, signal.SIGKILL)
        self._wait(lambda: self.failures() > before, "the query has failed")

    def failures(self) -> int:
        return self.said().count(f"{HAS_FAILED} [STREAM_FAILED]")

    def _python(self, what: str) -> list[int]:
        """The Python processes `what`, without the one that forks the others."""
        found = [pid for pid in descendants(self._process.pid) if what in command(pid)]
        return [pid for pid in found if not set(children(pid)) & set(found)]

    def finish(self) -> int:
        """Wait for the end; returns the exit code."""
        wait_until(lambda: not self.runs(), "the query ends", WAIT_S)
        return self._process.wait()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the driver with its JVM, and what they have started, whether or not they still run."""
        family = [*descendants(self._process.pid)]
        self._kill_group()
        send(signal.SIGKILL, family)


def value(partition: int, offset: int) -> bytes:
    return b"%d-%d" % (partition, offset)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path, BATCHES)
    yield made
    made.close()


@pytest.fixture
def long_copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path, BATCHES_MANY)
    yield made
    made.close()


def check_each_once(copy: Copy) -> None:
    import polars as pl  # not Spark, which is not to check itself

    rows = pl.read_delta(str(copy.target)).select("topic", "partition", "offset", "value").rows()
    assert sorted(rows) == [
        ("t", partition, offset, value(partition, offset))
        for partition in range(PARTITIONS)
        for offset in range(copy.records)
    ]


def break_it(copy: Copy, draw: ManualClock, kills: Sequence[str]) -> None:
    """Kill what `kills` names, one after the other, a driver at a stage of a batch; then let it end."""
    spacing = copy.all_batches // (len(kills) + 1)
    for number, what in enumerate(kills):
        batch = max(copy.batches(), number * spacing) + 1 + int(draw.random() * spacing)
        copy.reach(DONE if what in (WORKER, PLANNER) else what, batch)
        if what == WORKER:
            copy.kill_workers()
        elif what == PLANNER:
            copy.kill_planner()
        else:
            copy.kill_driver()
            copy.start()
    assert copy.finish() == 0, copy.said()[-4000:]
    assert copy.failures() == kills.count(PLANNER)


def test_each_record_arrives_once_though_driver_and_workers_are_killed(copy: Copy, seed: int) -> None:
    break_it(copy, ManualClock(seed=seed), [WORKER, WRITTEN])
    check_each_once(copy)


@pytest.mark.torture
@pytest.mark.parametrize("round", range(4))
def test_each_record_arrives_once_though_much_is_killed(
    long_copy: Copy,
    seed: int,
    round: int,  # noqa: A002
) -> None:
    draw = ManualClock(seed=seed + round)
    stages = [(PLANNED, WRITTEN, DONE)[int(draw.random() * 3)] for _ in range(5)]
    break_it(long_copy, draw, [WORKER, *stages[:3], PLANNER, *stages[3:]])
    check_each_once(long_copy)
