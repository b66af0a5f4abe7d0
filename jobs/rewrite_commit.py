"""Rewrites: segments that the tasks of a job write replace others, or are dropped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jobs.engine import Engine, Failure
from jobs.outcome import OVERTAKEN, JobOutcome, reason
from jobs.state import table_of
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from log_tables.task import batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteStep:
    """A step that rewrites `inputs`, segments of a partition in order: in the remote table if `remote`."""

    topic: str
    partition: int
    directory: str
    remote: bool = False
    inputs: tuple[Segment, ...]
    compression: str

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.inputs)

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset of its segments."""
        return self.inputs[0].base_offset, self.inputs[-1].last_offset

    @property
    def place(self) -> str:
        """Its segments as a dry run names them."""
        where = " in the remote root" if self.remote else ""
        count = counted(len(self.inputs), "segment")
        return f"{count} ({self.size_bytes:,} bytes) from offset {self.inputs[0].base_offset}{where}"


Step = TypeVar("Step", bound=RewriteStep)


def rewrite(
    job: str,
    engine: Engine,
    cluster: Cluster,
    steps: Sequence[Step],
    make: Callable[[Sequence[Step]], Iterable[Sequence[Segment] | Failure]],
    commit: Callable[[Table, Step, Sequence[Segment], float], bool],
) -> Iterator[JobOutcome]:
    """Do `steps`: `make` the new segments of as many as `engine` takes at once, then commit each step.

    `commit` is given the table, the step, its new segments, and the `boottime` before any of them was put.
    """

    def committed(step: Step, made: Sequence[Segment] | Failure, begun: float, seconds: float) -> JobOutcome:
        def table() -> Table:
            return table_of(cluster, step.topic, step.partition, step.directory, step.remote)

        def put(segments: Sequence[Segment]) -> bool:
            return commit(table(), step, segments, begun)

        return commit_rewrite(job, step, made, put, lambda: still_there(table(), step.inputs), seconds)

    for batch in batches(steps, lambda step: step.size_bytes, engine.job_bytes):
        begun, started = cluster.clock.boottime(), timer()
        for step, made in zip(batch, make(batch), strict=True):
            yield committed(step, made, begun, timer() - started)


def commit_rewrite(
    job: str,
    step: RewriteStep,
    made: Sequence[Segment] | Failure,
    commit: Callable[[Sequence[Segment]], bool],
    stands: Callable[[], bool],
    seconds: float,
) -> JobOutcome:
    """Commit `made`, the new segments of `step`, which took `seconds`; returns the outcome.

    `commit` replaces the inputs by them; it returns False when another process was faster. So it was, too,
    when the segments could not be made because the step no longer `stands`: a vacuum deletes files that
    were replaced.
    """
    error: str | None
    try:
        if isinstance(made, Failure):
            error = str(made) if stands() else OVERTAKEN
        else:
            error = None if commit(made) else OVERTAKEN
    except LakelogError as raised:
        error = reason(raised)
    if isinstance(made, Failure) or error is not None:
        return JobOutcome(job=job, topic=step.topic, partition=step.partition, seconds=seconds, error=error)
    return JobOutcome(
        job=job,
        topic=step.topic,
        partition=step.partition,
        files_before=len(step.inputs),
        files_after=len(made),
        bytes_before=sum(segment.size for segment in step.inputs),
        bytes_after=sum(segment.size for segment in made),
        records=sum(segment.records for segment in step.inputs),
        seconds=seconds,
    )


def still_there(table: Table, segments: Sequence[Segment]) -> bool:
    """Whether `segments` are all in the newest version of `table`. Raises as `Table.refresh`."""
    table.refresh(wait=True)
    return {segment.path for segment in segments} <= {item.path for item in table.snapshot.segments}
