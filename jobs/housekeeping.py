"""Housekeeping: due checkpoints, and the deletion of expired logs and unreferenced files.

A gateway writes the checkpoints of the partitions that it leads; other partitions get them here.
log_tables/table/vacuum.py selects the files that may go, and log_tables/segments/staging.py the staged ones.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from jobs.engine import Engine
from jobs.outcome import JobOutcome, reason
from jobs.state import (
    OPENED_AT_ONCE,
    PartitionState,
    held_by_topic,
    partition_of,
    remote_of,
    table_of,
)
from log_tables.clock import timer
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import pending_files
from log_tables.counts import counted
from log_tables.errors import LakelogError, StoreFull
from log_tables.layout import CLUSTER_METADATA, CONSUMER_OFFSETS
from log_tables.limits import (
    CHECKPOINT_INTERVAL_COMMITS,
    REPLACED_FILE_RETENTION_MS,
    TEMPORARY_MAX_AGE_MS,
    TIDY_TOMBSTONES,
)
from log_tables.segments import staging
from log_tables.store.objects import ObjectInfo
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, outrun_sleepers, vacuum

NAME = "housekeeping"

TIDY_INTERVAL_MS = 60 * 60 * 1000
"""How often a scheduler lists the files of a table: a file may go when it is an hour old, at the earliest.
A table that has lost many (TIDY_TOMBSTONES) is listed by each run: they would pile up meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyStep:
    """Tidy up a table of a partition, the remote one if `remote`. With `clean` its log and its files are
    cleaned; files that a merge or a compaction replaced stay for `replaced_file_ms`.
    """

    topic: str
    partition: int
    directory: str
    remote: bool
    checkpoint: bool
    clean: bool
    replaced_file_ms: int = REPLACED_FILE_RETENTION_MS

    @property
    def offsets(self) -> None:
        """None: it changes no segment."""
        return None

    def __str__(self) -> str:
        what = ["write a checkpoint"] if self.checkpoint else []
        what += ["clean the log and vacuum"] if self.clean else []
        return " and ".join(what) + (" (remote)" if self.remote else "")


def plan(
    states: Sequence[PartitionState],
    now_ms: int,
    checkpoint_interval_commits: int = CHECKPOINT_INTERVAL_COMMITS,
    tidy_tombstones: int = TIDY_TOMBSTONES,
) -> tuple[TidyStep, ...]:
    """The due steps; `now_ms` is milliseconds since 1970."""
    limits = checkpoint_interval_commits, tidy_tombstones
    return tuple(step for state in states for step in _steps(state, now_ms, *limits))


def _steps(
    state: PartitionState, now_ms: int, checkpoint_interval_commits: int, tidy_tombstones: int
) -> Iterator[TidyStep]:
    clean = state.tidied_ms is None or abs(now_ms - state.tidied_ms) >= TIDY_INTERVAL_MS
    clean = clean or state.snapshot.tombstones.count_replaced() >= tidy_tombstones
    checkpoint = state.snapshot.version - state.checkpointed >= checkpoint_interval_commits
    step = partial(
        TidyStep,
        topic=state.topic,
        partition=state.partition,
        directory=state.directory,
        clean=clean,
        replaced_file_ms=state.config.replaced_file_ms,
    )
    if checkpoint or clean:
        yield step(remote=False, checkpoint=checkpoint)
    if state.remote is not None and clean:
        # It gets few commits, and every run opens it.
        yield step(remote=True, checkpoint=state.remote.version > state.remote_checkpointed)


def run(_: Engine, cluster: Cluster, steps: Sequence[TidyStep]) -> Iterator[JobOutcome]:
    """Do `steps` at once; then remove the files of deleted topics and of killed puts, and staged files of
    transactions that were never committed.
    """
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        yield from (outcome for outcome in pool.map(lambda step: _tidy(cluster, step), steps) if outcome)
    if any(step.clean for step in steps):
        yield from _sweep(cluster, any(step.clean and step.remote for step in steps))


def _sweep(cluster: Cluster, remote: bool) -> Iterator[JobOutcome]:
    """The outcome for the root, with the number of deleted staged files; it names the metadata log."""
    started = timer()
    try:
        cluster.store.remove_temporaries(TEMPORARY_MAX_AGE_MS)
        sweep(cluster)
        staged = _vacuum_staged(cluster)
        if staged:
            size = sum(file.size for file in staged)
            seconds = timer() - started
            yield JobOutcome(
                job=NAME,
                topic=CLUSTER_METADATA,
                partition=0,
                files_before=len(staged),
                files_after=0,
                bytes_before=size,
                seconds=seconds,
            )
        if remote:
            remote_of(cluster).store.remove_temporaries(TEMPORARY_MAX_AGE_MS)
    except LakelogError as error:
        yield JobOutcome(
            job=NAME, topic=CLUSTER_METADATA, partition=0, seconds=timer() - started, error=error.message
        )


def _vacuum_staged(cluster: Cluster, dry_run: bool = False) -> list[ObjectInfo]:
    """Delete the staged files that are old and that no transaction needs; returns them."""
    old = staging.old_files(cluster.store)
    if not old:
        return []  # the groups need not be read
    # After the files are listed: what becomes old later may be named later, too.
    cluster.refresh(wait=True)
    groups = cluster.cached_topic(CONSUMER_OFFSETS)
    partitions = [] if groups is None else groups.partitions()
    for partition in partitions:
        partition.refresh(wait=True)
        if not dry_run:
            # A gateway that sleeps before the put of an intent finds it too old when it is built again; and
            # a power cut must not restore an intent whose files are gone.
            outrun_sleepers(partition.table)
    named = pending_files(partitions)
    unnamed = [file for file in old if file.path not in named]
    if not dry_run:
        cluster.store.delete_objects([file.path for file in unnamed])
    return unnamed


def _tidy(cluster: Cluster, step: TidyStep) -> JobOutcome | None:
    """The outcome of `step`; None when there was nothing to do."""
    started = timer()
    try:
        partition = partition_of(cluster, step.topic, step.partition, step.directory)
        table = _table(cluster, step)
        checkpoint = partial(table.checkpoint, partition.config.producer_expiration_ms)
        is_checkpointed = step.checkpoint and _with_room(checkpoint, step.clean)
        cleaned = table.delete_expired_log() if step.clean else 0
        swept = _vacuum(cluster, step, table) if step.clean else None
        if step.checkpoint and not is_checkpointed:
            checkpoint()
    except LakelogError as error:
        return JobOutcome(
            job=NAME,
            topic=step.topic,
            partition=step.partition,
            seconds=timer() - started,
            error=reason(error),
        )
    deleted, size = (0, 0) if swept is None else (swept.deleted, swept.deleted_bytes)
    if not (step.checkpoint or cleaned or deleted):
        return None
    return JobOutcome(
        job=NAME,
        topic=step.topic,
        partition=step.partition,
        files_before=cleaned + deleted,
        files_after=int(step.checkpoint),
        bytes_before=size,
        seconds=timer() - started,
    )


def _with_room(write: Callable[[], None], makes_room: bool) -> bool:
    """Do `write`, unless there is no room for it and what follows `makes_room`; returns whether it did."""
    try:
        write()
    except StoreFull:
        if not makes_room:
            raise
        return False
    return True


def preview(cluster: Cluster, step: TidyStep) -> str | None:
    """A sentence on what `step` would do, by a look at the table; None for nothing.

    Raises what opening and listing the table raise.
    """
    if not step.clean:
        return str(step)
    table = _table(cluster, step)
    found = _vacuum(cluster, step, table, dry_run=True)
    commits = table.delete_expired_log(dry_run=True)
    of_root = step.topic == CLUSTER_METADATA and not step.remote
    staged = _vacuum_staged(cluster, dry_run=True) if of_root else []
    if not (step.checkpoint or commits or found.deleted or found.marked or found.waiting or staged):
        return None
    size = sum(file.size for file in staged)
    return (
        f"{step}: {counted(commits, 'file')} of the log, {counted(found.deleted, 'unreferenced file')} "
        f"({found.deleted_bytes:,} bytes); mark {found.marked}, {found.waiting} are waiting"
        + (f"; {counted(len(staged), 'staged file')} ({size:,} bytes)" if staged else "")
    )


def _vacuum(cluster: Cluster, step: TidyStep, table: Table, dry_run: bool = False) -> VacuumResult:
    held = held_by_topic(cluster, step.topic, step.partition, step.remote)
    return vacuum(table, dry_run, replaced_ms=step.replaced_file_ms, held=held)


def _table(cluster: Cluster, step: TidyStep) -> Table:
    return table_of(cluster, step.topic, step.partition, step.directory, step.remote)
