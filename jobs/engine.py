"""Where the tasks of a job run: the seam between its plan and Spark, or processes of this machine.

A job rewrites, copies and compacts with functions of `log_tables` alone: workers import nothing of `jobs`.
Only the process that planned commits.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from log_tables.limits import MIB
from log_tables.segments.key_shuffle import KeyGroup
from log_tables.table.snapshot import Segment

Item = TypeVar("Item")
Result = TypeVar("Result")

JOB_BYTES = 64 * 1024 * MIB
"""Bytes that one job rewrites at most: they are committed in time, and not lost when the next is killed."""


class EngineGone(RuntimeError):
    """The engine cannot be had in this process, or not any longer; the message says what to do."""


class Failure(str):
    """Why an item could not be done."""

    __slots__ = ()


class Engine(Protocol):
    """Runs functions of `log_tables` over many items, in workers.

    An item that raises has a Failure as its result. When a worker dies, in the end only items fail that let
    a worker die alone.
    """

    @property
    def name(self) -> str:
        """As `--engine` names it."""

    @property
    def job_bytes(self) -> int:
        """Bytes of segments to hand over at once: what is done is committed before the next."""

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """`function` of each item, in order. Raises EngineGone."""

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        """The new segments of each partition of `parts`, which are groups (log_tables/segments/key_shuffle).

        A partition of which a group fails has that Failure; the others are done. Raises EngineGone.
        """

    def end_run(self) -> None:
        """Let go of what is of use only within a run of maintenance; a next run begins with the next call."""


EngineChoice = Callable[[int, int], Engine]
"""The engine for a job that rewrites so many bytes, where merges would remove so many files from the worst
partition: the more, the less it stands back behind other processes.
"""


def whole(results: Sequence[Result | Failure]) -> tuple[Result, ...] | Failure:
    """All `results`, or the first Failure among them."""
    failed = next((result for result in results if isinstance(result, Failure)), None)
    return (
        tuple(result for result in results if not isinstance(result, Failure)) if failed is None else failed
    )
