"""Which segments a read from an offset on takes, and where it ends: pure, from a snapshot alone.

A plan names files. A merge replaces them, and a vacuum deletes them an hour later: a reader that comes late
looks up which files hold its offsets now, and goes on at the next one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from log_tables.errors import CorruptSegment, InvalidOffset, OffsetOutOfRange
from log_tables.layout import OFFSET
from log_tables.record import int64s
from log_tables.table.snapshot import Segment, Snapshot

Read = Callable[[Segment, int, int], Iterable[pa.RecordBatch]]
"""The records of a segment with start ≤ offset < end, in order, with their offsets."""

Lookup = Callable[[int], tuple[Sequence[Segment], int]]
"""The segments that hold the records from an offset on now, and the offset to go on from."""


def read_on(
    segments: Sequence[Segment], start: int, end: int, read: Read, look_up: Lookup
) -> Iterator[pa.RecordBatch]:
    """The records of `segments` with start ≤ offset < end, in order, each once.

    A segment ends where the next one begins. Where `read` raises CorruptSegment, `look_up` says where the
    rest is. Raises CorruptSegment for a file that still counts, and what `look_up` raises.
    """
    offset = start
    while segments:
        segment, *rest = segments
        until = min(end, rest[0].base_offset) if rest else end
        try:
            for batch in read(segment, offset, until):
                offset = int(int64s(batch.column(OFFSET))[-1]) + 1
                yield batch
            offset, segments = max(offset, min(segment.last_offset + 1, until)), rest
        except CorruptSegment:
            segments, offset = look_up(offset)
            if segments and segments[0].path == segment.path:
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The offsets that a read gives, start ≤ offset < end, and the segments that hold them.

    With a `limit` the last segment has gaps, and so many of its records are enough. Where these end only the
    file says (`PartitionReader.bound`).
    """

    start: int
    end: int
    log_start: int
    high_watermark: int
    segments: tuple[Segment, ...] = ()
    limit: int | None = None


def check_offset(snapshot: Snapshot, offset: int) -> None:
    """Raise InvalidOffset or OffsetOutOfRange unless log start ≤ `offset` ≤ high watermark."""
    low, high = snapshot.log_start, snapshot.high_watermark
    if offset < 0:
        raise InvalidOffset(f"offset {offset} is negative; use one from {low} to {high}")
    if not low <= offset <= high:
        raise OffsetOutOfRange(
            f"offset {offset} is out of range; use one from {low} to {high}",
            log_start_offset=low,
            high_watermark=high,
        )


def planned(snapshot: Snapshot, offset: int, max_bytes: int, max_segments: int | None = None) -> ReadPlan:
    """The plan of a read of about `max_bytes`, and of at least one record, from `offset` on.

    `snapshot` has the segments from `offset` on. A segment with gaps is taken whole. The plan has at most
    `max_segments`, of which there is at least one; any number if it is None.
    """
    chosen: list[Segment] = []
    end, room, limit = offset, max_bytes, None
    for segment in snapshot.segments[snapshot.first_segment(offset) :]:
        start = max(offset, segment.base_offset)
        width = max(1, segment.raw_bytes // segment.records)
        wanted = max(1 if not chosen else 0, room // width)
        if wanted == 0:
            break
        chosen.append(segment)
        available = segment.last_offset + 1 - start
        taken = min(wanted, available, segment.records)
        end, room = start + taken, room - taken * width
        if not segment.dense:
            # Between its records are gaps: only the whole segment surely holds `taken` records, or even
            # one.
            end = segment.last_offset + 1
            limit = wanted if wanted < min(available, segment.records) else None
        if limit is not None or end <= segment.last_offset or len(chosen) == max_segments:
            break
    else:
        end = snapshot.high_watermark
    return ReadPlan(
        start=offset,
        end=end,
        log_start=snapshot.log_start,
        high_watermark=snapshot.high_watermark,
        segments=tuple(chosen),
        limit=limit,
    )
