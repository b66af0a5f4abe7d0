"""New segments from old ones, one partition at a time: Spark tasks, gateways and tests run the same code."""

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from log_tables import segment as segments
from log_tables.clock import Clock
from log_tables.commit import Commit
from log_tables.errors import CorruptSegment, InvalidArgument
from log_tables.layout import segment_name
from log_tables.record import RECORD_SCHEMA
from log_tables.snapshot import Segment, Snapshot
from log_tables.store import Store
from log_tables.table import Table, commit_info

__all__ = ["commit_merge", "merge"]


def merge(store: Store, table: str, inputs: Sequence[Segment], compression: str, clock: Clock) -> Segment:
    """Write the records of `inputs`, neighbours in order, as one new segment file; nothing is committed.

    Raises InvalidArgument for segments that do not follow one another, CorruptSegment when the inputs do not
    hold what their stats say, or when what was written does not read back as the very same records.
    """
    if not inputs or any(a.last_offset >= b.base_offset for a, b in pairwise(inputs)):
        raise InvalidArgument("a merge takes one or more segments in offset order; list them so")
    end = inputs[-1].last_offset + 1
    batches = [batch for item in inputs for batch in segments.read(store, table, item, item.base_offset, end)]
    records = pa.Table.from_batches(batches, RECORD_SCHEMA).combine_chunks().to_batches()[0]
    if records.num_rows != sum(item.records for item in inputs):
        raise CorruptSegment(
            f"{len(inputs)} segments of {table} from offset {inputs[0].base_offset} hold "
            f"{records.num_rows} records, "
            f"their stats say {sum(item.records for item in inputs)}; run `lakelog fsck`"
        )
    data = segments.encode(records, compression)
    # The newest input's time: it lies between the neighbours', so modificationTime stays monotone.
    modified = inputs[-1].modification_time
    path = segment_name(inputs[0].base_offset, clock.random_hex(8))
    made = segments.describe(path, records, data.size, modified)
    store.put_new(f"{table}/{path}", data)
    written = pa.Table.from_batches(
        segments.read(store, table, made, made.base_offset, made.last_offset + 1), RECORD_SCHEMA
    )
    if not written.equals(pa.Table.from_batches([records])):
        raise CorruptSegment(f"segment {path} of {table} did not read back as written; check the disk")
    return made


def commit_merge(table: Table, inputs: Sequence[Segment], made: Segment) -> bool:
    """Put `made` in the place of `inputs`, `dataChange: false`. False, without harm, when one is gone."""
    info = commit_info(table.clock, "OPTIMIZE")
    gone = {item.path for item in inputs}

    def build(snapshot: Snapshot) -> Commit | None:
        if not gone <= {item.path for item in snapshot.segments}:
            return None
        now_ms = table.clock.now_ms()
        removes = tuple(item.remove(now_ms, data_change=False) for item in inputs)
        return Commit(info, adds=(made.add(data_change=False),), removes=removes)

    return table.transact(build) is not None
