"""The commit of an append: its records with their offsets, and the Delta actions that name them.

A copy of another log is one, too: its records have their offsets already, and gaps between them.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from log_tables.columns.record_columns import RecordColumns
from log_tables.layout import TXN_HIGH_WATERMARK, TXN_MIRRORED, producer_end_txn, producer_sequence_txn
from log_tables.limits import MODIFICATION_STEP_MS, ROW_SEGMENT_MAX, ROW_SEGMENT_MAX_BYTES
from log_tables.partition.sequencer import SequencedAppend, producers_of
from log_tables.record import RECORD_SCHEMA, constant_timestamps, with_offsets
from log_tables.rows import Rows, as_batches, joined
from log_tables.segments import segment as segments
from log_tables.segments.row_segment import RowSegment, encode_rows
from log_tables.segments.segment import SegmentLimits, SegmentStats, SegmentWriter
from log_tables.store.store import Data
from log_tables.table.commit import Commit, CommitInfo, ProducedBatch, Txn
from log_tables.table.snapshot import Segment, Snapshot

_WIDE = ThreadPoolExecutor(1, "lakelog-columns")
"""The thread that makes wide columns: several at once would take gigabytes, and so would what each thread
keeps of the memory that it has freed.
"""


Encoded = tuple[Data, SegmentStats, pa.RecordBatch | RowSegment | None]
"""The bytes of a segment, its stats, and its rows where they are held together."""


def encoded(
    fresh: Sequence[SequencedAppend],
    append_time: int | None,
    columns: RecordColumns,
    compression: str,
    limits: SegmentLimits,
) -> Encoded:
    """(The bytes of the segment of `fresh` with their declared `columns`, its stats, its rows), of at least
    one record. Without the rows where they have many columns: these are not held together.
    """
    rows = None if columns.declaration.columns else _few_rows(fresh, limits)
    if rows is not None:
        base = fresh[0].base_offset
        assert base is not None
        timed = rows if append_time is None else dataclasses.replace(rows, timestamps_us=append_time)
        return _encoded_rows(timed, base, compression, limits)
    records = _records_of(fresh, append_time)
    return encoded_records(records, columns, compression, limits)


def encoded_records(
    records: pa.RecordBatch, columns: RecordColumns, compression: str, limits: SegmentLimits
) -> Encoded:
    """As `encoded`, for records that have their offsets and times (RECORD_SCHEMA)."""
    slices = columns.beside(records, limits.columns_bytes)
    if columns.may_be_wide(records):
        return _WIDE.submit(_encoded, slices, compression, limits).result()
    return _encoded(slices, compression, limits)


def _records_of(fresh: Sequence[SequencedAppend], append_time: int | None) -> pa.RecordBatch:
    """The records of `fresh` with their offsets, at `append_time` (microseconds) if there is one."""
    batches = as_batches([item.request.records for item in fresh])
    base, count = fresh[0].base_offset, sum(item.count for item in fresh)
    assert base is not None
    records = with_offsets(batches, np.arange(base, base + count, dtype=np.int64))
    if append_time is not None:
        records = records.set_column(1, RECORD_SCHEMA.field(1), constant_timestamps(append_time, count))
    return records


def _encoded(slices: Iterator[pa.RecordBatch], compression: str, limits: SegmentLimits) -> Encoded:
    stats, first = SegmentStats(), next(slices)
    stats.add(first)
    second = next(slices, None)
    if second is None:
        return segments.encode(first, compression, limits), stats, first
    writer = SegmentWriter(compression, limits)
    writer.add(first)
    for item in chain((second,), slices):
        stats.add(item)
        writer.add(item)
    return writer.finish(), stats, None


def _few_rows(fresh: Sequence[SequencedAppend], limits: SegmentLimits) -> Rows | None:
    """The records of `fresh` as rows, if all came as rows and they are few; None if not."""
    parts: list[Rows] = []
    count = size = 0
    for item in fresh:
        records = item.request.records
        if not isinstance(records, Rows):
            return None
        parts.append(records)
        count += item.count
        size += item.request.size_bytes
    most, most_bytes = min(ROW_SEGMENT_MAX, limits.group_rows), min(ROW_SEGMENT_MAX_BYTES, limits.group_bytes)
    return joined(parts) if count <= most and size <= most_bytes else None


def _encoded_rows(rows: Rows, base_offset: int, compression: str, limits: SegmentLimits) -> Encoded:
    stats = SegmentStats.of_rows(rows, base_offset)
    packed = compression if stats.raw_bytes >= limits.compressed_bytes else "uncompressed"
    return encode_rows(rows, base_offset, packed), stats, RowSegment(rows, base_offset)


def _txns(fresh: list[SequencedAppend], end: int, now_ms: int) -> Iterator[Txn]:
    """The high watermark `end`, and the state of each producer after `fresh`: a repeat is written once."""
    yield Txn(TXN_HIGH_WATERMARK, end)
    for producer_id, state in producers_of(fresh).items():
        seen_ms = None if state.kept else now_ms
        yield Txn(producer_sequence_txn(producer_id), state.packed, seen_ms)
        yield Txn(producer_end_txn(producer_id), state.end_offset, seen_ms)


def _timed(segment: Segment, snapshot: Snapshot, now_ms: int) -> Segment:
    """`segment` with a modification time after that of the newest one in `snapshot`."""
    newest = snapshot.segments[-1].modification_time + MODIFICATION_STEP_MS if snapshot.segments else 0
    return replace(segment, modification_time=max(now_ms, newest))


def append_commit(
    info: CommitInfo, fresh: list[SequencedAppend], segment: Segment, snapshot: Snapshot, now_ms: int
) -> Commit:
    """The commit of `segment`, which holds the records of `fresh`, after `snapshot`."""
    end = segment.base_offset + segment.records
    produced = tuple(
        ProducedBatch(stamp.id, stamp.epoch, stamp.sequence, item.base_offset or 0, item.count)
        for item in fresh
        if (stamp := item.request.producer) is not None
    )
    info = replace(info, operationParameters={"mode": "Append"}, isBlindAppend=True, producers=produced)
    add = _timed(segment, snapshot, now_ms).add(data_change=True)
    return Commit(info, txns=tuple(_txns(fresh, end, now_ms)), adds=(add,))


def mirror_commit(
    info: CommitInfo, segment: Segment | None, end: int, snapshot: Snapshot, now_ms: int
) -> Commit:
    """The commit of `segment`, which holds what another log has from the high watermark of `snapshot` up to
    `end`; None if that is no record.
    """
    adds = () if segment is None else (_timed(segment, snapshot, now_ms).add(data_change=True),)
    return Commit(info, txns=(Txn(TXN_HIGH_WATERMARK, end), Txn(TXN_MIRRORED, end)), adds=adds)
