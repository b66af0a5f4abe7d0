"""Which parts of which files may hold rows that a filter wants: by their stats alone, no file is opened.

Arrow decides it. It knows of each file that its offsets and timestamps lie between those of its stats, and
leaves out the files for which the filter cannot be true then.
"""

import functools
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from log_tables.layout import OFFSET, TIMESTAMP
from log_tables.limits import MIB, SMALL_SEGMENT_BYTES
from log_tables.record import RECORD_SCHEMA, timestamp_us
from log_tables.sql.topic_files import PartitionFiles, TopicFiles
from log_tables.table.snapshot import Segment

PARTITION = "partition"
TOPIC = "topic"

SCAN_SCHEMA = pa.schema(
    [
        pa.field(TOPIC, pa.string(), nullable=False),
        pa.field(PARTITION, pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The columns of a topic that are read from files, or known of them."""

_PARTS = 64
_PARTED_MAX = 32
_WORTH_A_THREAD_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The records of a segment with start ≤ offset < end."""

    files: PartitionFiles
    segment: Segment
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """About the uncompressed bytes of its records."""
        span = self.segment.last_offset + 1 - self.segment.base_offset
        return max(self.segment.raw_bytes, self.segment.size) * (self.end - self.start) // max(1, span)


def file_slices(files: TopicFiles, where: pc.Expression | None) -> list[FileSlice]:
    """The slices of the topic's files in which rows for which `where` is true may be, in order.

    `where` is over SCAN_SCHEMA; without it all are. Raises the damage of a partition that may have such rows.
    """
    damaged = [_of_partition(files.name, number) for number in files.damaged]
    for index in _possible(damaged, where):
        raise [*files.damaged.values()][index]
    whole = [_slice(part, segment) for part in files.partitions for segment in part.segments]
    if where is None:
        return whole
    found = _kept(files.name, whole, where)
    return _narrowed(files.name, found, where) if len(found) <= _PARTED_MAX else found


def _slice(files: PartitionFiles, segment: Segment) -> FileSlice:
    start, end = max(files.log_start, segment.base_offset), min(files.end, segment.last_offset + 1)
    return FileSlice(files, segment, start, end)


def _narrowed(topic: str, slices: Iterable[FileSlice], where: pc.Expression) -> list[FileSlice]:
    """The slices with less at both ends, where the offsets say so: a large file is read by row groups."""
    narrowed = []
    for item in slices:
        parts = _parts(item) if item.segment.raw_bytes > SMALL_SEGMENT_BYTES else [item]
        possible = _kept(topic, parts, where) if len(parts) > 1 else parts
        if possible:
            narrowed.append(replace(item, start=possible[0].start, end=possible[-1].end))
    return narrowed


def _parts(item: FileSlice) -> list[FileSlice]:
    width = -(-(item.end - item.start) // _PARTS)
    starts = range(item.start, item.end, max(1, width))
    return [replace(item, start=start, end=min(start + width, item.end)) for start in starts]


def _kept(topic: str, slices: Sequence[FileSlice], where: pc.Expression) -> list[FileSlice]:
    return [slices[index] for index in _possible([_known(topic, item) for item in slices], where)]


def _possible(known: Iterable[pc.Expression], where: pc.Expression | None) -> list[int]:
    """The indexes of those in `known`, each true of all rows of a place, whose rows `where` may want."""
    # As files they are never opened: their paths are the indexes by which they are found again.
    form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
    places = [form.make_fragment(str(index), nowhere, one) for index, one in enumerate(known)]
    dataset = ds.FileSystemDataset(places, SCAN_SCHEMA, form, nowhere)
    return [int(fragment.path) for fragment in dataset.get_fragments(where)]


def _known(topic: str, item: FileSlice) -> pc.Expression:
    """The stats of a slice, as a filter that is true of all its records."""
    low, high = timestamp_us(item.segment.min_timestamp), timestamp_us(item.segment.max_timestamp)
    known = (
        _of_partition(topic, item.files.partition),
        pc.field(OFFSET) >= item.start,
        pc.field(OFFSET) < item.end,
        pc.field(TIMESTAMP) >= _scalar(TIMESTAMP, low),
        pc.field(TIMESTAMP) <= _scalar(TIMESTAMP, high),
    )
    return functools.reduce(operator.and_, known)


def _of_partition(topic: str, partition: int) -> pc.Expression:
    return (pc.field(TOPIC) == topic) & (pc.field(PARTITION) == _scalar(PARTITION, partition))


def _scalar(column: str, value: int) -> pa.Scalar:
    return pa.scalar(value, SCAN_SCHEMA.field(column).type)


def spread(slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
    """The slices, in order, in parts of about the same size: one for each core if they are worth it.

    There is always one, which may be empty.
    """
    total = sum(item.size_bytes for item in slices)
    count = max(1, min(os.cpu_count() or 1, total // _WORTH_A_THREAD_BYTES))
    parts: list[list[FileSlice]] = [[] for _ in range(count)]
    before = 0
    for item in slices:
        parts[min(count - 1, before * count // max(1, total))].append(item)
        before += item.size_bytes
    return parts
