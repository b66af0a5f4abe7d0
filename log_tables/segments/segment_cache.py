"""A cache of the newest segments, and of the row groups that readers are in."""

import threading
from collections import OrderedDict
from typing import NamedTuple

import pyarrow as pa

from log_tables.layout import OFFSET
from log_tables.limits import BEGUN_BYTES, BEGUN_MAX, CACHE_BYTES, COLUMN_BYTES, ROW_SEGMENT_BYTES
from log_tables.record import batch_bytes, int64s
from log_tables.segments.row_segment import RowSegment


class _Begun(NamedTuple):
    """A row group of the segment file `path` of which a reader has read a part."""

    path: str
    first: int
    last: int


class SegmentCache:
    """A cache of committed records, bounded in bytes over all partitions; the oldest go first. Thread-safe.

    A batch of one row counts with all that it takes, so many of them keep to the bound. Records that came as
    rows are rows until somebody reads them: those of many segments are never read.

    Row groups that were read in part have a bound of their own, so that who is behind does not drive out the
    newest records.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES, begun_bytes: int = BEGUN_BYTES) -> None:
        self._limit, self._begun_limit = limit_bytes, begun_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[pa.RecordBatch | RowSegment, int]] = OrderedDict()
        self._begun: OrderedDict[_Begun, tuple[pa.RecordBatch, int]] = OrderedDict()
        self._bytes = self._begun_bytes = 0

    def put(self, path: str, records: pa.RecordBatch | RowSegment) -> None:
        """Keep the records of the segment file `path` (with its table)."""
        if isinstance(records, RowSegment) and not records.rows.owned:
            records = records.batch()
        size = _size(records)
        with self._lock:
            if path in self._kept:
                return  # a segment never changes
            self._kept[path] = records, size
            self._bytes += size
            self._keep_to_limit()

    def get(self, path: str) -> pa.RecordBatch | None:
        with self._lock:
            found = self._kept.get(path)
        if found is None:
            return None
        records, before = found
        if not isinstance(records, RowSegment):
            return records
        batch = records.batch()
        size = _size(batch)
        with self._lock:
            if self._kept.get(path) is found:
                # In its place: a segment is as old as it was.
                self._kept[path] = batch, size
                self._bytes += size - before
                self._keep_to_limit()
        return batch

    def keep_begun(self, path: str, group: pa.RecordBatch) -> None:
        """Keep a whole row group of the segment file `path`, of which a part was read."""
        offsets, size = int64s(group.column(OFFSET)), _size(group)
        if size > self._begun_limit:
            return
        key = _Begun(path, int(offsets[0]), int(offsets[-1]))
        with self._lock:
            self._drop_begun(key)
            self._begun[key] = group, size
            self._begun_bytes += size
            while self._begun_bytes > self._begun_limit or len(self._begun) > BEGUN_MAX:
                self._drop_begun(next(iter(self._begun)))

    def take_begun(self, path: str, offset: int) -> pa.RecordBatch | None:
        """The row group with `offset`, if it is kept. It is not kept any longer."""
        with self._lock:
            for key in self._begun:
                if key.path == path and key.first <= offset <= key.last:
                    return self._drop_begun(key)
        return None

    def _drop_begun(self, key: _Begun) -> pa.RecordBatch | None:
        group, freed = self._begun.pop(key, (None, 0))
        self._begun_bytes -= freed
        return group

    def _keep_to_limit(self) -> None:
        while self._bytes > self._limit:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed


def _size(records: pa.RecordBatch | RowSegment) -> int:
    if isinstance(records, RowSegment):
        return records.rows.size_bytes() + ROW_SEGMENT_BYTES
    return batch_bytes(records) + COLUMN_BYTES * sum(_leaves(field.type) for field in records.schema)


def _leaves(kind: pa.DataType) -> int:
    """How many columns without children a column of this type has."""
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields)) or 1
