"""What became of a rewrite: what a Spark job has written takes the place of other segments, or is dropped."""

from collections.abc import Callable, Sequence
from typing import Protocol

from jobs.outcome import OVERTAKEN, JobOutcome, reason
from jobs.spread import Failure
from log_tables.errors import LakelogError
from log_tables.table.snapshot import Segment


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
    seconds: float,
) -> JobOutcome:
    """The outcome of `step`, of which `made` was written in `seconds`.

    `commit` puts that in the place of the inputs; it returns False when another process was faster.
    """
    if isinstance(made, Failure):
        return JobOutcome(
            job=job, topic=step.topic, partition=step.partition, seconds=seconds, error=str(made)
        )
    try:
        error = None if commit(made) else OVERTAKEN
    except LakelogError as raised:
        error = reason(raised)
    if error is not None:
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
