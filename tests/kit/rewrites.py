"""Merges and compactions by key of a partition, at once."""

from collections.abc import Sequence

from log_tables.partition.partition import Partition
from log_tables.segments import rewrite
from log_tables.table.snapshot import Segment
from tests.kit.partitions import TABLE, entry

HOUR_MS = 60 * 60 * 1000


def merged(partition: Partition, inputs: Sequence[Segment], compression: str = "zstd") -> Segment:
    return rewrite.merge(partition.table.store, TABLE, inputs, compression, partition.clock)


DAY_MS = 24 * HOUR_MS
A, B, C = b"a", b"b", b"c"


def put(partition: Partition, *rows: tuple[bytes | None, bytes | None]) -> None:
    """One commit of these keys and values."""
    partition.append([entry(*(value for _, value in rows), keys=[key for key, _ in rows])])


LEFT = {2: b"x", 5: None, 6: None, 7: b"2", 8: b"3"}
"""What a first compaction leaves of `keyed`."""


def clean(partition: Partition, lag_ms: int = 0, retention_ms: int = DAY_MS) -> bool:
    return rewrite.compact_by_key(partition.table, "zstd", lag_ms, retention_ms)
