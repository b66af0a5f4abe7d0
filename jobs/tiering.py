"""Tiered storage: old segments move to the remote root, and expired ones are deleted there (KIP-405).

A segment moves when it is older than `local.retention.ms`, or when the local log without it still has
`local.retention.bytes`, and when no merge is about to take it. Tasks copy; the driver commits: in the remote
tables, in the table over the topic there, and here. The order lets other programs join the two tables over a
topic: records leave the first root only after the one in the remote root has them. So all partitions of a
topic take each step together, with one fold.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from jobs.engine import JOB_BYTES, Engine, Failure
from jobs.outcome import GONE, OVERTAKEN, JobOutcome, reason
from jobs.rewrite_commit import still_there
from jobs.state import PartitionState, partition_of, remote_of
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.merge_plan import runs
from log_tables.cluster.topic_fold import fold_remote
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.limits import MIB
from log_tables.partition.tier import CopyTask, commit_copies, release, remove_expired, run_copy
from log_tables.table.first_segments import too_many, too_old
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table
from log_tables.task import batches


class Move(Protocol):
    """A step that moves `segments`, the first of a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def segments(self) -> tuple[Segment, ...]: ...


@dataclass(slots=True)
class _MoveState:
    """A move on its way: what was `copied` before `failed`, the tables, and what the commits took out."""

    step: Move
    copied: list[Segment] = field(default_factory=list)
    failed: str | None = None
    tables: tuple[Table, Table] | None = None
    moved: Sequence[Segment] = ()
    expired: Sequence[Segment] = ()

    def outcome(self, job: str, seconds: float) -> JobOutcome:
        step = self.step
        if self.failed is not None:
            return JobOutcome(
                job=job, topic=step.topic, partition=step.partition, seconds=seconds, error=self.failed
            )
        return JobOutcome(
            job=job,
            topic=step.topic,
            partition=step.partition,
            files_before=len(self.moved) + len(self.expired),
            files_after=len(self.moved),
            bytes_before=sum(segment.size for segment in (*self.moved, *self.expired)),
            bytes_after=sum(segment.size for segment in self.moved),
            records=sum(segment.records for segment in self.moved),
            seconds=seconds,
        )


def commit_moves(
    job: str,
    cluster: Cluster,
    made: Sequence[tuple[Move, Sequence[Sequence[Segment] | Failure]]],
    seconds: float,
) -> list[JobOutcome]:
    """Commit moves of partitions of one topic, each with what its tasks have copied; returns the outcomes.

    Where copying failed, what was copied before moves all the same: a long log gets on. One partition that
    fails does not keep the others.
    """
    moves = [_moving(step, results) for step, results in made]
    for move in moves:
        _commit_there(cluster, move)
    ends = _fold(cluster, [move for move in moves if move.tables is not None])
    for move in moves:
        _commit_here(cluster, move, ends.get(move.step.partition, 0))
    return [move.outcome(job, seconds) for move in moves]


def _moving(step: Move, results: Sequence[Sequence[Segment] | Failure]) -> _MoveState:
    move = _MoveState(step)
    for result in results:
        if isinstance(result, Failure):
            move.failed = str(result)
            break
        move.copied += result
    return move


def _commit_there(cluster: Cluster, move: _MoveState) -> None:
    step = move.step
    try:
        local = partition_of(cluster, step.topic, step.partition, step.directory).table
        local.refresh(wait=True)  # no table is created there for a topic that is gone
        remote = remote_of(cluster).make_table(step.directory)
        commit_copies(local, remote, move.copied)
        move.expired = remove_expired(remote, local.snapshot.log_start)
        remote.make_durable()
        move.tables = local, remote
    except LakelogError as error:
        move.failed = move.failed or reason(error)


def _fold(cluster: Cluster, moves: Sequence[_MoveState]) -> dict[int, int]:
    """The offsets up to which the table over the topic in the remote root has each partition."""
    snapshots: dict[int, Snapshot] = {m.step.partition: m.tables[1].snapshot for m in moves if m.tables}
    if not snapshots:
        return {}
    try:
        folded = fold_remote(remote_of(cluster), moves[0].step.directory.rsplit("/", 1)[0], snapshots)
    except LakelogError as error:
        said = reason(error)
        for move in moves:
            named = said if said == GONE else f"the table over the topic in the remote root: {said}"
            move.failed, move.tables = move.failed or named, None
        return {}
    return {number: folded.end(number) for number in snapshots}


def _commit_here(cluster: Cluster, move: _MoveState, end: int) -> None:
    if move.tables is None:
        return
    local, remote = move.tables
    try:
        move.moved = release(local, remote, move.copied, end)
        if move.failed is not None and not _stands(cluster, move):
            move.failed = OVERTAKEN
    except LakelogError as error:
        move.failed = move.failed or reason(error)


def _stands(cluster: Cluster, move: _MoveState) -> bool:
    """Whether the segments that were not copied are still in the partition."""
    step, end = move.step, move.copied[-1].last_offset if move.copied else -1
    left = [segment for segment in step.segments if segment.last_offset > end]
    return still_there(partition_of(cluster, step.topic, step.partition, step.directory).table, left)


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
