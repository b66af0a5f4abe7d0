"""The engine for small roots: worker processes of this machine. No JVM, and nothing that has to run before.

A worker holds what a Spark task holds: one input, one output and about a row group; in a compaction by key
the keys of a bucket. The keys that it shuffles are in files, in the machine's directory for temporary ones.

Workers import `log_tables` and no more (jobs/local_worker.py). They are no ProcessPoolExecutor: there, a
worker that dies fails all items of the pool, and workers outlive a parent that was killed
(docs/decisions/0051).
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import LifoQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Protocol, TypeVar

from jobs.engine import Failure, whole
from log_tables.limits import MIB
from log_tables.segments.key_shuffle import (
    BucketTask,
    GroupTask,
    KeyGroup,
    write_keys,
    write_offsets,
    write_segment,
)
from log_tables.table.snapshot import Segment

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerLost(Exception):
    """A worker has ended in the middle of its work."""


class Worker:
    """A process that works at one item at a time."""

    def __init__(self, directory: str, niceness: int = 0) -> None:
        """`niceness` is added to that of this process."""
        # With the paths of this process and without its working directory: that may have a `jobs` of its own.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jobs.local_worker", directory, str(niceness)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def call(self, function: Callable[[Any], Any], item: Any) -> Any:
        """`attempt` of them there. Raises WorkerLost."""
        asked = pickle.dumps((function, item))
        try:
            pickle.dump(asked, self._questions)
            self._questions.flush()
            return pickle.load(self._answers)  # noqa: S301 -- from our own process
        except (EOFError, OSError, pickle.UnpicklingError):
            raise WorkerLost(_ended(self._process.wait())) from None

    def end(self) -> None:
        """End it, whatever it does. A vacuum removes the files that it has written and nobody commits."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._questions, self._answers):
            with suppress(OSError):  # what it was asked last cannot be flushed
                pipe.close()


def _ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the worker process was killed, as it is when memory runs out; give this machine more memory"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"the worker process ended {how}; what it printed to standard error says why"


class Workers:
    """Up to `count` workers, started when there is work for them. For one thread at a time.

    `directory` is a scratch directory of theirs; it is removed also when this process is killed.
    """

    def __init__(self, count: int, niceness: int = 0) -> None:
        self._count, self.niceness = count, niceness
        self._scratch = TemporaryDirectory(prefix="lakelog-", ignore_cleanup_errors=True)
        self.directory = self._scratch.name
        self._places: LifoQueue[Worker | None] = LifoQueue()  # those that run work before others are started
        self._started: list[Worker] = []
        self._lock, self._ended = Lock(), False
        for _ in range(count):
            self._places.put(None)

    def end(self) -> None:
        """End all of them, whatever they do, with the directory."""
        with self._lock:
            self._ended = True
            for worker in self._started:
                worker.end()
        self._scratch.cleanup()

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """`function` of each item, in order. An item whose worker dies is tried once more, alone."""
        threads = ThreadPoolExecutor(self._count)
        try:
            tried = [*threads.map(partial(self._call, function), items)]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return [
            self._alone(function, item) if isinstance(found, WorkerLost) else found
            for item, found in zip(items, tried, strict=True)
        ]

    def _alone(self, function: Callable[[Item], Result], item: Item) -> Result | Failure:
        found = self._call(function, item)
        return Failure(found) if isinstance(found, WorkerLost) else found

    def _call(self, function: Callable[[Item], Result], item: Item) -> Result | Failure | WorkerLost:
        worker = self._places.get()
        try:
            worker = worker or self._start()
            found = worker.call(function, item)
        except WorkerLost as lost:
            worker = None
            return lost
        finally:
            self._places.put(worker)
        return Failure(found) if isinstance(found, str) else found[0]

    def _start(self) -> Worker:
        with self._lock:
            if self._ended:
                raise WorkerLost("the workers were ended")
            worker = Worker(self.directory, self.niceness)
            self._started.append(worker)
            return worker


WORKERS_MAX = 8
"""However many cores there are: a worker may take 300 MB, and a larger machine has other work, too."""

LOCAL_JOB_BYTES = 1024 * MIB
"""Some ten seconds of work for two cores: so much is lost when a run is killed."""


class Spread(Protocol):
    """A function of each item, in order."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """An item that cannot be done has a Failure."""


def shuffled(
    spread: Spread, parts: Sequence[Sequence[KeyGroup]], directory: str
) -> list[tuple[Segment, ...] | Failure]:
    """The new segments of each partition of `parts`, or why there are none: by a compaction by key in three
    steps, each spread over workers that share `directory`, which is empty before.
    """
    groups = [tuple(GroupTask(directory, group) for group in part) for part in parts]
    buckets = [_buckets(directory, part[0]) for part in parts]
    read = _of_each(spread, write_keys, groups)
    found = _of_each(spread, write_offsets, _unless_failed(buckets, read))
    made = _of_each(spread, write_segment, _unless_failed(groups, found))
    return [part if isinstance(part, Failure) else tuple(filter(None, part)) for part in made]


def _buckets(directory: str, first: KeyGroup) -> tuple[BucketTask, ...]:
    numbers = range(first.first_bucket, first.first_bucket + first.buckets)
    return tuple(BucketTask(directory, number, first.borders) for number in numbers)


def _unless_failed(
    parts: Sequence[tuple[Item, ...]], before: Sequence[object]
) -> list[tuple[Item, ...] | Failure]:
    return [was if isinstance(was, Failure) else part for part, was in zip(parts, before, strict=True)]


def _of_each(
    spread: Spread, function: Callable[[Item], Result], parts: Sequence[tuple[Item, ...] | Failure]
) -> list[tuple[Result, ...] | Failure]:
    """The results of all items of all parts, part by part; a part that has failed stays so."""
    items = [item for part in parts if not isinstance(part, Failure) for item in part]
    results = iter(spread(function, items))
    return [part if isinstance(part, Failure) else whole([next(results) for _ in part]) for part in parts]


class LocalEngine:
    """`count` processes at most, by default one for each core. For one thread at a time."""

    name = "local"
    job_bytes = LOCAL_JOB_BYTES

    def __init__(self, count: int | None = None) -> None:
        self._count = count or min(WORKERS_MAX, _cores())
        self.niceness = 0
        """How far the workers stand back behind this process. Nobody may take a process forward again, so
        other workers are started for it.
        """
        self._workers: Workers | None = None

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        if not items:
            return []
        with self._working() as workers:
            return workers.spread(function, items)

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        if not parts:
            return []
        with self._working() as workers, TemporaryDirectory(dir=workers.directory) as directory:
            return shuffled(workers.spread, parts, directory)

    def end_run(self) -> None:
        if self._workers is not None:
            self._workers.end()
            self._workers = None

    @contextmanager
    def _working(self) -> Iterator[Workers]:
        """The workers, which nobody waits for when this thread is interrupted."""
        if self._workers is not None and self._workers.niceness != self.niceness:
            self.end_run()
        self._workers = self._workers or Workers(self._count, self.niceness)
        try:
            yield self._workers
        except BaseException:
            self.end_run()
            raise


def _cores() -> int:
    """The number of cores that this process may use, where the operating system tells it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
