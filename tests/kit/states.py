"""Partitions as the maintenance jobs plan on them, made up of a few numbers."""

from collections.abc import Sequence

from jobs.state import PartitionState
from log_tables.cluster.config import TopicConfig
from log_tables.layout import (
    TXN_CLEANED,
    TXN_HIGH_WATERMARK,
    TXN_LOG_START,
    TXN_TIERED,
    partition_directory,
    topic_directory,
)
from log_tables.record import delta_schema, timestamp_text
from log_tables.table.commit import Metadata, Protocol, Txn
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.txns import Txns

NOW_MS = 1_000_000


def a_segment(
    base: int, count: int = 10, age_ms: int = 0, size: int = 100, appended_age_ms: int | None = None
) -> Segment:
    """`count` records from offset `base` on, whose newest is `age_ms` old at NOW_MS, as is its append."""
    appended_ms = NOW_MS - (age_ms if appended_age_ms is None else appended_age_ms)
    text = timestamp_text((NOW_MS - age_ms) * 1_000)
    path = f"{base:020}.parquet"
    return Segment(
        path=path,
        size=size,
        base_offset=base,
        last_offset=base + count - 1,
        records=count,
        min_timestamp=text,
        max_timestamp=text,
        modification_time=appended_ms,
        nulls=(0, 0, 0),
        raw_bytes=size,
    )


def aged(*ages_ms: int, base: int = 0) -> list[Segment]:
    """Segments of ten records and 100 bytes, one after the other, whose newest records are so old."""
    return [a_segment(base + 10 * at, age_ms=age) for at, age in enumerate(ages_ms)]


def a_snapshot(
    segments: Sequence[Segment], log_start: int = 0, tiered: int = 0, cleaned: int = 0, version: int = 1
) -> Snapshot:
    """A table that holds `segments`."""
    end = segments[-1].last_offset + 1 if segments else max(log_start, tiered)
    places = {TXN_HIGH_WATERMARK: end, TXN_LOG_START: log_start, TXN_TIERED: tiered, TXN_CLEANED: cleaned}
    txns = Txns(Txn(app_id, place) for app_id, place in places.items())
    return Snapshot(version, Protocol(1, 2), Metadata("id", delta_schema()), tuple(segments), txns)


def a_state(
    segments: Sequence[Segment],
    remote: Sequence[Segment] | None = None,
    unreachable: str = "",
    log_start: int = 0,
    tiered: int = 0,
    cleaned: int = 0,
    **configs: object,
) -> PartitionState:
    """Partition 3 of the topic `t`; settings are named with underscores."""
    config = TopicConfig.parse({name.replace("_", "."): str(value) for name, value in configs.items()})
    return PartitionState(
        topic="t",
        partition=3,
        directory=partition_directory(topic_directory("t"), 3),
        config=config,
        snapshot=a_snapshot(segments, log_start, tiered, cleaned),
        remote=None if remote is None else a_snapshot(remote),
        unreachable=unreachable,
    )


def bases(segments: Sequence[Segment]) -> list[int]:
    """The base offset of each segment."""
    return [segment.base_offset for segment in segments]
