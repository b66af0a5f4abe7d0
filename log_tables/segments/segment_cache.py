"""A cache of the newest segments."""

import threading
from collections import OrderedDict

import pyarrow as pa

from log_tables.limits import CACHE_BYTES, COLUMN_BYTES, ROW_SEGMENT_BYTES
from log_tables.record import batch_bytes
from log_tables.segments.row_segment import RowSegment


class SegmentCache:
    """A cache of committed records, bounded in bytes over all partitions; the oldest go first. Thread-safe.

    A batch of one row counts with all that it takes, so many of them keep to the bound. Records that came as
    rows are rows until somebody reads them: those of many segments are never read.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[pa.RecordBatch | RowSegment, int]] = OrderedDict()
        self._bytes = 0

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
