"""Whoever works in a world besides its gateways and clients: a process that may die, and begins again."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from log_tables.errors import LakelogError
from tests.simulation.threads import SimulatedEvent

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

AGAIN_S = 1.0
"""After this time a supervisor starts a process again."""


class Actor(ABC):
    """Works in a process of its own until it is told to stop. Who supervises it starts it again.

    `due` is set when it need not wait any longer with its next work; before, it rests `rest_s` if it can.
    """

    name: ClassVar[str]
    rest_s = 0.0

    def __init__(self, world: "World") -> None:
        self.world, self.scheduler = world, world.scheduler
        self.stop, self.due = SimulatedEvent(), SimulatedEvent()
        self.process: Process | None = None
        self._lives = 0

    def begin(self) -> None:
        """Start it."""
        self._lives += 1
        # Ids that a process draws are drawn by its name, so each has its own.
        number = self.world.actors.index(self)
        process = self.process = self.scheduler.process(f"{self.name} {number} life {self._lives}")

        def again() -> None:
            if self.process is process and not self.stop.is_set():
                self.begin()

        def supervise() -> None:
            self.scheduler.at(self.scheduler.now_us + round(AGAIN_S * 1e6), None, again)

        process.died.append(supervise)
        process.start_thread("main", self._main)

    def _main(self) -> None:
        process = self.process
        assert process is not None
        try:
            self.work(process)
        except LakelogError as error:  # a command says so, and ends
            self.scheduler.note(process.name, f"ends: {error.code} {error.message}")
        process.kill()

    @abstractmethod
    def work(self, process: "Process") -> None:
        """Do its work in `process` until `stop` is set."""

    def end(self) -> None:
        """Tell it to stop."""
        self.stop.set()
        self.due.set()

    def processes(self) -> list["Process"]:
        """The processes of it that live."""
        return [] if self.process is None or self.process.dead else [self.process]

    @property
    def ended(self) -> bool:
        """Whether it has stopped."""
        return not self.processes()

    def has_worked(self, since: float) -> bool:  # noqa: ARG002 -- others ask for it
        """Whether it has done its work since a time of the world's clock (`monotonic`)."""
        return True

    def judge(self) -> None:  # noqa: B027 -- not all leave something
        """Judge what it has left, when all have ended. Raises AssertionError."""
