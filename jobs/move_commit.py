"""The commits of moves to the remote root: in the remote tables, in the table over the topic there, and here.

The order lets other programs join the two tables over a topic: records leave the first root only after the
one in the remote root has them. So all partitions of a topic take each step together, with one fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.engine import Failure
from jobs.outcome import GONE, OVERTAKEN, JobOutcome, reason
from jobs.rewrite_commit import still_there
from jobs.state import partition_of, remote_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold_remote
from log_tables.errors import LakelogError
from log_tables.partition.tier import commit_copies, release, remove_expired
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table


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
