"""Work that is repeated on the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context

from ingest.failure_log import FailureLog


class PeriodicTask:
    """Awaits `act` again and again, one call at a time: at once, then `interval_s` after the last call ended.

    A call that fails is followed by the next one as any other: the interval is the pause.
    """

    def __init__(
        self, name: str, interval_s: float, act: Callable[[], Awaitable[None]], failures: FailureLog
    ) -> None:
        """`failures` receives the errors of `act`, as failures of `name`."""
        self._name, self._interval_s, self._act, self._failures = name, interval_s, act, failures
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; nothing if it has begun already."""
        if self._task is None:
            # For no request, even if one has asked for it.
            self._task = asyncio.create_task(self._run(), name=f"duty-{self._name}", context=Context())

    def stop(self) -> None:
        """Make this call of `act` the last one: it goes on, and may be the caller."""
        self._stopping.set()

    async def close(self) -> None:
        """End it: a call of `act` that is under way is cancelled, and has ended on return."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with self._failures.catch(self._name):
                await self._act()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
