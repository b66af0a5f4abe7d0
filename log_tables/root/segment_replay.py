"""The check of a segment: its stats and its digest are made of the file again, and compared with the log.

Its declared columns are derived from the values again, and compared with those in the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from log_tables.columns.declaration import Declaration
from log_tables.errors import LakelogError
from log_tables.layout import OFFSET
from log_tables.record import RECORD_SCHEMA, int64s
from log_tables.root.column_replay import ValueSchemas, check_columns
from log_tables.segments import segment as segments
from log_tables.segments.segment import SegmentStats
from log_tables.store.store import Data, Store
from log_tables.table.snapshot import Segment

REMEDY = "restore it from a backup"
_SLACK_BYTES = 256


def check_segment(
    store: Store,
    directory: str,
    segment: Segment,
    declared: Declaration | None = None,
    schemas: ValueSchemas = ValueSchemas(),  # noqa: B008
) -> Iterator[str]:
    """The problems of the file of `segment`, of the table at `directory`, which is read once.

    With `declared`, the columns of the table, its declared columns are derived from the values again, by
    `schemas` if the values need some.
    """
    found = _Found()
    try:
        data = store.get(f"{directory}/{segment.path}")
        if len(data) != segment.size:
            yield f"segment {segment.path} has {len(data)} bytes, and the log says {segment.size}; {REMEDY}"
            return
        batches = found.noting(segments.read_bytes(data, directory, segment))
        columns = [] if declared is None else [*check_columns(batches, segment, declared, schemas)]
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
