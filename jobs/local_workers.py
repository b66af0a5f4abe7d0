"""The workers of the local engine: processes that import `log_tables` and no more (jobs/local_worker.py).

Not a ProcessPoolExecutor: there a worker that dies fails all items of the pool, and the workers outlive a
parent that was killed (docs/decisions/0051).
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import LifoQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, TypeVar

from jobs.engine import Failure

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerLost(Exception):
    """A worker has ended in the middle of its work."""


class Worker:
    """A process that works at one item at a time."""

    def __init__(self, directory: str) -> None:
        # With the paths of this process and without its working directory: that may have a `jobs` of its own.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jobs.local_worker", directory],
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

    def __init__(self, count: int) -> None:
        self._count = count
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
            worker = Worker(self.directory)
            self._started.append(worker)
            return worker
