"""What a job did to a partition, as it is printed, counted and kept."""

from dataclasses import dataclass

from log_tables.errors import LakelogError, UnknownTopic

OVERTAKEN = "another process changed the segments meanwhile; the next run looks again"
"""Why a rewrite was dropped: nothing is wrong."""

GONE = "the topic was deleted meanwhile; nothing is left to do"
"""Why nothing was done: nothing is wrong."""


def reason(error: LakelogError) -> str:
    """What `error` is to a job that meets it in a partition."""
    return GONE if isinstance(error, UnknownTopic) else error.message


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What one job did to one partition.

    Files and bytes are those that took part: what was there before and what stands in their place after.
    `records` are those that were read, or dropped. With an `error` nothing is said to have been done, and the
    next run tries again.
    """

    job: str
    topic: str
    partition: int
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    seconds: float = 0.0
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether somebody should look: not when another process was only faster, or the topic is gone."""
        return self.error not in (None, OVERTAKEN, GONE)
