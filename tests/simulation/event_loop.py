"""The event loop of a simulated process."""

# mypy: disable-error-code="override,attr-defined,assignment"

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process

_log = logging.getLogger(__name__)

DEFAULT_THREADS = 32


class SimulatedLoop(asyncio.BaseEventLoop):
    """Callbacks run in the order in which they became ready, as asyncio promises to one process. When that is
    between those of other processes and threads, and what becomes ready first, is drawn.
    """

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self.process, self._scheduler = process, process.scheduler
        self._pool: Executor | None = None
        self._thread_id = threading.get_ident()

    # For the scheduler.

    def serve(self) -> None:
        """Run callbacks for ever, each as a step."""
        thread, scheduler = self.process.loop_thread, self._scheduler
        while True:
            while self._ready:
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if self._ready:
                        scheduler.make_runnable(thread)
                        scheduler.hub.switch()
            thread.waits = True
            scheduler.hub.switch()

    def end(self) -> None:
        self._closed = True
        for task in asyncio.all_tasks(self):  # one that has not begun is known to its handle alone
            with suppress(BaseException):
                task.get_coro().close()
        self._ready.clear()

    # For asyncio.

    def time(self) -> float:
        return self.process.clock.monotonic()

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.process.dead:
            self._ready.append(handle)
            self._scheduler.wake(self.process.loop_thread)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        wait_us = max(0, math.ceil((when - self.time()) * 1e6))

        def due() -> None:
            if not handle._cancelled:
                self._ready.append(handle)
                self._scheduler.wake(self.process.loop_thread)

        self._scheduler.at(self._scheduler.now_us + wait_us, self.process, due)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # Time stands still while callbacks run: one that comes again after less than its tick would for ever.
        tick_s = 1e-6 if delay > 0 else 0.0
        return self.call_at(self.time() + max(delay, tick_s), callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, work: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        from tests.simulation.threads import SimulatedPool

        if executor is None:
            if self._pool is None:
                self._pool = SimulatedPool(DEFAULT_THREADS, "default")
            executor = self._pool
        assert isinstance(executor, SimulatedPool), f"{executor} has threads of the machine"
        return asyncio.wrap_future(executor.submit(work, *args), loop=self)

    def set_default_executor(self, executor: Executor) -> None:
        self._pool = executor

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed or self.process.dead or self._scheduler.over:
            return
        error = context.get("exception") or AssertionError(context.get("message"))
        self._scheduler.failed(f"{self.process.name}: {context.get('message')}", error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when it is due."""

    def _check_closed(self) -> None:
        """A loop that has ended takes what is left, and does nothing of it."""

    def __del__(self) -> None:
        """Nothing is open."""
