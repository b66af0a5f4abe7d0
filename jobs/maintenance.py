"""One run of maintenance: every job in turn, each planned on the result of the one before."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

from jobs import housekeeping, key_compaction, retention, retype, segment_compaction, tiering
from jobs.engine import Engine, EngineChoice
from jobs.outcome import JobOutcome
from jobs.state import PartitionState, UnreadablePartition, fold_changed, glance, look, worst_debt
from log_tables.cluster.admin.run_log import JobRun, record_runs
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.layout import CLUSTER_METADATA, MAINTENANCE

_log = logging.getLogger(__name__)


class Step(Protocol):
    """A planned change of a partition, with a text for people."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first and the last offset of the segments that it changes; None if it changes none."""
        ...

    def __str__(self) -> str: ...


class Job(NamedTuple):
    """`plan` gives the steps, from values alone; `run` does them, and gives an outcome for each.

    One that `removes` records leaves topics alone that a mirror makes: their logs follow the source's.
    `rewritten` is the number of bytes that a step rewrites or copies. `preview` says what a step would do, if
    that takes a look at the store; None when it is nothing. `warnings` are sentences about what keeps it from
    its work, for the log. A job with `only_named` runs when it is named.
    """

    name: str
    plan: Callable[[Sequence[PartitionState], int], Sequence[Step]]
    run: Callable[[Engine, Cluster, Sequence[Any]], Iterable[JobOutcome]]
    rewritten: Callable[[Any], int] = lambda _: 0
    preview: Callable[[Cluster, Any], str | None] = lambda _, step: str(step)
    warnings: Callable[[Sequence[PartitionState], int], Iterable[str]] = lambda _states, _now_ms: ()
    only_named: bool = False
    removes: bool = False

    def steps(self, states: Sequence[PartitionState], now_ms: int) -> Sequence[Step]:
        """The steps for those of `states` that it may change."""
        return self.plan(self.changeable(states), now_ms)

    def changeable(self, states: Sequence[PartitionState]) -> Sequence[PartitionState]:
        """The ones among `states` that it may change."""
        return [state for state in states if not state.mirrored] if self.removes else states


# Deleted records need no rewrite, only segments of the same columns are merged, and merged ones move in fewer
# files.
JOBS = (
    Job(retention.NAME, retention.plan, retention.run, warnings=retention.warnings, removes=True),
    Job(
        key_compaction.NAME,
        key_compaction.plan,
        key_compaction.run,
        lambda step: step.size_bytes,
        removes=True,
    ),
    Job(retype.NAME, retype.plan, retype.run, lambda step: step.size_bytes, only_named=True),
    Job(
        segment_compaction.NAME, segment_compaction.plan, segment_compaction.run, lambda step: step.size_bytes
    ),
    Job(tiering.NAME, tiering.plan, tiering.run, lambda step: step.size_bytes, removes=True),
    Job(housekeeping.NAME, housekeeping.plan, housekeeping.run, preview=housekeeping.preview),
)
"""In the order in which they run."""

LOOK = "look"
"""The name in the outcome of a partition that could not be opened, in the place of a job's."""

RECORD = "record"
"""The name in the outcome when the runs could not be recorded, which ends no run."""


def jobs_named(names: Sequence[str]) -> tuple[Job, ...]:
    """The jobs with these names; without names all that need none. Raises InvalidArgument."""
    known = [job.name for job in JOBS]
    for name in names:
        if name not in known:
            raise InvalidArgument(f"there is no job {name!r}; use one of {', '.join(known)}")
    return tuple(job for job in JOBS if (job.name in names if names else not job.only_named))


EVERY_RUN = jobs_named(())
"""The jobs of a run that names none."""


class Maintenance:
    """The jobs of one root, for one scheduler process. Not thread-safe."""

    def __init__(self, cluster: Cluster, choose: EngineChoice, jobs: Sequence[Job] = EVERY_RUN) -> None:
        self._cluster, self._choose, self._jobs = cluster, choose, jobs
        self._tidied: dict[str, int] = {}
        self._debt = 0

    @property
    def debt(self) -> int:
        """The most files that merges would have removed from one partition when that was last looked at."""
        return self._debt

    def look_at_debt(self) -> int:
        """`debt`, looked at now. Raises what the metadata log raises when it cannot be read."""
        self._debt = worst_debt(glance(self._cluster), self._cluster.clock.now_ms())
        return self._debt

    def previews(self, topic: str | None = None) -> Iterator[tuple[str, Step, str, str]]:
        """(Job, step, sentence on what it would do, name of the engine) for all steps that are due now, as
        far as can be planned; or for those of one `topic`. A job that rewrites nothing has no engine.

        Raises what the metadata log raises when it cannot be read, UnknownTopic.
        """
        if topic not in (None, CLUSTER_METADATA):
            self._cluster.topic(topic)
        states, unreadable = look(self._cluster, change=False, topic=topic)
        for job in self._jobs:
            steps = job.steps(states, self._cluster.clock.now_ms())
            size = sum(map(job.rewritten, steps))
            engine = self._choose(size, 0).name if size else ""
            for step in steps:
                what = self._preview(job, step)
                if what is not None:
                    yield job.name, step, what, engine
        yield from ((LOOK, found, found.reason, "") for found in unreadable)

    def _preview(self, job: Job, step: Step) -> str | None:
        try:
            return job.preview(self._cluster, step)
        except LakelogError as error:
            return f"{step}: {error.message}"

    def run(self, stop: Callable[[], bool] = lambda: False, hurried: bool = False) -> Iterator[JobOutcome]:
        """Run every job once, if `hurried` only that which merges, and record its outcomes; ends between two
        jobs when `stop` returns True. What others append meanwhile is left to the next run.

        A partition that fails does not keep the others: its outcome has an error, and the next run tries
        again.
        """
        used: list[Engine] = []
        try:
            jobs = [job for job in self._jobs if not hurried or job.name == segment_compaction.NAME]
            yield from self._run(jobs, stop, used)
        finally:
            for engine in used:
                engine.end_run()

    def _run(self, jobs: Sequence[Job], stop: Callable[[], bool], used: list[Engine]) -> Iterator[JobOutcome]:
        run, started_ms = self._cluster.clock.unique_id(), self._cluster.clock.now_ms()
        done: list[JobOutcome] = []
        reported: set[UnreadablePartition] = set()
        unrecorded: str | None = None
        for job in jobs:
            if stop():
                break
            now_ms = self._cluster.clock.now_ms()
            states, unreadable = look(self._cluster, self._tidied)
            self._cluster.metadata_log.make_durable()  # its settings say what is to be deleted
            steps = job.steps(states, now_ms)
            self._debt = worst_debt(states, now_ms)
            for warning in job.warnings(job.changeable(states), now_ms):
                _log.warning("%s", warning)
            used.append(self._engine(job, steps))
            done = [*_failed({*unreadable} - reported), *job.run(used[-1], self._cluster, steps)]
            reported |= {*unreadable}
            self._remember(steps, done, now_ms)
            try:
                record_runs(self._cluster, [_row(outcome, run, started_ms) for outcome in done])
            except LakelogError as error:
                unrecorded = error.message
            yield from done
        fold_changed(self._cluster, sorted({outcome.topic for outcome in done if not outcome.error}))
        if unrecorded is not None:
            yield JobOutcome(job=RECORD, topic=MAINTENANCE, partition=0, error=unrecorded)

    def _engine(self, job: Job, steps: Sequence[Step]) -> Engine:
        size = sum(map(job.rewritten, steps))
        engine = self._choose(size, self._debt)
        if size:
            _log.info("%s rewrites %s bytes with --engine %s", job.name, f"{size:,}", engine.name)
        return engine

    def _remember(self, steps: Sequence[Step], done: Sequence[JobOutcome], now_ms: int) -> None:
        """Note the directories that were tidied up: listing them costs too much for every run."""
        failed = {(outcome.topic, outcome.partition) for outcome in done if outcome.error}
        tidied = (step for step in steps if isinstance(step, housekeeping.TidyStep) and step.clean)
        done_at = {step.directory: now_ms for step in tidied if (step.topic, step.partition) not in failed}
        self._tidied |= done_at


def _failed(found: Iterable[UnreadablePartition]) -> Iterator[JobOutcome]:
    for one in sorted(found, key=lambda one: (one.topic, one.partition)):
        yield JobOutcome(job=LOOK, topic=one.topic, partition=one.partition, error=one.reason)


def _row(outcome: JobOutcome, run: str, started_ms: int) -> JobRun:
    return JobRun(run=run, started_ms=started_ms, **asdict(outcome))
