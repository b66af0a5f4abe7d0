"""Reading on where a rewrite has put other files in the place of those that were planned.

A plan names files. A merge replaces them, and a vacuum deletes them an hour later: a reader that comes late
looks up which files hold its offsets now, and goes on at the next one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from log_tables.errors import CorruptSegment
from log_tables.layout import OFFSET
from log_tables.record import int64s
from log_tables.table.snapshot import Segment

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
