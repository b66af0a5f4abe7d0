"""The engine for small roots: worker processes of this machine. No JVM, and nothing that has to run before.

A worker holds what a Spark task holds: one input, one output and about a row group; in a compaction by key
the keys of a bucket. The keys that it shuffles are in files, in the machine's directory for temporary ones.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from jobs.engine import Failure, whole
from jobs.local_workers import Workers
from log_tables.limits import MIB
from log_tables.segments.key_shuffle import (
    BucketTask,
    GroupTask,
    KeyGroup,
    write_keys,
    write_offsets,
    write_segment,
)
from log_tables.table.snapshot import Segment

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS_MAX = 8
"""However many cores there are: a worker may take 300 MB, and a larger machine has other work, too."""

LOCAL_JOB_BYTES = 1024 * MIB
"""Some ten seconds of work for two cores: so much is lost when a run is killed."""


class Spread(Protocol):
    """A function of each item, in order."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """An item that cannot be done has a Failure."""


def shuffled(
    spread: Spread, parts: Sequence[Sequence[KeyGroup]], directory: str
) -> list[tuple[Segment, ...] | Failure]:
    """The new segments of each partition of `parts`, or why there are none: by a compaction by key in three
    steps, each spread over workers that share `directory`, which is empty before.
    """
    groups = [tuple(GroupTask(directory, group) for group in part) for part in parts]
    buckets = [_buckets(directory, part[0]) for part in parts]
    read = _of_each(spread, write_keys, groups)
    found = _of_each(spread, write_offsets, _unless_failed(buckets, read))
    made = _of_each(spread, write_segment, _unless_failed(groups, found))
    return [part if isinstance(part, Failure) else tuple(filter(None, part)) for part in made]


def _buckets(directory: str, first: KeyGroup) -> tuple[BucketTask, ...]:
    numbers = range(first.first_bucket, first.first_bucket + first.buckets)
    return tuple(BucketTask(directory, number, first.borders) for number in numbers)


def _unless_failed(
    parts: Sequence[tuple[Item, ...]], before: Sequence[object]
) -> list[tuple[Item, ...] | Failure]:
    return [was if isinstance(was, Failure) else part for part, was in zip(parts, before, strict=True)]


def _of_each(
    spread: Spread, function: Callable[[Item], Result], parts: Sequence[tuple[Item, ...] | Failure]
) -> list[tuple[Result, ...] | Failure]:
    """The results of all items of all parts, part by part; a part that has failed stays so."""
    items = [item for part in parts if not isinstance(part, Failure) for item in part]
    results = iter(spread(function, items))
    return [part if isinstance(part, Failure) else whole([next(results) for _ in part]) for part in parts]


class LocalEngine:
    """`count` processes at most, by default one for each core. For one thread at a time."""

    name = "local"
    job_bytes = LOCAL_JOB_BYTES

    def __init__(self, count: int | None = None) -> None:
        self._count = count or min(WORKERS_MAX, _cores())
        self._workers: Workers | None = None

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        if not items:
            return []
        with self._working() as workers:
            return workers.spread(function, items)

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        if not parts:
            return []
        with self._working() as workers, TemporaryDirectory(dir=workers.directory) as directory:
            return shuffled(workers.spread, parts, directory)

    def end_run(self) -> None:
        if self._workers is not None:
            self._workers.end()
            self._workers = None

    @contextmanager
    def _working(self) -> Iterator[Workers]:
        """The workers, which nobody waits for when this thread is interrupted."""
        self._workers = self._workers or Workers(self._count)
        try:
            yield self._workers
        except BaseException:
            self.end_run()
            raise


def _cores() -> int:
    """The number of cores that this process may use, where the operating system tells it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
