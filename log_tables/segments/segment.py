"""Segments, Parquet files of records: encode, decode and seek them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from log_tables.columns.column_stats import ColumnStatsWriter
from log_tables.counts import counted
from log_tables.errors import CorruptSegment, ObjectMissing
from log_tables.layout import OFFSET, TIMESTAMP, VALUE
from log_tables.limits import (
    COMPRESSED_MIN_BYTES,
    EXPANDED_MAX_BYTES,
    ROW_GROUP_MAX_ROWS,
    ROW_GROUP_TARGET_BYTES,
    SMALL_SEGMENT_BYTES,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    WHOLE_SEGMENT_BYTES,
)
from log_tables.record import RECORD_SCHEMA, batch_bytes, int64s, timestamp_text
from log_tables.rows import Rows
from log_tables.segments.digest import file_digest
from log_tables.store.store import Data, Store
from log_tables.table.snapshot import Horizons, Segment, pack_stats

COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "uncompressed")
"""Values of `compression.type`, by Kafka's names."""

_ZSTD_LEVEL = 1

_OWN = frozenset(RECORD_SCHEMA.names)


def _record_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of the records in memory. Declared columns do not count: they change no size of a segment."""
    return batch_bytes(batch.select(RECORD_SCHEMA.names) if batch.num_columns > len(_OWN) else batch)


def _leaf_paths(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The paths in a Parquet file of a column, each with its type."""
    if pa.types.is_map(kind):
        yield f"{name}.key_value.key", kind.key_type
        yield from _leaf_paths(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaf_paths(f"{name}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _leaf_paths(f"{name}.{kind.field(index).name}", kind.field(index).type)
    else:
        yield name, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """The sizes by which segments are written and read.

    Records of an append are compressed from `compressed_bytes` on. A row group has up to `group_rows` rows,
    and about `group_bytes` when uncompressed. A file of up to `whole_bytes` is read in one request. The
    records of a segment of up to `small_bytes`, uncompressed, are read whole and kept. Declared columns are
    made in slices of about `columns_bytes`, and a row group ends where it has so many.
    """

    compressed_bytes: int = COMPRESSED_MIN_BYTES
    group_rows: int = ROW_GROUP_MAX_ROWS
    group_bytes: int = ROW_GROUP_TARGET_BYTES
    whole_bytes: int = WHOLE_SEGMENT_BYTES
    small_bytes: int = SMALL_SEGMENT_BYTES
    columns_bytes: int = EXPANDED_MAX_BYTES


SEGMENT_LIMITS = SegmentLimits()


def encode(batch: pa.RecordBatch, compression: str, limits: SegmentLimits = SEGMENT_LIMITS) -> pa.Buffer:
    """RECORD_SCHEMA rows, and declared columns if they have any, ordered by offset, as the bytes of a Parquet
    file; small ones stay plain.

    To set up a compression takes as long as the rest of a column, so it has to find something there.
    """
    size = _record_bytes(batch)
    long = set(batch.schema.names) - {OFFSET, TIMESTAMP} if size >= limits.compressed_bytes else ()
    filled = [name for name in long if batch.column(name).null_count < batch.num_rows]
    writer = SegmentWriter(compression, limits, filled)
    writer.add(batch, size)
    return writer.finish()


class SegmentWriter:
    """Writes records, ordered by offset, to a Parquet file in memory, a full row group at a time.

    They have RECORD_SCHEMA and declared columns, the same in all batches. Offsets and timestamps are
    delta-encoded (a few bytes a page), keys and values plain: the compression finds repetitions faster than a
    dictionary does. Declared columns have dictionaries, unless they are doubles; declared times are
    delta-encoded, too. Declared columns, offset and timestamp carry statistics, and no others do.
    Each page has a checksum, so that a byte that rots on the disk is noticed, as in Kafka's batches.
    """

    def __init__(
        self,
        compression: str,
        limits: SegmentLimits = SEGMENT_LIMITS,
        columns: Collection[str] | None = None,
    ) -> None:
        """`columns` are those to which `compression` applies, all unless given."""
        self._compression, self._limits, self._columns = compression, limits, columns
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._held = 0

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        """The writer, made for the `schema` of the first rows."""
        if self._writer is None:
            leaves = {field.name: dict(_leaf_paths(field.name, field.type)) for field in schema}
            chosen = leaves if self._columns is None else self._columns
            packed = [path for name in chosen for path in leaves[name]]
            if self._compression == "uncompressed":
                packed = []
            declared = {
                path: kind for name in leaves if name not in _OWN for path, kind in leaves[name].items()
            }
            # Spark looks for 0.0 in a dictionary, finds no -0.0 there, and leaves the rows out.
            whole = [path for path, kind in declared.items() if not pa.types.is_floating(kind)]
            growing = [path for path in whole if pa.types.is_timestamp(declared[path])]
            level = dict.fromkeys(packed, _ZSTD_LEVEL) if self._compression == "zstd" else None
            self._writer = pq.ParquetWriter(
                self._sink,
                schema,
                compression=dict.fromkeys(packed, self._compression),
                compression_level=level,
                use_dictionary=[path for path in whole if path not in growing] or False,
                column_encoding=dict.fromkeys([OFFSET, TIMESTAMP, *growing], "DELTA_BINARY_PACKED"),
                write_statistics=[OFFSET, TIMESTAMP, *declared],
                store_schema=False,
                write_page_checksum=True,
            )
        return self._writer

    def add(self, batch: pa.RecordBatch, size_bytes: int | None = None) -> None:
        """Add `batch`, of `size_bytes` if that is known; less than a row group waits for more."""
        if self._waiting and batch.num_columns > len(_OWN):
            self._held += self._waiting[-1].nbytes
            if self._held >= self._limits.columns_bytes:
                self._write_waiting()
        self._wait(batch, _record_bytes(batch) if size_bytes is None else size_bytes)
        while self._rows >= (size := self._group_rows()):
            rows = pa.concat_batches(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
            whole = pa.Table.from_batches([rows.slice(0, size)])
            self._opened(rows.schema).write_table(whole, row_group_size=size)
            self._clear()
            if rows.num_rows == size:
                return
            rest = rows.slice(size)
            self._wait(rest, _record_bytes(rest))

    def finish(self) -> pa.Buffer:
        """Write the waiting rows as the last row group; returns the whole file, of at least one record."""
        if self._waiting:
            self._write_waiting()
        self._opened(RECORD_SCHEMA).close()
        return self._sink.getvalue()

    def _write_waiting(self) -> None:
        rest = pa.Table.from_batches(self._waiting)
        self._opened(rest.schema).write_table(rest, row_group_size=self._rows)
        self._clear()

    def _clear(self) -> None:
        self._waiting, self._rows, self._bytes, self._held = [], 0, 0, 0

    def _wait(self, batch: pa.RecordBatch, size_bytes: int) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += size_bytes

    def _group_rows(self) -> int:
        """The number of rows like the waiting ones that make a full row group."""
        width = max(1, self._bytes // max(1, self._rows))
        return min(self._limits.group_rows, max(1, self._limits.group_bytes // width))


def decode(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The records of a file of `SegmentWriter`, one batch for each row group.

    Raises ArrowException or OSError when it cannot be read.
    """
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        for group in range(file.metadata.num_row_groups):
            for batch in file.read_row_group(group, use_threads=False).to_batches():
                yield conform(batch, None)


class SegmentStats:
    """The stats of a segment, gathered from its batches; it has at least one record."""

    def __init__(self) -> None:
        self.base_offset = self.last_offset = -1
        self.records = self._bytes = 0
        self._earliest, self._latest = TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
        self._nulls = (0, 0, 0)
        self._of_columns = ColumnStatsWriter()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the next rows (RECORD_SCHEMA and declared columns, ordered by offset)."""
        own = len(RECORD_SCHEMA)
        offset_column, timestamp_column, *nullable = batch.columns[:own]
        offsets, stamps = int64s(offset_column), int64s(timestamp_column)
        if len(offsets) == 0:
            return
        if self.records == 0:
            self.base_offset = int(offsets[0])
        self.last_offset = int(offsets[-1])
        self.records += len(offsets)
        self._bytes += _record_bytes(batch)
        self._earliest = min(self._earliest, int(stamps.min()))
        self._latest = max(self._latest, int(stamps.max()))
        keys, values, headers = (
            nulls + column.null_count for nulls, column in zip(self._nulls, nullable, strict=True)
        )
        self._nulls = keys, values, headers
        if batch.num_columns > own:
            self._of_columns.add(batch, batch.schema.names[own:])

    @classmethod
    def of_rows(cls, rows: Rows, base_offset: int) -> "SegmentStats":
        """The stats of `rows`, at least one, which have the offsets from `base_offset` on."""
        stats, times_us, count = cls(), rows.timestamps_us, len(rows)
        stats.base_offset, stats.last_offset, stats.records = base_offset, base_offset + count - 1, count
        stats._bytes = rows.arrow_bytes()
        stats._earliest, stats._latest = (
            (times_us, times_us) if isinstance(times_us, int) else (min(times_us), max(times_us))
        )
        headers = count if rows.headers is None else sum(not each for each in rows.headers)
        stats._nulls = count if rows.keys is None else rows.keys.count(None), rows.values.count(None), headers
        return stats

    @property
    def raw_bytes(self) -> int:
        """The bytes of the records in memory."""
        return self._bytes

    def segment(
        self, path: str, data: Data, modification_time: int, horizons: Horizons = (), columns: str = ""
    ) -> Segment:
        """The Segment of the file `path` with the bytes `data`, with these stats, and the declaration
        `columns`.
        """
        return Segment(
            path=path,
            size=len(data),
            base_offset=self.base_offset,
            last_offset=self.last_offset,
            records=self.records,
            min_timestamp=timestamp_text(self._earliest),
            max_timestamp=timestamp_text(self._latest, up=True),
            modification_time=modification_time,
            nulls=self._nulls,
            raw_bytes=self._bytes,
            horizons=horizons,
            columns=columns,
            packed_stats=pack_stats(self._of_columns.stats()),
            digest=file_digest(data),
        )


def describe(
    path: str, batch: pa.RecordBatch, data: Data, modification_time: int, columns: str = ""
) -> Segment:
    """The Segment (its Delta stats) of a file `path` whose bytes `data` hold `batch`, and whose declaration
    has the id `columns`.
    """
    stats = SegmentStats()
    stats.add(batch)
    return stats.segment(path, data, modification_time, columns=columns)


def read(
    store: Store,
    table: str,
    segment: Segment,
    start: int,
    end: int,
    schema: pa.Schema | None = RECORD_SCHEMA,
    whole_bytes: int = WHOLE_SEGMENT_BYTES,
    whole_groups: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of `segment` with start ≤ offset < end, in order, one batch of `schema` a row group; with
    `whole_groups` all records of the row groups that hold them.

    Reads only the row groups and columns needed, of a file larger than `whole_bytes`. A declared column that
    the file lacks is null; without a `schema` all columns of the file are read. Raises CorruptSegment when
    the file is missing, broken, or does not hold what its stats say.
    """
    names = None if schema is None else schema.names
    path = f"{table}/{segment.path}"
    with _named(path):
        # The values are most of a file: a large one is not worth reading whole without them.
        of_all = start <= segment.base_offset and end > segment.last_offset
        all_of_it = of_all and (names is None or VALUE in names)
        source = _source(store, path, segment, all_of_it or segment.size <= whole_bytes)
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            if not _as_logged(file, segment):
                raise _not_as_logged(path, segment)
            stored = file.schema_arrow.names
            wanted = [name for name in stored if names is None or name in names or name == OFFSET]
            for group, first, last in _groups(file, segment, start, end):
                rows = file.read_row_group(group, columns=wanted, use_threads=False)
                if _ends(rows) != (first, last):
                    raise _not_as_logged(path, segment)
                for batch in rows.to_batches():
                    part = batch if whole_groups else between(batch, start, end)
                    if part.num_rows:
                        yield conform(part, schema)


class RowGroup(NamedTuple):
    """A row group of a file, by its footer: its offsets, records, and bytes before they were compressed."""

    first_offset: int
    last_offset: int
    records: int
    size_bytes: int


def row_groups(store: Store, table: str, segment: Segment) -> list[RowGroup]:
    """The row groups of the file of `segment`, in order.

    Only its footer is read; of a segment with gaps also the offsets. Raises CorruptSegment as `read` does.
    """
    path = f"{table}/{segment.path}"
    with _named(path), pq.ParquetFile(_source(store, path, segment, False)) as file:
        if not _as_logged(file, segment):
            raise _not_as_logged(path, segment)
        parts = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        return [
            RowGroup(first, last, parts[index].num_rows, parts[index].total_byte_size)
            for index, first, last in _groups(file, segment, segment.base_offset, segment.last_offset + 1)
        ]


def check(data: Data, table: str, segment: Segment) -> None:
    """Raise CorruptSegment unless `data` are the bytes of the file of `segment`, and can be read."""
    if segment.digest and file_digest(data) != segment.digest:
        raise _changed(data, table, segment)
    for _ in read_bytes(data, table, segment):
        pass


def check_file(data: Data, table: str, segment: Segment) -> None:
    """Raise CorruptSegment unless `data` are the bytes of the file of `segment`: by size and digest, or, of a
    file whose log says no digest, by reading it.
    """
    if len(data) != segment.size:
        raise _not_as_logged(f"{table}/{segment.path}", segment)
    if not segment.digest:
        check(data, table, segment)
    elif file_digest(data) != segment.digest:
        raise _changed(data, table, segment)


def _changed(data: Data, table: str, segment: Segment) -> CorruptSegment:
    return CorruptSegment(
        f"segment {table}/{segment.path} has the digest {file_digest(data).hex()}, and the log says "
        f"{segment.digest.hex()}: its content was changed; restore it from a backup"
    )


def read_bytes(data: Data, table: str, segment: Segment) -> Iterator[pa.RecordBatch]:
    """The records in `data`, the bytes of the file of `segment`, with all their columns, a batch a row group.

    Raises CorruptSegment as `read` does.
    """
    path = f"{table}/{segment.path}"
    with _named(path), pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        if not _as_logged(file, segment):
            raise _not_as_logged(path, segment)
        for group, first, last in _groups(file, segment, segment.base_offset, segment.last_offset + 1):
            rows = file.read_row_group(group, use_threads=False)
            if _ends(rows) != (first, last):
                raise _not_as_logged(path, segment)
            for batch in rows.to_batches():
                yield conform(batch, None)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise CorruptSegment, with the path, for any error of the file at `path`."""
    try:
        yield
    except ObjectMissing:
        raise CorruptSegment(f"segment {path} is missing; restore it from a backup") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptSegment(f"segment {path} cannot be read ({error}); restore it from a backup") from None


def _as_logged(file: pq.ParquetFile, segment: Segment) -> bool:
    """Whether the footer, which has no checksum, agrees with the log."""
    counts = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
    schema = file.schema_arrow
    return (
        schema.names[: len(RECORD_SCHEMA)] == RECORD_SCHEMA.names
        and all(schema.field(name).type == RECORD_SCHEMA.field(name).type for name in (OFFSET, TIMESTAMP))
        and file.metadata.num_rows == sum(counts) == segment.records
    )


def _not_as_logged(path: str, segment: Segment) -> CorruptSegment:
    return CorruptSegment(
        f"segment {path} is not the file of {counted(segment.records, 'record')}, offsets "
        f"{segment.base_offset}-{segment.last_offset}, that the log names; restore it from a backup"
    )


def _source(store: Store, path: str, segment: Segment, whole: bool) -> pa.NativeFile:
    if whole:
        data = store.get(path)
        if len(data) != segment.size:
            raise _not_as_logged(path, segment)
        return pa.BufferReader(data)
    return pa.PythonFile(_RangeFile(store, path, segment.size), mode="r")


def _groups(file: pq.ParquetFile, segment: Segment, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(Row group, first offset, last offset) of the row groups that overlap [start, end).

    Their statistics are not used: reading those of a broken file can end the process (pyarrow 26).
    """
    last, count = segment.base_offset - 1, file.metadata.num_row_groups
    for index in range(count):
        first, last = last + 1, last + file.metadata.row_group(index).num_rows
        if not segment.dense:
            first, last = _ends(file.read_row_group(index, columns=[OFFSET], use_threads=False))
            # The bounds in the stats, which `read` compares.
            first = segment.base_offset if index == 0 else first
            last = segment.last_offset if index == count - 1 else last
        if first >= end:
            return
        if last >= start:
            yield index, first, last


def _ends(rows: pa.Table) -> tuple[int, int]:
    """The first and the last offset of some rows."""
    offsets = rows.column(OFFSET)
    return (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (-1, -1)


def between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows of `batch` (ordered by offset) with start ≤ offset < end, without a copy."""
    offsets = int64s(batch.column(OFFSET))
    first, last = np.searchsorted(offsets, [start, end])
    return batch.slice(int(first), int(last - first))


def conform(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """The columns `schema` of `batch`, with exactly its types and flags, which Parquet does not all store.

    A column that `batch` lacks is null. Without a `schema` it is RECORD_SCHEMA and what follows in `batch`.
    """
    if schema is None:
        schema = pa.schema([*RECORD_SCHEMA, *([*batch.schema][len(RECORD_SCHEMA) :])])
    if batch.schema.equals(schema):
        return batch
    had = {*batch.schema.names}
    columns = [
        _as(batch.column(kind.name), kind.type) if kind.name in had else pa.nulls(batch.num_rows, kind.type)
        for kind in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def first_at(batch: pa.RecordBatch, timestamp_us: int) -> int | None:
    """The offset of the first row with timestamp ≥ `timestamp_us` (microseconds); None without one."""
    stamps = batch.column(TIMESTAMP).view(pa.int64())
    index = pc.index(pc.greater_equal(stamps, timestamp_us), True).as_py()
    return None if index < 0 else int(batch.column(OFFSET)[index].as_py())


class _RangeFile:
    """A read-only file over ranges of an object, for reading a few row groups of a large segment."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        length = self._size - self._at if count < 0 else min(count, self._size - self._at)
        data = self._store.get_range(self._path, self._at, length) if length > 0 else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
