"""Compaction by key: the newest record of each key stays, with its offset (Kafka's cleanup.policy=compact).

A shuffle brings the keys of a partition together (log_tables/segments/key_shuffle.py), so a partition may be
larger than memory. log_tables/segments/cleaner.py selects the records that stay. A partition is
compacted in one commit: a tombstone may go only together with the records that it deletes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from jobs.engine import Engine, Failure
from jobs.outcome import JobOutcome
from jobs.rewrite_commit import RewriteStep, rewrite
from jobs.state import PartitionState
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import is_internal
from log_tables.counts import counted
from log_tables.limits import COMPACTED_SEGMENT_BYTES, DIRTY_RECORDS_MIN, TIMESTAMP_MIN_US
from log_tables.record import timestamp_text
from log_tables.segments.cleaner import Cleaning, cleanable, groups, is_dirty
from log_tables.segments.key_shuffle import Borders, KeyGroup
from log_tables.segments.rewrite import commit_compaction
from log_tables.store.store import Store
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table

NAME = "key_compaction"

BUCKET_RECORDS = 2_000_000
"""Records whose keys one task brings together: at some 100 bytes each, they fit into a small worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleLimits:
    """A task holds the keys of `bucket_records` records, or the records of a new segment, of `segment_bytes`
    when uncompressed.
    """

    bucket_records: int = BUCKET_RECORDS
    segment_bytes: int = COMPACTED_SEGMENT_BYTES


SHUFFLE_LIMITS = ShuffleLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactStep(RewriteStep):
    """Compact `inputs` by key: all segments of a partition that may be compacted."""

    cleaning: Cleaning

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.inputs)

    def __str__(self) -> str:
        return f"compact {counted(len(self.inputs), 'segment')} ({counted(self.records, 'record')}) by key"


def plan(
    states: Sequence[PartitionState], now_ms: int, dirty_records_min: int = DIRTY_RECORDS_MIN
) -> tuple[CompactStep, ...]:
    """The partitions that are dirty enough to be compacted; `now_ms` is milliseconds since 1970.

    For internal topics, enough is what `cleaner.is_dirty` says of `dirty_records_min`.

    Partitions with records in the remote root are left out, as a move may have come after a change of the
    policy: a record there would be visible again once its tombstone goes here.
    """
    whole = (state for state in states if state.snapshot.tiered <= state.snapshot.log_start)
    found = (_compact(state, now_ms, dirty_records_min) for state in whole if state.config.compacted)
    return tuple(step for step in found if step is not None)


def _compact(state: PartitionState, now_ms: int, dirty_records_min: int) -> CompactStep | None:
    config = state.config
    old = cleanable(state.snapshot, now_ms, config.min_compaction_lag_ms)
    inputs = old[: len(state.rewritable)]
    if is_internal(state.topic):
        # The rule of a gateway: a root with few topics gains nothing by more.
        due = is_dirty(inputs, state.snapshot.cleaned, dirty_records_min)
    else:
        due = dirty_ratio(inputs, state.snapshot.cleaned) > config.min_cleanable_dirty_ratio or is_overdue(
            inputs, state.snapshot.cleaned, now_ms, config.max_compaction_lag_ms
        )
    if not due:
        return None
    cleaning = Cleaning.of(state.snapshot, now_ms, config.delete_retention_ms)
    return CompactStep(
        topic=state.topic,
        partition=state.partition,
        directory=state.directory,
        inputs=inputs,
        compression=config.compression,
        cleaning=cleaning,
    )


def dirty_ratio(segments: Sequence[Segment], cleaned: int) -> float:
    """The fraction of `segments`, in bytes, from offset `cleaned` on, which compaction has not seen."""
    dirty = sum(segment.size for segment in segments if segment.last_offset >= cleaned)
    return dirty / max(1, sum(segment.size for segment in segments))


def is_overdue(segments: Sequence[Segment], cleaned: int, now_ms: int, max_compaction_lag_ms: int) -> bool:
    """Whether `segments` have a record from offset `cleaned` on that is older than the lag (KIP-354)."""
    oldest = timestamp_text(max(TIMESTAMP_MIN_US, (now_ms - max_compaction_lag_ms) * 1_000))
    return any(each.last_offset >= cleaned and each.min_timestamp < oldest for each in segments)


def run(
    engine: Engine, cluster: Cluster, steps: Sequence[CompactStep], limits: ShuffleLimits = SHUFFLE_LIMITS
) -> Iterator[JobOutcome]:
    """Do `steps` by a shuffle of `engine`, then commit each; many bytes go to it in parts."""

    def make(batch: Sequence[CompactStep]) -> Iterable[Sequence[Segment] | Failure]:
        return engine.shuffle(key_groups(cluster.store, batch, limits))

    def commit(table: Table, step: CompactStep, made: Sequence[Segment], begun: float) -> bool:
        return commit_compaction(table, step.inputs, made, step.inputs[-1].last_offset + 1, begun)

    return rewrite(NAME, engine, cluster, steps, make, commit)


def key_groups(
    store: Store, steps: Sequence[CompactStep], limits: ShuffleLimits = SHUFFLE_LIMITS
) -> list[list[KeyGroup]]:
    """The tasks of each step, numbered over all steps."""
    runs = [[*groups(step.inputs, limits.segment_bytes)] for step in steps]
    buckets = [-(-step.records // limits.bucket_records) for step in steps]
    first_groups = [0, *accumulate(len(found) for found in runs)]
    first_buckets = [0, *accumulate(buckets)]
    made = []
    for at, (step, found) in enumerate(zip(steps, runs, strict=True)):
        borders = Borders(first_groups[at], tuple(run[0].base_offset for run in found))
        made.append(
            [
                KeyGroup(
                    number=first_groups[at] + index,
                    url=store.url,
                    options=dict(store.options),
                    directory=step.directory,
                    inputs=run,
                    compression=step.compression,
                    cleaning=step.cleaning,
                    first_bucket=first_buckets[at],
                    buckets=buckets[at],
                    borders=borders,
                )
                for index, run in enumerate(found)
            ]
        )
    return made
