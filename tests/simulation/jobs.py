"""Maintenance in a world: a scheduler of jobs, with workers that are processes."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, TypeVar

from jobs.engine import Failure
from jobs.local_engine import LOCAL_JOB_BYTES, shuffled
from jobs.maintenance import JOBS, RECORD, Job, Maintenance
from jobs.outcome import JobOutcome
from log_tables.cluster.cluster import Cluster
from log_tables.segments.key_shuffle import KeyGroup
from log_tables.table.snapshot import Segment
from log_tables.task import attempt
from tests.kit.engines import always
from tests.simulation.actors import Actor
from tests.simulation.scheduler import Process
from tests.simulation.threads import SimulatedEvent

if TYPE_CHECKING:
    from tests.simulation.world import World

Item = TypeVar("Item")
Result = TypeVar("Result")

LOST = Failure("the worker process was killed")
"""The outcome of an item whose worker dies."""


class SimulatedEngine:
    """Each item in a process of its own, all at once; they die with the process that asks."""

    name = "local"
    job_bytes = LOCAL_JOB_BYTES

    def __init__(self, process: Process, made: Callable[[], None]) -> None:
        """`made` is called when items have made what is to be committed."""
        self._process, self._made, self._begun = process, made, 0
        self.workers: dict[Process, None] = {}
        process.died.append(self.end_run)

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        begun = [self._begin(pickle.dumps((function, item))) for item in items]
        found: list[Result | Failure] = [outcome() for outcome in begun]
        if found:
            self._made()
        return found

    def _begin(self, asked: bytes) -> Callable[[], Result | Failure]:
        self._begun += 1
        worker = self._process.scheduler.process(f"{self._process.name} worker {self._begun}")
        self.workers[worker] = None
        ended, found = SimulatedEvent(), LOST

        def work() -> None:
            nonlocal found
            result = attempt(*pickle.loads(asked))
            found = Failure(result) if isinstance(result, str) else result[0]
            del self.workers[worker]
            worker.kill()

        worker.died.append(ended.set)
        worker.start_thread("task", work)

        def outcome() -> Result | Failure:
            ended.wait()
            return found

        return outcome

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        with TemporaryDirectory(prefix="lakelog-simulated-") as directory:
            return shuffled(self.spread, parts, directory)

    def end_run(self) -> None:
        """Its workers end, whatever they do."""
        while self.workers:
            worker, _ = self.workers.popitem()
            worker.kill()


LINGERS_S = 5.0
"""For so long a job waits for its last task, where its world sleeps amid one."""


class Maintainer(Actor):
    """Runs all jobs again and again. `is_amid` one while that has put files and not committed them."""

    name: ClassVar[str] = "maintenance"

    def __init__(self, world: "World", every_s: float, jobs: Sequence[Job] = JOBS) -> None:
        super().__init__(world)
        self._jobs = jobs
        self._every_s = every_s
        self.is_amid, self._lingers = False, world.plan.naps
        self._engine: SimulatedEngine | None = None
        self._whole: list[float] = []
        """When whole runs began."""
        self.done: list[JobOutcome] = []

    def work(self, process: Process) -> None:
        cluster = Cluster.open(self.world.opened(process), process.clock, create=False)
        engine = self._engine = SimulatedEngine(process, self._linger)
        maintenance = Maintenance(cluster, always(engine), self._jobs)
        while not self.stop.is_set():
            self.due.clear()
            began = self.world.clock.monotonic()
            found = [self._noted(process, each) for each in maintenance.run(self.stop.is_set)]
            if not any(outcome.failed for outcome in found):
                self._whole.append(began)
            self.due.wait(max(self._every_s, self.rest_s))

    def _linger(self) -> None:
        """Be amid a job for a while: once, when the faults are over."""
        if self._lingers and self.world.nemesis.is_over:
            self._lingers, self.is_amid = False, True
            self.scheduler.pause(LINGERS_S)
            self.is_amid = False

    def _noted(self, process: Process, outcome: JobOutcome) -> JobOutcome:
        what = outcome.error or f"{outcome.files_before} files become {outcome.files_after}"
        self.scheduler.note(process.name, f"{outcome.job} {outcome.topic}-{outcome.partition}: {what}")
        self.done.append(outcome)
        return outcome

    def processes(self) -> list[Process]:
        return [*super().processes(), *(self._engine.workers if self._engine is not None else ())]

    def has_worked(self, since: float) -> bool:
        return any(began >= since for began in self._whole)

    def judge(self) -> None:
        said = {outcome.error for outcome in self.done if outcome.error and _is_a_bug(outcome.error)}
        assert not said, f"jobs ended as none may: {said}"


def _is_a_bug(error: str) -> bool:
    """Whether a task ended in what is no error of ours (`attempt`)."""
    return error.startswith("log_tables.")


def names(outcomes: Iterable[JobOutcome]) -> set[str]:
    """The jobs that have changed something."""
    return {outcome.job for outcome in outcomes if outcome.error is None and outcome.job != RECORD}
