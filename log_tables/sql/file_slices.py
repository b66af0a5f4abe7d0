"""Which parts of which files may hold rows that a filter wants: by their stats alone, no file is opened.

Arrow decides it. It knows of each file that its offsets, timestamps and declared columns lie between those
of its stats, and leaves out the files for which the filter cannot be true then.
"""

import functools
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from types import MappingProxyType

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from log_tables.columns.column_stats import Bound
from log_tables.columns.column_type import DECIMAL, looked_up
from log_tables.columns.decimal_text import decimal_of
from log_tables.layout import OFFSET, PARTITION, TIMESTAMP
from log_tables.limits import MIB, SMALL_SEGMENT_BYTES
from log_tables.record import timestamp_us
from log_tables.sql.topic_files import SCAN_SCHEMA, TOPIC, PartitionFiles, TopicFiles
from log_tables.table.snapshot import Segment

_WORD = re.compile(r"\w+")
_PARTS = 64
_PARTED_MAX = 32
_WORTH_A_THREAD_BYTES = 4 * MIB
_KINDS: Mapping[pa.DataType, tuple[type, ...]] = MappingProxyType(
    {
        pa.string(): (str,),
        pa.int64(): (int,),
        pa.float64(): (int, float),
        pa.bool_(): (bool,),
        pa.date32(): (str,),
        pa.timestamp("us", tz="UTC"): (str,),
        DECIMAL: (int, float, msgspec.Raw),
    }
)
"""The kinds of JSON of which the stats of a column are."""


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

    `where` is over the schema of `files`; without it all are. Raises the damage of a partition that may have
    such rows.
    """
    damaged = [_of_partition(files.name, number) for number in files.damaged]
    for index in _possible(damaged, where, files.schema):
        raise [*files.damaged.values()][index]
    whole = [_slice(part, segment) for part in files.partitions for segment in part.segments]
    found = whole if where is None else _kept(files, whole, where)
    files.on_scan(files.name, len(found), len(whole))
    return _narrowed(files, found, where) if where is not None and len(found) <= _PARTED_MAX else found


def _slice(files: PartitionFiles, segment: Segment) -> FileSlice:
    start, end = max(files.log_start, segment.base_offset), min(files.end, segment.last_offset + 1)
    return FileSlice(files, segment, start, end)


def _narrowed(files: TopicFiles, slices: Iterable[FileSlice], where: pc.Expression) -> list[FileSlice]:
    """The slices with less at both ends, where the offsets say so: a large file is read by row groups."""
    narrowed = []
    for item in slices:
        parts = _cut(item, _PARTS) if item.segment.raw_bytes > SMALL_SEGMENT_BYTES else [item]
        possible = _kept(files, parts, where) if len(parts) > 1 else parts
        if possible:
            narrowed.append(replace(item, start=possible[0].start, end=possible[-1].end))
    return narrowed


def _cut(item: FileSlice, count: int) -> list[FileSlice]:
    """The slice as up to `count` slices, at least one."""
    width = max(1, -(-(item.end - item.start) // max(1, count)))
    starts = range(item.start, item.end, width) or [item.start]
    return [replace(item, start=start, end=min(start + width, item.end)) for start in starts]


def _kept(files: TopicFiles, slices: Sequence[FileSlice], where: pc.Expression) -> list[FileSlice]:
    wanted = mentioned(where, files.declared.schema)
    known = [_known(files.name, item, wanted) for item in slices]
    return [slices[index] for index in _possible(known, where, files.schema)]


def mentioned(where: pc.Expression | None, schema: pa.Schema) -> list[pa.Field]:
    """The columns of `schema` that `where` may name."""
    words = set() if where is None else set(_WORD.findall(str(where)))
    return [field for field in schema if not _WORD.fullmatch(field.name) or field.name in words]


def _possible(known: Iterable[pc.Expression], where: pc.Expression | None, schema: pa.Schema) -> list[int]:
    """The indexes of those in `known`, each true of all rows of a place, whose rows `where` may want."""
    # As files they are never opened: their paths are the indexes by which they are found again.
    form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
    places = [form.make_fragment(str(index), nowhere, one) for index, one in enumerate(known)]
    dataset = ds.FileSystemDataset(places, schema, form, nowhere)
    return [int(fragment.path) for fragment in dataset.get_fragments(where)]


def _known(topic: str, item: FileSlice, wanted: Sequence[pa.Field]) -> pc.Expression:
    """The stats of a slice, with those of the declared columns `wanted`, as a filter that is true of all its
    records.
    """
    low, high = timestamp_us(item.segment.min_timestamp), timestamp_us(item.segment.max_timestamp)
    known = (
        _of_partition(topic, item.files.partition),
        pc.field(OFFSET) >= item.start,
        pc.field(OFFSET) < item.end,
        pc.field(TIMESTAMP) >= _scalar(TIMESTAMP, low),
        pc.field(TIMESTAMP) <= _scalar(TIMESTAMP, high),
        *(bound for column in wanted for bound in _bounds(item.segment, column)),
    )
    return functools.reduce(operator.and_, known)


def _bounds(segment: Segment, column: pa.Field) -> Iterator[pc.Expression]:
    """The stats of a declared column. Those of another kind than its values tell nothing of them."""
    found, stats = pc.field(column.name), segment.column_stats
    nulls = stats.nulls.get(column.name)
    if not segment.columns or nulls == segment.records:
        yield found.is_null()
        return
    for bounds, compare in ((stats.least, operator.ge), (stats.greatest, operator.le)):
        bound = _bound(bounds.get(column.name), column.type)
        if bound is not None:
            holds = compare(found, bound)
            yield holds if nulls == 0 else holds | found.is_null()


def _bound(bound: Bound | None, kind: pa.DataType) -> pa.Scalar | None:
    """The bound as a value of a column; None if there is none, or it is not of this kind."""
    if bound is None or type(bound) not in _KINDS.get(looked_up(kind), ()):
        return None
    if pa.types.is_decimal(kind):
        number = decimal_of(msgspec.json.encode(bound).decode(), kind)
        return None if isinstance(number, str) else pa.scalar(number, kind)
    try:
        if pa.types.is_date(kind):
            return pa.scalar(date.fromisoformat(str(bound)), kind)
        if pa.types.is_timestamp(kind):
            return pa.scalar(timestamp_us(str(bound)), kind)
        return pa.scalar(bound, kind)
    except (ValueError, TypeError, OverflowError):
        return None


def _of_partition(topic: str, partition: int) -> pc.Expression:
    return (pc.field(TOPIC) == topic) & (pc.field(PARTITION) == _scalar(PARTITION, partition))


def _scalar(column: str, value: int) -> pa.Scalar:
    return pa.scalar(value, SCAN_SCHEMA.field(column).type)


def spread(slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
    """The slices, in order, in parts of about the same size: one for each core if they are worth it.

    There is always one, which may be empty. A large file is cut between parts.
    """
    total = sum(item.size_bytes for item in slices)
    count = max(1, min(os.cpu_count() or 1, total // _WORTH_A_THREAD_BYTES))
    parts: list[list[FileSlice]] = [[] for _ in range(count)]
    before = 0
    for item in chain.from_iterable(_cut(item, item.size_bytes * count // max(1, total)) for item in slices):
        parts[min(count - 1, before * count // max(1, total))].append(item)
        before += item.size_bytes
    return parts
