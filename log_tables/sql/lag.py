"""The lag of consumer groups, from committed offsets and the segments of tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import OffsetKey, OffsetValue, committed_offsets
from log_tables.errors import UnknownTopic
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.reader import PartitionReader
from log_tables.table.snapshot import Segment, Snapshot

OFFSETS_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("member", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
    ]
)
"""The table `consumer_offsets`: the newest commit of each group for each partition."""

LAG_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("log_start_offset", pa.int64(), nullable=False),
        pa.field("log_end_offset", pa.int64(), nullable=False),
        pa.field("lag", pa.int64(), nullable=False),
        pa.field("lag_seconds", pa.float64(), nullable=False),
        pa.field("lag_bytes", pa.int64(), nullable=False),
    ]
)
"""The table `consumer_lag`: how far behind each group is in each partition that it has committed."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The distance from an offset to the end of a partition.

    `records` counts offsets, as Kafka does, from the log start on. `seconds` is the time that the oldest
    unread record has been in the log (after a rewrite, the newest record of its segment). `size_bytes` is the
    storage of the unread part, with a part of a segment in proportion.
    """

    records: int = 0
    seconds: float = 0.0
    size_bytes: int = 0


class GroupOffsets(NamedTuple):
    """The committed offsets of existing topics, and their partitions."""

    committed: Mapping[OffsetKey, OffsetValue]
    partitions: Mapping[tuple[str, int], PartitionReader]


def lag(snapshot: Snapshot, offset: int, now_ms: int) -> Lag:
    """The lag of a reader whose next record is at `offset`."""
    begin = max(offset, snapshot.log_start)
    return lag_in(snapshot.between(begin, snapshot.high_watermark), begin, snapshot.high_watermark, now_ms)


def lag_in(segments: Sequence[Segment], begin: int, end: int, now_ms: int) -> Lag:
    """The lag of a reader at `begin` in a partition that ends at `end`, by the `segments` between them."""
    if begin >= end:
        return Lag()
    waited_ms = now_ms - segments[0].modification_time if segments else 0
    size = 0
    for segment in segments:
        span = segment.last_offset + 1 - segment.base_offset
        size += segment.size * (segment.last_offset + 1 - max(begin, segment.base_offset)) // span
    return Lag(end - begin, max(0, waited_ms) / 1000, size)


def group_offsets(
    cluster: Cluster, ends: bool, shows: Callable[[str, str], bool] | None = None
) -> GroupOffsets:
    """The committed offsets of all groups, from the tables as they are now; blocking.

    With `ends` their partitions are refreshed, too. `shows` says of a group and a topic whether they are
    wanted; without it all are. Raises CorruptLog, CorruptSegment,
    StoreUnavailable.
    """
    topic = cluster.cached_topic(CONSUMER_OFFSETS)
    found = {} if topic is None else committed_offsets(_fresh(topic.partitions()))
    committed, partitions = {}, {}
    for key, value in sorted(
        found.items(), key=lambda item: (item[0].group, item[0].topic, item[0].partition)
    ):
        known = cluster.cached_topic(key.topic)
        if known is None or known.topic_id != value.topic_id:
            continue  # the topic was deleted, and the group not changed yet
        if shows is not None and not shows(key.group, key.topic):
            continue
        if ends and (key.topic, key.partition) not in partitions:  # many groups read the same
            try:
                partition = known.partition(key.partition)
                partition.refresh()
            except UnknownTopic:
                continue  # it was deleted just now
            partitions[key.topic, key.partition] = partition
        committed[key] = value
    return GroupOffsets(committed, partitions)


def _fresh(partitions: Iterable[PartitionReader]) -> list[PartitionReader]:
    listed = list(partitions)
    for partition in listed:
        partition.refresh()
    return listed


def offsets_table(offsets: GroupOffsets) -> pa.Table:
    """The rows of `consumer_offsets`, as OFFSETS_SCHEMA."""
    rows = [
        {
            "group": key.group,
            "topic": key.topic,
            "partition": key.partition,
            "offset": value.offset,
            "metadata": value.metadata,
            "committed_at": value.committed_ms * 1000,
            "member": value.member,
            "topic_id": value.topic_id,
        }
        for key, value in offsets.committed.items()
    ]
    return pa.Table.from_pylist(rows, OFFSETS_SCHEMA)


def lag_table(offsets: GroupOffsets, now_ms: int) -> pa.Table:
    """The rows of `consumer_lag`, as LAG_SCHEMA."""
    rows = []
    for key, value in offsets.committed.items():
        snapshot = offsets.partitions[key.topic, key.partition].log_from(value.offset)
        behind = lag(snapshot, value.offset, now_ms)
        rows.append(
            {
                "group": key.group,
                "topic": key.topic,
                "partition": key.partition,
                "offset": value.offset,
                "log_start_offset": snapshot.log_start,
                "log_end_offset": snapshot.high_watermark,
                "lag": behind.records,
                "lag_seconds": behind.seconds,
                "lag_bytes": behind.size_bytes,
            }
        )
    return pa.Table.from_pylist(rows, LAG_SCHEMA)
