"""The outcome of a job for a partition, as it is printed, counted and recorded."""

from dataclasses import dataclass

from log_tables.errors import LakelogError, UnknownTopic

OVERTAKEN = "another process changed the segments first; the next run looks again"
"""The reason for which a rewrite was dropped, which is no failure."""

GONE = "the topic was deleted; nothing is left to do"
"""The reason for which nothing was done, which is no failure."""


def reason(error: LakelogError) -> str:
    """The reason that an outcome gives for `error`."""
    return GONE if isinstance(error, UnknownTopic) else error.message


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The outcome of one job for one partition.

    Files and bytes are those that took part, and those that replaced them. `records` are those that were
    read, or dropped. With an `error` nothing counts as done, and the next run tries again.
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
        """Whether it is a failure: not when another process was only faster, or the topic is gone."""
        return self.error not in (None, OVERTAKEN, GONE)
