"""Threads, locks and pools of a simulated world, in the place of Python's while a world is `installed`.

A wait for a lock is a point, and so is what a thread does with others. Real threads that our code would begin
are refused: they would not be drawn.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Self
from unittest.mock import patch

from tests.simulation.scheduler import Ended, Process, Scheduler, Thread
from tests.simulation.substitutes import substituted

_installed: list[Scheduler] = []


def world() -> Scheduler:
    """The one that is installed."""
    assert _installed, "no world is installed"
    return _installed[-1]


class SimulatedLock:
    """A lock whose waiters are woken in the order in which they came."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = world()
        until = None if timeout < 0 else scheduler.now_us + round(timeout * 1e6)
        while self._held:
            thread = scheduler.current
            if not blocking:
                return False
            if thread is None:
                if scheduler.over:
                    raise Ended
                raise AssertionError("the world itself waits for a lock")
            self._waiting.append(thread)
            if not scheduler.wait(until):
                self._waiting.remove(thread)
                return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            world().wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedRLock(SimulatedLock):
    """A lock that its owner may take again."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: Thread | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = world().current
        if self._depth and self._owner is me:
            self._depth += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class SimulatedEvent:
    """An event of threads."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            world().wake(thread)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = world()
        until = None if timeout is None else scheduler.now_us + round(timeout * 1e6)
        while not self._set:
            thread = scheduler.current
            assert thread is not None or scheduler.over, "the world itself waits"
            if thread is None:
                raise Ended
            self._waiting.append(thread)
            if not scheduler.wait(until):
                if thread in self._waiting:
                    self._waiting.remove(thread)
                return self._set
        return True


class SimulatedSemaphore:
    """A counter that is never below 0."""

    def __init__(self, value: int = 1) -> None:
        self._free = value
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        scheduler = world()
        until = None if timeout is None else scheduler.now_us + round(timeout * 1e6)
        while not self._free:
            thread = scheduler.current
            if not blocking or thread is None:
                return False
            self._waiting.append(thread)
            if not scheduler.wait(until):
                self._waiting.remove(thread)
                return False
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        if self._waiting:
            world().wake(self._waiting.popleft())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedThread:
    """A thread in the place of Python's: it begins with `start`, in the process of whoever calls that."""

    def __init__(
        self,
        target: Callable[..., object],
        name: str = "thread",
        args: Iterable[Any] = (),
        daemon: bool | None = None,  # noqa: ARG002 -- as Python's
    ) -> None:
        self.name, self._target, self._args = name, target, tuple(args)
        self._ended = SimulatedEvent()

    def start(self) -> None:
        current = world().current
        assert current is not None, f"the thread {self.name} begins in no process"
        current.process.start_thread(self.name, self._run)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class SimulatedFuture(Future[Any]):
    """The outcome of a call in a pool."""

    def result(self, timeout: float | None = None) -> Any:
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if not self.done():
            done = SimulatedEvent()
            self.add_done_callback(lambda _: done.set())
            done.wait(timeout)


class _Workers:
    """The threads of one pool in one process."""

    def __init__(self, process: Process, most: int, name: str) -> None:
        self.process, self._most, self._name = process, most, name
        self._queue: deque[tuple[SimulatedFuture, Callable[[], Any]]] = deque()
        self._running, self._idle = 0, SimulatedEvent()

    def submit(self, work: Callable[[], Any]) -> SimulatedFuture:
        future = SimulatedFuture()
        self._queue.append((future, work))
        if self._running < self._most:
            self._running += 1
            self.process.start_thread(self._name, self._work)
        return future

    def _work(self) -> None:
        while self._queue:
            future, work = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                complete(future, work)
        self._running -= 1
        if not self._running:
            self._idle.set()

    def shutdown(self, wait: bool, cancel: bool) -> None:
        if cancel:
            for future, _ in self._queue:
                future.cancel()
        while wait and self._running:
            self._idle.clear()
            self._idle.wait()


def complete(future: Future[Any], work: Callable[[], Any]) -> None:
    """Let `future` have the outcome of `work`."""
    try:
        result = work()
    except Ended:
        raise
    except BaseException as error:  # noqa: BLE001 -- raised where the outcome is asked for
        future.set_exception(error)
    else:
        future.set_result(result)


class SimulatedPool(Executor):
    """Up to `max_workers` threads at once in each process that has the pool: a module's is in all of them."""

    def __init__(self, max_workers: int = 32, thread_name_prefix: str = "pool") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._workers: dict[Process, _Workers] = {}

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        current = world().current
        if current is None:  # the world itself
            future: Future[Any] = Future()
            complete(future, lambda: work(*args, **named))
            return future
        workers = self._workers.get(current.process)
        if workers is None:
            workers = self._workers[current.process] = _Workers(current.process, self._most, self._name)
        return workers.submit(lambda: work(*args, **named))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        current = world().current
        workers = None if current is None else self._workers.get(current.process)
        if workers is not None:
            workers.shutdown(wait, cancel_futures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class _Threading(ModuleType):
    """Python's `threading` for our modules."""

    def __init__(self) -> None:
        super().__init__("threading")
        self.Lock, self.RLock, self.Event = SimulatedLock, SimulatedRLock, SimulatedEvent
        self.Semaphore, self.Thread = SimulatedSemaphore, SimulatedThread
        self.Timer = None

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


_REPLACED: dict[Any, Any] = {
    threading.Lock: SimulatedLock,
    threading.RLock: SimulatedRLock,
    threading.Event: SimulatedEvent,
    threading.Semaphore: SimulatedSemaphore,
    threading.Thread: SimulatedThread,
    ThreadPoolExecutor: SimulatedPool,
}


@contextmanager
def installed(scheduler: Scheduler) -> Iterator[None]:
    """Let our modules have the threads of `scheduler`."""
    assert not _installed, "one world at a time"
    shim = _Threading()

    def instead(name: str, value: object) -> object:
        if value is threading:
            return shim
        if isinstance(value, ThreadPoolExecutor):
            return SimulatedPool(value._max_workers, name)
        is_made = isinstance(value, type) or value is threading.Lock or value is threading.RLock
        return _REPLACED.get(value) if is_made else None

    def refuse(thread: threading.Thread) -> None:
        raise AssertionError(f"a real thread begins, which no seed draws: {thread}")

    with substituted(instead), patch.object(threading.Thread, "start", refuse):
        _installed.append(scheduler)
        try:
            yield
        finally:
            _installed.clear()
