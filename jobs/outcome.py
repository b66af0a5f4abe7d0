"""What a job did to a partition, as it is printed, counted and kept."""

from dataclasses import dataclass

OVERTAKEN = "another process changed the segments meanwhile; the next run looks again"
"""Why a rewrite was dropped: nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
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
        """Whether somebody should look: not when another process was only faster."""
        return self.error not in (None, OVERTAKEN)
