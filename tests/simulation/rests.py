"""Clients that wait before each request, so that little happens while a world waits for others."""

from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.threads import SimulatedEvent

REST_S = 2.0
"""The longest time before a request: less than members may be silent."""


class Rests:
    """The processes that may rest."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._resting: set[Process] = set()
        self._over = SimulatedEvent()

    def allow(self, process: Process) -> None:
        """Let `process` rest before each request."""
        self._over.clear()
        self._resting.add(process)

    def end(self) -> None:
        """Let nobody rest."""
        self._resting.clear()
        self._over.set()

    def rest(self, process: Process) -> None:
        """Wait in a thread of `process`, if it may rest."""
        if process in self._resting:
            self._over.wait(REST_S * self._scheduler.random.random())
