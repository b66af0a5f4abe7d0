"""Tiered storage: old segments move to the remote root, and expired ones are deleted there (KIP-405).

A segment moves when it is older than `local.retention.ms`, or when the local log without it still has
`local.retention.bytes`, and when no merge is about to take it. Tasks copy; the driver commits
(jobs/move_commit.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from jobs.engine import JOB_BYTES, Engine, Failure, batches
from jobs.move_commit import commit_moves
from jobs.outcome import JobOutcome
from jobs.retention import too_many, too_old
from jobs.segment_compaction import runs
from jobs.state import PartitionState, remote_of
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.counts import counted
from log_tables.limits import MIB
from log_tables.partition.tier import CopyTask, run_copy
from log_tables.table.snapshot import Segment

NAME = "tiering"

COPY_BYTES = 256 * MIB
"""Bytes that one task copies; at least a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """Move `segments`, the first of a partition, to the remote table, which ends at offset `held`.

    Without segments, a move is completed that was killed. `expired` remote segments, below `log_start`, are
    deleted.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[Segment, ...]
    held: int
    compression: str
    log_start: int
    expired: int

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first and the last offset of the segments that move; None if none does."""
        moved = self.segments
        return (moved[0].base_offset, moved[-1].last_offset) if moved else None

    def __str__(self) -> str:
        return (
            f"move {counted(len(self.segments), 'segment')} ({self.size_bytes:,} bytes) to the remote root, "
            f"delete {self.expired} there"
        )


def plan(states: Sequence[PartitionState], now_ms: int) -> tuple[MoveStep, ...]:
    """The moves that are due, by the settings of each topic; `now_ms` is milliseconds since 1970."""
    found = (_move(state, now_ms) for state in states if not state.unreachable)
    return tuple(step for step in found if step is not None)


def _move(state: PartitionState, now_ms: int) -> MoveStep | None:
    moves = state.config.remote_storage and _is_remote_folded(state)
    segments = movable(state, now_ms) if moves else ()
    held, expired, left_behind = 0, 0, False
    if state.remote is not None:
        held, log_start = state.remote.high_watermark, state.snapshot.log_start
        expired = sum(item.last_offset < log_start for item in state.remote.segments)
        left_behind = any(item.last_offset < held for item in state.snapshot.segments[:-1])
    if not (segments or expired or left_behind):
        return None
    return MoveStep(
        topic=state.topic,
        partition=state.partition,
        directory=state.directory,
        segments=segments,
        held=held,
        compression=state.config.compression,
        log_start=state.snapshot.log_start,
        expired=expired,
    )


def _is_remote_folded(state: PartitionState) -> bool:
    """Whether the table over the topic in the remote root has all: while it stands still, nothing follows."""
    return state.remote is None or len(state.remote_rewritable) == len(state.remote.segments)


def movable(state: PartitionState, now_ms: int) -> tuple[Segment, ...]:
    """The first segments that are past the local retention and closed; never the newest."""
    config, segments = state.config, state.rewritable[: len(state.snapshot.segments) - 1]
    past = max(
        too_old(segments, config.local_retention_ms, now_ms),
        too_many(state.snapshot.segments, config.local_retention_bytes),
    )
    merging = runs(state.snapshot.segments, config, now_ms)
    first_open = merging[0][0].base_offset if merging else state.snapshot.high_watermark
    youngest_ms = now_ms - config.merge_min_age_ms
    closed = (
        item
        for item in segments[:past]
        if item.last_offset < first_open and item.modification_time <= youngest_ms
    )
    return tuple(_up_to(JOB_BYTES, closed))


def _up_to(most_bytes: int, segments: Iterable[Segment]) -> Iterator[Segment]:
    """The first of `segments` that have so many bytes together; the next run moves the rest."""
    for segment in segments:
        yield segment
        most_bytes -= segment.size
        if most_bytes <= 0:
            return


def run(
    engine: Engine, cluster: Cluster, steps: Sequence[MoveStep], copy_bytes: int = COPY_BYTES
) -> Iterator[JobOutcome]:
    """Copy the segments of `steps` by tasks of `engine`, then commit each; many bytes go to it in parts.

    A task copies about `copy_bytes`.
    """
    for batch in batches(steps, lambda step: step.size_bytes, engine.job_bytes):
        started = timer()
        tasks = [
            (at, _copy_task(cluster, step, part))
            for at, step in enumerate(batch)
            for part in batches(step.segments, lambda segment: segment.size, copy_bytes)
        ]
        made = engine.spread(run_copy, [task for _, task in tasks])
        of_step: list[list[Sequence[Segment] | Failure]] = [[] for _ in batch]
        for (at, _), result in zip(tasks, made, strict=True):
            of_step[at].append(result)
        moves = zip(batch, of_step, strict=True)
        for _, of_topic in groupby(moves, key=lambda move: move[0].topic):
            yield from commit_moves(NAME, cluster, [*of_topic], timer() - started)


def _copy_task(cluster: Cluster, step: MoveStep, part: tuple[Segment, ...]) -> CopyTask:
    store, remote = cluster.store, remote_of(cluster)
    options = tuple(store.options.items())
    return CopyTask(
        local=store.url,
        remote=remote.url,
        options=options,
        directory=step.directory,
        segments=part,
        held=step.held,
        compression=step.compression,
    )
