"""An event loop by the clock of a test."""

import asyncio
from collections.abc import Callable
from typing import Any

from log_tables.clock import ManualClock

STEP_MS = 10


class ClockedLoop(asyncio.SelectorEventLoop):
    """Work for a thread is done at once, and over when `takes_s` seconds have passed."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0) -> None:
        super().__init__()
        self._test_clock, self.takes_s = clock, takes_s

    def time(self) -> float:
        return self._test_clock.monotonic()

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, work: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        done = self.create_future()
        try:
            self._tell(done.set_result, work(*args))
        except Exception as error:  # noqa: BLE001 -- it is raised where the work is awaited
            self._tell(done.set_exception, error)
        return done

    def _tell(self, tell: Callable[[Any], None], outcome: Any) -> None:
        if self.takes_s:
            self.call_later(self.takes_s, tell, outcome)
        else:
            tell(outcome)

    async def passes(self, ms: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Let the time pass, in steps of STEP_MS, and everybody do what is due."""
        for _ in range(0, ms, STEP_MS):
            self._test_clock.advance(STEP_MS)
            meanwhile()
            for _ in range(20):
                around = self.create_future()
                self.call_soon(around.set_result, None)
                await around
