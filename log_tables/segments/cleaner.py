"""The records that compaction by key keeps: the rules of Kafka's log cleaner (KIP-58, KIP-534), without I/O.

The newest record of each key stays, with its offset, and so does each record without a key. A tombstone stays
for `delete.retention.ms` from the first cleaning that met it; a later cleaning drops it. The last record of
the log always stays: new records are timed after it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.layout import KEY, OFFSET, VALUE
from log_tables.limits import (
    DELETE_HORIZON_STEPS,
    DIRTY_RECORDS_MIN,
    REPLAY_SEGMENT_RECORDS,
    TIMESTAMP_MIN_US,
)
from log_tables.record import int64s, timestamp_text
from log_tables.table.snapshot import Horizons, Segment, Snapshot

_FOR_EVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The parameters of one cleaning of a partition, the same for all its segments.

    `log_start` is the first offset of the log, `last_offset` that of its last record; times are milliseconds
    since 1970.
    """

    log_start: int
    last_offset: int
    now_ms: int
    horizon_ms: int

    @classmethod
    def of(cls, snapshot: Snapshot, now_ms: int, delete_retention_ms: int) -> "Cleaning":
        """A cleaning of `snapshot`, begun at `now_ms`."""
        step = max(1, delete_retention_ms // DELETE_HORIZON_STEPS)
        horizon_ms = -(-(now_ms + delete_retention_ms) // step) * step
        # Behind a copy of another log there may be a gap.
        last = snapshot.segments[-1].last_offset if snapshot.segments else snapshot.high_watermark - 1
        return cls(snapshot.log_start, last, now_ms, min(horizon_ms, _FOR_EVER_MS))


def cleanable(snapshot: Snapshot, now_ms: int, min_compaction_lag_ms: int = 0) -> tuple[Segment, ...]:
    """The segments that a cleaning may touch: those before the first with a record younger than the lag.

    Segments that were cleaned before always take part. Without a lag all segments do, whatever their times.
    """
    if min_compaction_lag_ms == 0:
        return snapshot.segments
    youngest = timestamp_text(max(TIMESTAMP_MIN_US, (now_ms - min_compaction_lag_ms) * 1_000))
    for index, segment in enumerate(snapshot.segments):
        if segment.last_offset >= snapshot.cleaned and segment.max_timestamp > youngest:
            return snapshot.segments[:index]
    return snapshot.segments


def is_dirty(segments: Sequence[Segment], cleaned: int, dirty_records_min: int = DIRTY_RECORDS_MIN) -> bool:
    """Whether replaying the records of `segments` since the last cleaning, from offset `cleaned` on, costs
    more than the rest, and enough to matter: as much as `dirty_records_min` records.

    A segment costs as much as REPLAY_SEGMENT_RECORDS of them.
    """
    new = [segment for segment in segments if segment.last_offset >= cleaned]
    fresh = sum(min(segment.records, segment.last_offset + 1 - cleaned) for segment in new)
    clean = sum(segment.records for segment in segments) - fresh
    cost = fresh + REPLAY_SEGMENT_RECORDS * len(new)
    return cost >= dirty_records_min and cost > clean


def groups(inputs: Sequence[Segment], segment_bytes: int) -> Iterator[tuple[Segment, ...]]:
    """`inputs` in order, as runs of up to `segment_bytes` (uncompressed) that each become one segment.

    Those of a run have one declaration of columns.
    """
    run: list[Segment] = []
    room = segment_bytes
    for segment in inputs:
        wanted = segment.raw_bytes or segment.size
        if run and (wanted > room or segment.declaration_id != run[-1].declaration_id):
            yield tuple(run)
            run, room = [], segment_bytes
        run.append(segment)
        room -= wanted
    if run:
        yield tuple(run)


def latest_offsets(keys: pa.Array | pa.ChunkedArray, offsets: np.ndarray) -> np.ndarray:
    """The offsets of the newest record of each key, ascending; `offsets` are int64, in any order.

    The newest record of each key must be among them.
    """
    return np.sort(newest_of_keys(keys, offsets)[1])


def newest_of_keys(
    keys: pa.Array | pa.ChunkedArray, offsets: np.ndarray
) -> tuple[pa.BinaryArray, np.ndarray]:
    """Each of `keys` once, in any order, with the highest of its `offsets` (int64); nulls are left out."""
    column = keys if isinstance(keys, pa.ChunkedArray) else pa.chunked_array([keys])
    parts = column.dictionary_encode().chunks  # they share one dictionary, which grows from part to part
    if not parts:
        return pa.nulls(0, pa.binary()), np.empty(0, np.int64)
    unique = max((part.dictionary for part in parts), key=len)
    codes = np.concatenate([_codes(part) for part in parts])
    newest = np.full(len(unique), -1, np.int64)
    keyed = codes >= 0
    np.maximum.at(newest, codes[keyed], offsets[keyed])
    return unique, newest


def _codes(part: pa.DictionaryArray) -> np.ndarray:
    """The code of each row's key; -1 without one."""
    codes = int64s(part.indices.cast(pa.int64())).copy()
    codes[_where(part.is_null())] = -1
    return codes


def _where(mask: pa.BooleanArray) -> np.ndarray:
    """The rows that `mask` names (int64)."""
    return int64s(pc.indices_nonzero(mask).cast(pa.int64()))


def survivors(
    records: pa.RecordBatch, latest: np.ndarray, horizons: Horizons, cleaning: Cleaning
) -> tuple[np.ndarray, Horizons]:
    """The rows of `records` (RECORD_SCHEMA, by offset) that stay, and the horizons of the tombstones in them.

    `latest` is what `latest_offsets` gives for all records that take part in the cleaning, from the log start
    on, or any part of it that covers these; `horizons` are those of the segments that hold `records`.
    """
    offsets = int64s(records.column(OFFSET))
    stays = np.isin(offsets, latest[slice(*np.searchsorted(latest, [offsets[0], offsets[-1] + 1]))])
    keyless = _where(pc.is_null(records.column(KEY)))
    stays[keyless] = offsets[keyless] >= cleaning.log_start
    deletes = _where(pc.and_(pc.is_null(records.column(VALUE)), pc.is_valid(records.column(KEY))))
    deletes = deletes[stays[deletes]]
    until, met = _until(offsets[deletes], horizons, cleaning.horizon_ms)
    due = met & (until <= cleaning.now_ms) & (offsets[deletes] != cleaning.last_offset)
    stays[deletes[due]] = False
    return np.flatnonzero(stays), _steps(offsets[deletes[~due]], until[~due])


def _until(offsets: np.ndarray, horizons: Horizons, fresh_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """(horizon, whether an earlier cleaning has given it) of the tombstones at `offsets`."""
    ends = np.fromiter((end for end, _ in horizons), np.int64, len(horizons))
    times = np.fromiter((*(time for _, time in horizons), fresh_ms), np.int64, len(horizons) + 1)
    index = np.searchsorted(ends, offsets)
    return times[index], index < len(horizons)


def _steps(offsets: np.ndarray, times: np.ndarray) -> Horizons:
    """The horizons of the tombstones at `offsets`, one for each run of the same time."""
    if len(offsets) == 0:
        return ()
    last = np.append(np.flatnonzero(np.diff(times)), len(times) - 1)
    return tuple(zip(offsets[last].tolist(), times[last].tolist(), strict=True))
