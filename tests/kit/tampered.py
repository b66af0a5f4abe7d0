"""Files of declared columns that are whole, and hold what the values do not say."""

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from log_tables.layout import segment_name
from log_tables.partition.partition import Partition
from log_tables.segments import segment as segments
from log_tables.table.commit import Commit
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import Segment, Snapshot

Change = Callable[[pa.RecordBatch], pa.RecordBatch]
Item = TypeVar("Item")


def unchanged(item: Item) -> Item:
    return item


def tamper(
    partition: Partition, change: Change = unchanged, segment: Callable[[Segment], Segment] = unchanged
) -> None:
    """Put a file whose rows are changed in the place of the last one, and another `segment` into the log."""
    table, item = partition.table, partition.snapshot.segments[-1]
    read = segments.read(table.store, table.directory, item, item.base_offset, item.last_offset + 1, None)
    batch = change(next(iter(read)))
    data = segments.encode(batch, "zstd")
    path = segment_name(item.base_offset, "0" * 8)
    table.store.put_new(f"{table.directory}/{path}", data)
    made = segment(segments.describe(path, batch, data, item.modification_time, item.columns))
    commit = Commit(
        commit_info(table.clock, "UPDATE"), adds=(made.add(True),), removes=(item.remove(0, True),)
    )

    def build(_: Snapshot) -> Commit:
        return commit

    table.transact(build)


def with_cell(name: str, row: int, value: object) -> Change:
    """One cell is another value."""

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        index = batch.schema.get_field_index(name)
        column = batch.column(index)
        cells = column.to_pylist()
        assert cells[row] != value
        cells[row] = value
        return batch.set_column(index, batch.schema.field(index), pa.array(cells, column.type))

    return change
