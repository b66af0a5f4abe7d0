"""Retention: whole segments go from the head of the log, and the log start moves up (Kafka's retention.*).

Only metadata is read and written. A segment goes by time when its newest record is older than
`retention.ms`, and by size when the log without it still holds `retention.bytes`.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jobs.engine import Engine
from jobs.outcome import OVERTAKEN, JobOutcome, reason
from jobs.state import OPENED_AT_ONCE, PartitionState, partition_of
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.limits import TIMESTAMP_MAX_US
from log_tables.record import timestamp_text, timestamp_us
from log_tables.table.first_segments import too_many, too_old
from log_tables.table.snapshot import Segment

NAME = "retention"

_AHEAD_MS = 24 * 60 * 60 * 1000
"""A clock that is less ahead delays retention by less than a day, which needs no warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireStep:
    """Delete the records below offset `before` of a partition, which are `segments` whole segments from
    `begin` on. It was planned for a log that starts at `log_start`, of a topic that `keeps` so many
    milliseconds, and bytes.
    """

    topic: str
    partition: int
    directory: str
    before: int
    begin: int
    log_start: int
    keeps: tuple[int | None, int | None]
    segments: int
    records: int
    size_bytes: int

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset of the segments."""
        return self.begin, self.before - 1

    def __str__(self) -> str:
        return (
            f"delete {counted(self.segments, 'segment')} ({counted(self.records, 'record')}, "
            f"{self.size_bytes:,} bytes) below offset {self.before}"
        )


def plan(states: Sequence[PartitionState], now_ms: int) -> tuple[ExpireStep, ...]:
    """The records to delete, by the settings of each topic; `now_ms` is milliseconds since 1970.

    Nothing is deleted while the remote tier is unknown: a young segment there keeps the old ones after it.
    """
    known = [state for state in states if not state.unreachable]
    return tuple(
        _expire(state, gone) for state in known if (gone := expired(state.segments, state.config, now_ms))
    )


def warnings(states: Sequence[PartitionState], now_ms: int) -> Iterator[str]:
    """A sentence for each partition where retention by time has come to a segment with a record of more than
    a day to come: the segments from there on stay until that is old.
    """
    horizon = timestamp_text((now_ms + _AHEAD_MS) * 1_000)
    for state in states:
        keep_ms = state.config.retention_ms
        if keep_ms is None or state.unreachable:
            continue
        for segment in state.segments[too_old(state.segments, keep_ms, now_ms) :][:1]:
            if segment.max_timestamp > horizon:
                goes_us = min(timestamp_us(segment.max_timestamp) + keep_ms * 1_000, TIMESTAMP_MAX_US)
                yield (
                    f"retention.ms deletes nothing of partition {state.partition} of topic {state.topic} "
                    f"before {timestamp_text(goes_us)}: a record below offset {segment.last_offset + 1} "
                    f"claims the time {segment.max_timestamp}; delete the records up to it, and set "
                    "message.timestamp.after.max.ms"
                )


def expired(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> Sequence[Segment]:
    """The first of `segments` that are too old, or beyond the size to keep."""
    count = max(too_old(segments, config.retention_ms, now_ms), too_many(segments, config.retention_bytes))
    return segments[:count]


def _expire(state: PartitionState, gone: Sequence[Segment]) -> ExpireStep:
    return ExpireStep(
        topic=state.topic,
        partition=state.partition,
        directory=state.directory,
        before=gone[-1].last_offset + 1,
        begin=gone[0].base_offset,
        log_start=state.snapshot.log_start,
        keeps=(state.config.retention_ms, state.config.retention_bytes),
        segments=len(gone),
        records=sum(segment.records for segment in gone),
        size_bytes=sum(segment.size for segment in gone),
    )


def run(_: Engine, cluster: Cluster, steps: Sequence[ExpireStep]) -> Iterator[JobOutcome]:
    """Do `steps` without workers: there is nothing to compute. One is left to the next run where the settings
    were changed since they were read, or records were brought back since the plan.
    """

    def has_changed(step: ExpireStep) -> bool:
        topic = cluster.cached_topic(step.topic)
        keeps = None if topic is None else (topic.config.retention_ms, topic.config.retention_bytes)
        return keeps not in (None, step.keeps)

    def expire(step: ExpireStep) -> JobOutcome:
        started = timer()
        try:
            log = partition_of(cluster, step.topic, step.partition, step.directory)
            if has_changed(step):
                return JobOutcome(job=NAME, topic=step.topic, partition=step.partition, error=OVERTAKEN)
            error = None if log.truncate(step.before, step.log_start) >= step.before else OVERTAKEN
        except LakelogError as raised:
            error = reason(raised)
        if error is not None:
            return JobOutcome(job=NAME, topic=step.topic, partition=step.partition, error=error)
        return JobOutcome(
            job=NAME,
            topic=step.topic,
            partition=step.partition,
            files_before=step.segments,
            bytes_before=step.size_bytes,
            records=step.records,
            seconds=timer() - started,
        )

    if steps:
        cluster.refresh(wait=True)  # after the tables were looked at: who restores has changed them before
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        yield from pool.map(expire, steps)
