"""The commit of a rewrite: segments that the tasks of a job wrote replace others, or are dropped."""

from collections.abc import Callable, Sequence
from typing import Protocol

from jobs.engine import Failure
from jobs.outcome import OVERTAKEN, JobOutcome, reason
from log_tables.errors import LakelogError
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table


class Rewrite(Protocol):
    """A step that rewrites `inputs`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def inputs(self) -> tuple[Segment, ...]: ...


def commit_rewrite(
    job: str,
    step: Rewrite,
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
