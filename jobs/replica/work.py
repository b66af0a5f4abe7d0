"""Tasks that threads do, and their results, which one thread takes in the order in which they end."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.replica.tables import TableCopy
from log_tables.errors import LakelogError

_Made = TypeVar("_Made")

_THREADS = 16


@dataclass(slots=True)
class _Done:
    """A task that has ended: what it made, or its error."""

    copy: TableCopy
    act: Callable[[TableCopy, Any], object]
    made: Any = None
    error: BaseException | None = None


class Work:
    """Tasks for tables. An error of one is told to `failed` with the table whose task it was."""

    def __init__(self, failed: Callable[[TableCopy, BaseException], None]) -> None:
        self._failed = failed
        self._done = queue.SimpleQueue[list[_Done]]()
        self._running = 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="replicate")

    def has_room(self) -> bool:
        """Whether more tasks would not only wait for others."""
        return self._running < 4 * _THREADS

    def submit(
        self,
        copy: TableCopy,
        task: Callable[[], _Made],
        act: Callable[[TableCopy, _Made], object] = lambda _copy, _made: None,
    ) -> None:
        """Let a thread do `task` for a table; `act` takes what it made, in the thread of `take_some`."""
        self.submit_all([(copy, task)], act)

    def submit_all(
        self,
        tasks: Sequence[tuple[TableCopy, Callable[[], _Made]]],
        act: Callable[[TableCopy, _Made], object],
    ) -> None:
        """Let a thread do the tasks of several tables in turn: a change of threads costs more than many of
        these. `act` takes what each made, when all have ended.
        """
        self._running += 1
        self._pool.submit(lambda: self._done.put([_done(copy, task, act) for copy, task in tasks]))

    def take_some(self, wait_s: float) -> None:
        """Take the results that are there; without any, the first one that comes within `wait_s`."""
        try:
            if wait_s > 0 or self._running:
                self._take(self._done.get(timeout=max(wait_s, 0.001)))
            while True:
                self._take(self._done.get_nowait())
        except queue.Empty:
            pass

    def close(self) -> None:
        """Take the results of all that was begun, and end the threads."""
        while self._running:
            self._take(self._done.get())
        self._pool.shutdown()

    def _take(self, ended: list[_Done]) -> None:
        self._running -= 1
        for done in ended:
            self._tell(done)

    def _tell(self, done: _Done) -> None:
        error = done.error
        if error is None:
            try:
                done.act(done.copy, done.made)
            except LakelogError as failure:
                error = failure
        if error is not None:
            self._failed(done.copy, error)


def _done(copy: TableCopy, task: Callable[[], Any], act: Callable[[TableCopy, Any], object]) -> _Done:
    done = _Done(copy, act)
    try:
        done.made = task()
    except BaseException as error:  # noqa: BLE001 -- the thread that decides looks at it
        done.error = error
    return done
