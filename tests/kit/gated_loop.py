"""An event loop by the clock of a test, whose work for threads is done when the test says so."""

import asyncio
from collections.abc import Callable
from typing import Any

from log_tables.clock import ManualClock


class GatedLoop(asyncio.SelectorEventLoop):
    """`gates` is the work for threads that waits to be done, in the order in which it came."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._test_clock = clock
        self.gates: list[Callable[[], None]] = []

    def time(self) -> float:
        return self._test_clock.monotonic()

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, work: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        done = self.create_future()

        def act() -> None:
            try:
                outcome = work(*args)
            except Exception as error:  # noqa: BLE001 -- it is raised where the work is awaited
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(outcome)

        self.gates.append(act)
        return done

    def open(self, which: int = 0) -> None:
        """Do a piece of the work that waits; whoever waits for it goes on."""
        self.gates.pop(which % len(self.gates))()
        self.turn()

    def turn(self) -> None:
        """Have everybody do what is due now."""
        for _ in range(12):
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                break

    def die(self, done: int) -> None:
        """Do the first `done` pieces of work, of which nobody hears, and end all that is under way."""
        for act in self.gates[:done]:
            act()
        self.gates = []
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.turn()
            self.gates = []
        self.close()
