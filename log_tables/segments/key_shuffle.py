"""Compaction by key, spread over tasks: the newest record of each key is found in two steps.

    KeyGroup ─ newest_here ─▶ (bucket, Keys) ─ newest_of_bucket ─▶ (group, offsets) ─ compact_group ─▶ Segment

Each task holds one group of segments, or one bucket of keys, so that a partition may be larger than memory.
Between the steps, the job brings together the values with the same number. Processes that share a directory
leave them in its files, so the keys need not fit into the memory of anyone; a step that is repeated, because
its process has died, writes its files again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa

from log_tables.clock import SystemClock
from log_tables.layout import KEY, OFFSET
from log_tables.record import int64s
from log_tables.segments import rewrite
from log_tables.segments.cleaner import Cleaning, newest_of_keys
from log_tables.store.store import open_store
from log_tables.table.snapshot import Segment

_SCHEMA = pa.schema([pa.field(KEY, pa.binary()), pa.field(OFFSET, pa.int64())])


@dataclass(frozen=True, slots=True)
class Borders:
    """The offsets at which the groups of a partition begin; `first_group` is the number of the first."""

    first_group: int
    begins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The newest record of some keys of one partition: Arrow IPC of (key, offset)."""

    borders: Borders
    rows: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroup:
    """Neighbouring segments of a partition that become one, with all that a task needs for that.

    `number` counts the groups of all partitions that are compacted together. The keys of its partition are
    in `buckets` buckets, from `first_bucket` on.
    """

    number: int
    url: str
    options: dict[str, str] = field(repr=False)
    directory: str
    inputs: tuple[Segment, ...]
    compression: str
    cleaning: Cleaning
    first_bucket: int
    buckets: int
    borders: Borders


def newest_here(group: KeyGroup) -> Iterator[tuple[int, Keys]]:
    """(Bucket, the newest record in `group` of each of the bucket's keys), from the log start on.

    Reads offsets and keys only. Records without a key are left out, as they stay. Raises CorruptSegment.
    """
    store = open_store(group.url, group.options, create=False)
    keys, offsets = rewrite.keys(store, group.directory, group.inputs, group.cleaning.log_start)
    unique, newest = newest_of_keys(keys, offsets)
    rows = pa.record_batch([unique, _int64_array(newest)], _SCHEMA)
    if group.buckets == 1:
        yield group.first_bucket, Keys(group.borders, _packed(rows))
        return
    # A key is in the same bucket in every task, so the hash must not depend on the process.
    hashes = np.fromiter((mmh3.hash(key, signed=False) for key in unique.to_pylist()), np.int64, len(unique))
    bucket_of = hashes % group.buckets
    for bucket in range(group.buckets):
        part = rows.take(_int64_array(np.flatnonzero(bucket_of == bucket)))
        yield group.first_bucket + bucket, Keys(group.borders, _packed(part))


def newest_of_bucket(parts: Iterable[Keys]) -> Iterator[tuple[int, bytes]]:
    """(Group, the offsets in it of the newest records of a bucket's keys, ascending int64).

    `parts` are all results of `newest_here` for one bucket, at least one.
    """
    found = [*parts]
    tables = [_unpacked(part.rows) for part in found]
    keys = pa.chunked_array([table.column(KEY) for table in tables], pa.binary())
    _, newest = newest_of_keys(keys, np.concatenate([int64s(table.column(OFFSET)) for table in tables]))
    borders, offsets = found[0].borders, np.sort(newest)
    cuts = np.searchsorted(offsets, borders.begins[1:])
    for index, part in enumerate(np.split(offsets, cuts)):
        if len(part):
            yield borders.first_group + index, part.tobytes()


def compact_group(group: KeyGroup, newest: Iterable[bytes]) -> Segment | None:
    """Write the records of `group` that stay as one segment; `newest` are all results of `newest_of_bucket`
    for it.

    Returns and raises as `rewrite.compact` does.
    """
    store = open_store(group.url, group.options, create=False)
    offsets = [np.empty(0, np.int64), *(np.frombuffer(part, np.int64) for part in newest)]
    return rewrite.compact(
        store,
        group.directory,
        group.inputs,
        np.sort(np.concatenate(offsets)),
        group.cleaning,
        group.compression,
        SystemClock(),
    )


def _packed(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def _int64_array(values: np.ndarray) -> pa.Array:
    whole = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


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
