"""Declared columns are made, written and read slice by slice, and are what they would be as a whole."""

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.columns.declaration import Declaration
from log_tables.columns.record_columns import RecordColumns
from log_tables.columns.typed_values import typed_values
from log_tables.layout import VALUE
from log_tables.limits import EXPANDED_MAX_BYTES, MIB
from log_tables.partition.partition import Partition
from log_tables.record import RECORD_SCHEMA, Record, input_batch
from log_tables.root.column_replay import check_columns
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.store.store import open_store
from tests.kit.declared_json import declared_values
from tests.kit.partitions import append

WIDE = f"a array<struct<{', '.join(f'f{index}: bigint' for index in range(900))}>>, n bigint FROM '/n'"
ITEMS = 7_000


def wide(number: int) -> bytes:
    """A value of 21 KB whose columns have nearly as many bytes as they can."""
    return b'{"n":%d,"a":[%b]}' % (number, b",".join([b"{}"] * ITEMS))


def group_bytes(partition: Partition, path: str) -> list[int]:
    """The bytes in memory of each row group of a file."""
    data = partition.table.store.get(f"{partition.directory}/{path}")
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        return [file.read_row_group(index).nbytes for index in range(file.metadata.num_row_groups)]


@given(declared_values, st.integers(0, 200), st.integers(0, 3))
def test_slices_have_the_columns_of_the_whole(
    declared: tuple[Declaration, list[bytes | None]], most: int, skipped: int
) -> None:
    declaration, values = declared
    batch = input_batch([Record(None)] * skipped + [Record(value) for value in values], 0)
    records = batch.slice(skipped)
    if declaration.columns and values:
        whole = typed_values(records.column(VALUE), declaration)
        slices = [*RecordColumns(declaration).beside(records, most)]
        joined = pa.concat_batches(slices)
        assert joined.select(declaration.schema.names).equals(whole)
        assert joined.select(records.schema.names).equals(records)


def test_a_commit_a_merge_and_a_retype_hold_a_slice_at_a_time() -> None:
    cluster = Cluster.open(open_store("memory://"))
    partition = create_topic(cluster, "t", configs={"value.columns": WIDE}).partition(0)
    partition.claim("")
    append(partition, *(wide(number) for number in range(2)), b"{}", b"no JSON")
    append(partition, wide(4), b'{"n":5}')
    first, second = partition.snapshot.segments
    assert first.records == 4
    sizes = group_bytes(partition, first.path)
    assert len(sizes) > 1
    assert max(sizes) < 2 * EXPANDED_MAX_BYTES + MIB
    store, clock, declared = partition.table.store, ManualClock(), partition.snapshot.declared
    made = rewrite.merge(store, partition.directory, [first, second], "zstd", clock)
    assert max(group_bytes(partition, made.path)) < 2 * EXPANDED_MAX_BYTES + MIB
    again = rewrite.retype(store, partition.directory, made, declared, "zstd", clock)
    assert max(group_bytes(partition, again.path)) < 2 * EXPANDED_MAX_BYTES + MIB
    batches = segments.read(store, partition.directory, again, 0, 2**63 - 1, None)
    assert [*check_columns(batches, again, declared)] == []
    schema = pa.schema([*RECORD_SCHEMA, ("n", pa.int64())])
    read = segments.read(store, partition.directory, again, 0, 9, schema)
    assert [n for batch in read for n in batch.column("n").to_pylist()] == [0, 1, None, None, 4, 5]
