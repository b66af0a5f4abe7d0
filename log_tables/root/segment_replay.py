"""The check of a segment: its stats and its digest are made of the file again, and compared with the log.

Its declared columns are derived from the values again, and compared with those in the file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from log_tables.columns.column_stats import ColumnStats, ColumnStatsWriter
from log_tables.columns.declaration import Declaration
from log_tables.columns.typed_values import typed_values
from log_tables.errors import LakelogError
from log_tables.layout import OFFSET, VALUE, VALUE_ERROR
from log_tables.record import RECORD_SCHEMA, int64s
from log_tables.segments import segment as segments
from log_tables.segments.segment import SegmentStats
from log_tables.store.store import Data, Store
from log_tables.table.snapshot import Segment

_REMEDY = "restore it from a backup"


def check_columns(
    batches: Iterable[pa.RecordBatch], segment: Segment, declared: Declaration
) -> Iterator[str]:
    """The problems of the columns of `segment`, of a table that has `declared`, in all `batches` of its file;
    they never name a value.
    """
    stats, different = ColumnStatsWriter(), dict[str, int]()
    columns = None
    try:
        for batch in batches:
            if columns is None:
                columns = _declaration(batch, declared)
                broken = [*_misplaced(batch, columns, segment)]
                if broken or not columns.columns:
                    yield from broken
                    return
            _compare(batch, columns, different)
            stats.add(batch, batch.schema.names[len(RECORD_SCHEMA) :])
    except (LakelogError, pa.ArrowException) as error:
        yield f"segment {segment.path}: {error}"
        return
    for name, offset in different.items():
        yield (
            f"the column {name} of segment {segment.path} is not what the values say, from offset {offset} "
            f"on; {_REMEDY}"
        )
    for name in _unbound(segment.column_stats, stats.stats()):
        yield f"segment {segment.path} holds values or nulls of the column {name} outside its stats"


def _declaration(batch: pa.RecordBatch, declared: Declaration) -> Declaration:
    """The columns of a file, as its table declares them."""
    names = {*batch.schema.names}
    return Declaration(tuple(column for column in declared.columns if column.name in names))


def _misplaced(batch: pa.RecordBatch, columns: Declaration, segment: Segment) -> Iterator[str]:
    """The columns that should not be there, and an id of the log that is not theirs."""
    known = {*RECORD_SCHEMA.names, *columns.schema.names}
    unknown = [name for name in batch.schema.names if name not in known]
    if unknown:
        yield (
            f"segment {segment.path} has the column {unknown[0]}, which its table does not declare; {_REMEDY}"
        )
    elif columns.columns and VALUE_ERROR not in batch.schema.names:
        yield f"segment {segment.path} has declared columns, and lacks {VALUE_ERROR}; {_REMEDY}"
    elif columns.id != segment.columns:
        yield (
            f"segment {segment.path} has the columns of declaration {columns.id or 'none'}, and the log says "
            f"{segment.columns or 'none'}; {_REMEDY}"
        )


def _compare(batch: pa.RecordBatch, columns: Declaration, different: dict[str, int]) -> None:
    """Note in `different` the first offset at which a column is not what the values say."""
    expected = typed_values(batch.column(VALUE), columns)
    for name, made in zip(expected.schema.names, expected.columns, strict=True):
        found = batch.column(name)
        if name in different or (found.type == made.type and found.equals(made)):
            continue
        row = _first_difference(found, made)
        if row is not None:
            different[name] = batch.column(OFFSET)[row].as_py()


def _first_difference(found: pa.Array, made: pa.Array) -> int | None:
    """The first row in which two columns differ. None if they do in names of types alone, which Parquet may
    not keep.
    """
    try:
        found = found.cast(made.type)
    except pa.ArrowException:
        return 0
    if found.equals(made):
        return None
    low, high = 0, len(made) - 1
    while low < high:  # the first `high + 1` rows differ, the first `low` do not
        middle = (low + high) // 2
        if found.slice(0, middle + 1).equals(made.slice(0, middle + 1)):
            low = middle + 1
        else:
            high = middle
    return low


def _unbound(said: ColumnStats, found: ColumnStats) -> Iterator[str]:
    """The columns whose bounds in the log, `said`, do not hold what was `found`, or whose nulls differ."""
    for name in said.nulls:
        low, high = found.least.get(name), found.greatest.get(name)
        if (
            found.nulls.get(name, said.nulls[name]) != said.nulls[name]
            or (low is not None and name in said.least and _exceeds(said.least[name], low))
            or (name in said.greatest and high is not None and _exceeds(high, said.greatest[name]))
        ):
            yield name


def _exceeds(one: object, other: object) -> bool:
    """Whether a bound is greater than another of the same column; they are not of one kind if it is wrong."""
    if isinstance(one, str) != isinstance(other, str):
        return True
    return one > other  # type: ignore[operator, no-any-return]


REMEDY = "restore it from a backup"
_SLACK_BYTES = 256


def check_segment(
    store: Store, directory: str, segment: Segment, declared: Declaration | None = None
) -> Iterator[str]:
    """The problems of the file of `segment`, of the table at `directory`, which is read once.

    With `declared`, the columns of the table, its declared columns are derived from the values again.
    """
    found = _Found()
    try:
        data = store.get(f"{directory}/{segment.path}")
        if len(data) != segment.size:
            yield f"segment {segment.path} has {len(data)} bytes, and the log says {segment.size}; {REMEDY}"
            return
        batches = found.noting(segments.read_bytes(data, directory, segment))
        columns = [] if declared is None else [*check_columns(batches, segment, declared)]
        for _ in batches:
            pass  # the rest, of which no columns are checked
    except LakelogError as error:
        found.error = error
    if found.error is not None:
        yield f"segment {segment.path}: {found.error}"
        return
    problems = [] if found.ordered else [f"the offsets of segment {segment.path} do not strictly increase"]
    problems += _differences(segment, found.stats, data)
    yield from problems or columns


@dataclass(slots=True)
class _Found:
    """The stats of a file, whether its offsets strictly increase, and why it cannot be read."""

    stats: SegmentStats = field(default_factory=SegmentStats)
    ordered: bool = True
    error: LakelogError | None = None

    def noting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give on `batches`, each noted before. Raises as they do."""
        try:
            for batch in batches:
                offsets = int64s(batch.column(OFFSET))
                self.ordered = self.ordered and (len(offsets) == 0 or offsets[0] > self.stats.last_offset)
                self.ordered = self.ordered and bool(np.all(np.diff(offsets) > 0))
                self.stats.add(batch.select(RECORD_SCHEMA.names))
                yield batch
        except LakelogError as error:
            self.error = error
            raise


def _differences(segment: Segment, stats: SegmentStats, data: Data) -> Iterator[str]:
    """The claims of the log about a file that the file contradicts."""
    if stats.records == 0:
        yield f"segment {segment.path} holds no records, and its stats say {segment.records}"
        return
    made = stats.segment(segment.path, data, segment.modification_time)
    for what, found, said in (
        ("records", made.records, segment.records),
        ("offsets", (made.base_offset, made.last_offset), (segment.base_offset, segment.last_offset)),
        (
            "timestamps",
            (made.min_timestamp, made.max_timestamp),
            (segment.min_timestamp, segment.max_timestamp),
        ),
        ("nulls in key, value and headers", made.nulls, segment.nulls),
    ):
        if found != said:
            yield f"segment {segment.path} holds {what} {_shown(found)}, its stats say {_shown(said)}"
    # Arrow has bitmaps of nulls that a file need not have, and each batch rounds them up.
    slack = made.raw_bytes // 8 + made.records + _SLACK_BYTES
    if segment.raw_bytes and abs(segment.raw_bytes - made.raw_bytes) > slack:
        yield (
            f"segment {segment.path} holds {made.raw_bytes} bytes of records, its tag says "
            f"{segment.raw_bytes}"
        )
    if segment.digest and segment.digest != made.digest:
        yield (
            f"segment {segment.path} has the digest {made.digest.hex()}, and the log says "
            f"{segment.digest.hex()}: its content was changed; {REMEDY}"
        )


def _shown(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return (" to " if len(value) == 2 else ", ").join(map(str, value))
