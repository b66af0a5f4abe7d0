"""Partitions to try things on: short appends, what they hold, and other processes on the same table."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.layout import TXN_CLEANED, checkpoint_version, commit_version, log_directory, segment_name
from log_tables.limits import LOG_RETENTION_MS
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig, PartitionReader
from log_tables.record import Record, input_batch, to_records
from log_tables.root.table_check import check_partition
from log_tables.segments.segment import SegmentLimits, describe, encode, read
from log_tables.store.store import Store
from log_tables.table.commit import Add, Commit, Txn, file_metrics
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import create_table

TABLE = "topics/t/partition=0"


def new_partition(store: Store, clock: Clock, config: PartitionConfig | None = None) -> Partition:
    """An empty partition that this process leads."""
    create_table(store, TABLE, clock)
    partition = Partition(store, TABLE, clock, config)
    partition.claim("http://first")
    return partition


def with_sizes(store: Store, clock: Clock, **sizes: int) -> Partition:
    """An empty partition that this process leads, of segments with other sizes (SegmentLimits)."""
    return new_partition(store, clock, PartitionConfig(limits=SegmentLimits(**sizes)))


def another(partition: Partition, store: Store | None = None) -> Partition:
    """The partition opened anew, as in another process; through `store`, if one is given."""
    return Partition(store or partition.table.store, partition.directory, partition.clock, partition.config)


def entry(
    *values: bytes | None,
    producer: ProducerStamp | None = None,
    expected_offset: int | None = None,
    at_us: int = 1_000_000,
    keys: Sequence[bytes | None] | None = None,
) -> AppendRequest:
    """Records of these values, all at the time `at_us`."""
    records = [Record(value, key) for value, key in zip(values, keys or [None] * len(values), strict=True)]
    return AppendRequest(input_batch(records, at_us), producer, expected_offset)


def append(
    partition: Partition,
    *values: bytes | None,
    producer: ProducerStamp | None = None,
    expected_offset: int | None = None,
    at_us: int = 1_000_000,
) -> int | None:
    """One commit of these values; returns the base offset."""
    made = entry(*values, producer=producer, expected_offset=expected_offset, at_us=at_us)
    return partition.append([made])[0].base_offset


def append_each(partition: Partition, values: Sequence[bytes], at_us: int = 1_000_000) -> None:
    """One commit for each of `values`."""
    for value in values:
        append(partition, value, at_us=at_us)


def problems_of(store: Store, was_ahead: bool) -> list[str]:
    """The problems that fsck names. `was_ahead`: a clock was so far ahead of the store's, by which fsck goes,
    that a checkpoint left out young removes; that it says so is right.
    """
    found = check_partition(store, TABLE).problems
    return [each for each in found if not (was_ahead and "lacks the remove of" in each)]


def records(partition: PartitionReader, max_bytes: int = 1 << 20) -> list[Record]:
    """All readable records from the log start on, in fetches of `max_bytes`, each of which gets on."""
    found: list[Record] = []
    offset = partition.log_start
    while offset < partition.high_watermark:
        plan = partition.bound(partition.plan_read(offset, max_bytes))
        assert plan.end > offset
        part = [record for batch in partition.read(plan) for record in to_records(batch)]
        assert all(record.offset is not None and offset <= record.offset < plan.end for record in part)
        found += part
        offset = plan.end
    return found


def held(partition: PartitionReader, max_bytes: int = 1 << 20) -> dict[int | None, bytes | None]:
    """The values that may be read, by offset, in order."""
    found = records(partition, max_bytes)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets), key=lambda offset: offset or 0)
    return {record.offset: record.value for record in found}


def values(partition: PartitionReader) -> list[bytes | None]:
    """The values that may be read, in order."""
    return list(held(partition).values())


def log_versions(partition: Partition) -> tuple[list[int], list[int]]:
    """The versions of the commits and of the checkpoints that the log holds."""
    paths = [item.path for item in partition.table.store.list(log_directory(partition.directory))]
    return list(_versions(map(commit_version, paths))), list(_versions(map(checkpoint_version, paths)))


def _versions(found: Iterator[int | None]) -> Iterator[int]:
    return (version for version in found if version is not None)


def thin_out(partition: Partition, inputs: Sequence[Segment], keep: Callable[[int], bool]) -> None:
    """Put the records of `inputs` whose offsets `keep` in their place, as one segment if there are any. The
    last record of the log always stays, as in a compaction by key.
    """
    table = partition.table
    last = table.snapshot.high_watermark - 1
    end = inputs[-1].last_offset + 1
    parts = [
        part for item in inputs for part in read(table.store, table.directory, item, item.base_offset, end)
    ]
    rows = pa.Table.from_batches(parts)
    rows = rows.filter([keep(offset) or offset == last for offset in rows["offset"].to_pylist()])
    adds: tuple[Add, ...] = ()
    if rows.num_rows:
        batch = rows.combine_chunks().to_batches()[0]
        base = batch.column(0)[0].as_py()
        path, data = (
            segment_name(base, table.clock.random_hex(8)),
            encode(batch, "zstd", partition.config.limits),
        )
        table.store.put_new(f"{table.directory}/{path}", data)
        adds = (describe(path, batch, data, inputs[-1].modification_time).add(data_change=True),)
    removes = tuple(item.remove(table.clock.now_ms(), data_change=True) for item in inputs)
    info = replace(commit_info(table.clock, "COMPACT"), operationMetrics=file_metrics(adds, removes))

    def build(snapshot: Snapshot) -> Commit:
        return Commit(info, (Txn(TXN_CLEANED, max(snapshot.cleaned, end)),), adds, removes)

    table.transact(build)


def bury(partition: Partition) -> None:
    """Checkpoint what `partition` knows and clean the log before it, an hour later."""
    partition.clock.pause(LOG_RETENTION_MS / 1000 + 1)
    partition.refresh(wait=True)
    partition.checkpoint()
    partition.table.delete_expired_log()


def sound(partition: Partition) -> bool:
    """Whether fsck finds no problem in the table."""
    return check_partition(partition.table.store, partition.directory).problems == []
