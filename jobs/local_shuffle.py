"""Compaction by key in three steps, each spread over workers that share a directory."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from jobs.engine import Failure, whole
from log_tables.segments.key_shuffle import KeyGroup
from log_tables.segments.shuffle_file import (
    BucketTask,
    GroupTask,
    write_keys,
    write_offsets,
    write_segment,
)
from log_tables.table.snapshot import Segment

Item = TypeVar("Item")
Result = TypeVar("Result")


class Spread(Protocol):
    """A function of each item, in order."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """An item that cannot be done has a Failure."""


def shuffled(
    spread: Spread, parts: Sequence[Sequence[KeyGroup]], directory: str
) -> list[tuple[Segment, ...] | Failure]:
    """The new segments of each partition of `parts`, or why there are none; `directory` is empty before."""
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
