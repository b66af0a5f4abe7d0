"""`key_shuffle` by processes that share a directory: what one step leaves for the next is in its files.

So the keys of a partition need not fit into the memory of anyone. A step that is repeated, because its
process has died, writes its files again.
"""

from dataclasses import dataclass
from pathlib import Path

from log_tables.segments.key_shuffle import (
    Borders,
    KeyGroup,
    Keys,
    compact_group,
    newest_here,
    newest_of_bucket,
)
from log_tables.table.snapshot import Segment


@dataclass(frozen=True, slots=True)
class GroupTask:
    """A task for one group, with the directory of the files."""

    directory: str
    group: KeyGroup


@dataclass(frozen=True, slots=True)
class BucketTask:
    """A task for one bucket of a partition, whose groups are those of `borders`."""

    directory: str
    bucket: int
    borders: Borders


def write_keys(task: GroupTask) -> None:
    """Write the result of `newest_here`, a file for each bucket. Raises CorruptSegment, OSError."""
    for bucket, keys in newest_here(task.group):
        _keys(task.directory, bucket, task.group.number).write_bytes(keys.rows)


def write_offsets(task: BucketTask) -> None:
    """Write the result of `newest_of_bucket`, a file for each group that has any. Raises OSError."""
    first = task.borders.first_group
    numbers = range(first, first + len(task.borders.begins))
    files = (_keys(task.directory, task.bucket, number) for number in numbers)
    parts = [Keys(task.borders, file.read_bytes()) for file in files]
    for number, offsets in newest_of_bucket(parts):
        _offsets(task.directory, number, task.bucket).write_bytes(offsets)


def write_segment(task: GroupTask) -> Segment | None:
    """`compact_group`, when the offsets of all buckets are written. Raises as it does, and OSError."""
    group = task.group
    buckets = range(group.first_bucket, group.first_bucket + group.buckets)
    files = (_offsets(task.directory, group.number, bucket) for bucket in buckets)
    return compact_group(group, [file.read_bytes() for file in files if file.exists()])


def _keys(directory: str, bucket: int, group: int) -> Path:
    return Path(directory, f"keys-{bucket}-{group}")


def _offsets(directory: str, group: int, bucket: int) -> Path:
    return Path(directory, f"offsets-{group}-{bucket}")
