"""`kill -9` of a Spark driver and of its Python processes: topic to Delta table, each record once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.store import open_store
from tests.spark import Topics
from tests.spark_copy import OFFSETS_PER_TRIGGER
from tests.support import ROOT, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
    ),
]

PARTITIONS = 3
RECORDS = 250
WORKER = "pyspark.daemon pyspark.worker"
PLANNER = "python_streaming_source_runner"


class Copy:
    """The query of tests/spark_copy.py, started again whenever it has ended before the end of the topic."""

    def __init__(self, directory: Path) -> None:
        self.root, self.target = directory / "root", directory / "target"
        topics = Topics(open_store(self.root))
        topics.create("t", PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(0, RECORDS, 50):
                topics.append("t", partition, 50)
        self._log = (directory / "log").open("wb")
        self.starts = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.spark_copy", str(self.root), str(self.target)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=self._log, stderr=self._log, start_new_session=True
        )
        self.starts += 1

    def commits(self) -> int:
        return len(list(self.target.glob("_delta_log/*.json")))

    def reach(self, commits: int) -> bool:
        """Wait until so many are there, or the query has ended; returns whether it still runs."""
        wait_until(
            lambda: self.commits() >= commits or self.process.poll() is not None, f"{commits} commits", 120
        )
        return self.process.poll() is None

    def kill(self) -> None:
        """The driver and its JVM at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_one(self, what: str) -> None:
        """One of the Python processes `what`; not the one that they are forked from."""
        forks = [pid for pid in descendants(self.process.pid) if what in command(pid)]
        leaves = [pid for pid in forks if not set(children(pid)) & set(forks)]
        for pid in leaves[-1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def finish(self) -> int:
        """Wait for the end; returns the exit code."""
        wait_until(lambda: self.process.poll() is not None, "the query ends", 180)
        return self.process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


def children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                yield int(entry.name)


def descendants(parent: int) -> Iterator[int]:
    for child in children(parent):
        yield child
        yield from descendants(child)


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path)
    yield made
    made.close()


def check_each_once(copy: Copy) -> None:

    import polars as pl  # not Spark, which is not to check itself

    rows = pl.read_delta(str(copy.target)).select("partition", "offset").rows()
    assert sorted(rows) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)
    ]


def break_it(copy: Copy, draw: ManualClock, kills: list[str]) -> None:
    """Kill, at random moments, what `kills` names; then let the query come to its end."""
    spacing = max(2, PARTITIONS * RECORDS // OFFSETS_PER_TRIGGER // (len(kills) + 1))
    for number, what in zip(count(1), kills, strict=False):
        goal = min(number * spacing, copy.commits() + spacing)
        if copy.reach(goal + int(draw.random() * 2)):
            if what == "driver":
                copy.kill()
            else:
                copy.kill_one(what)
        if copy.process.poll() not in (None, 0):
            copy.start()
    while copy.finish() != 0:
        assert copy.starts <= len(kills) + 2
        copy.start()


def test_each_record_arrives_once_though_driver_and_workers_are_killed(copy: Copy, seed: int) -> None:
    break_it(copy, ManualClock(seed=seed), [WORKER, "driver", WORKER, PLANNER])
    check_each_once(copy)
    assert copy.starts >= 2


@pytest.mark.torture
@pytest.mark.parametrize("round", range(4))
def test_each_record_arrives_once_though_much_is_killed(copy: Copy, seed: int, round: int) -> None:  # noqa: A002
    draw = ManualClock(seed=seed + round)
    kinds = ("driver", WORKER, WORKER, PLANNER)
    break_it(copy, draw, [kinds[int(draw.random() * 4)] for _ in range(5)])
    check_each_once(copy)
