"""The table of one partition: the log of docs/FORMAT.md over its snapshots."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from log_tables.clock import Backoff, Clock
from log_tables.columns.declaration import NOTHING, Declaration
from log_tables.errors import AlreadyExists, begun
from log_tables.layout import (
    PROPERTY_FILE_RETENTION,
    TXN_HIGH_WATERMARK,
    TXN_LEADER,
    TXN_LOG_START,
    log_directory,
)
from log_tables.limits import (
    CHECKPOINT_INTERVAL_COMMITS,
    FILE_RETENTION_MS,
    LOG_RETENTION_MS,
    OFFER_MAX_AGE_MS,
    OFFERED_AFTER,
)
from log_tables.record import delta_schema
from log_tables.store.store import Store
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.commit import Commit, Metadata, Protocol, Txn, put_commit
from log_tables.table.delta_log import DeltaLog, commit_info, new_table_id
from log_tables.table.invariant import CommitKind, Violation, broken_step, followed
from log_tables.table.offer import fits, is_offerable, put_offer, read_offer, withdraw_offer
from log_tables.table.snapshot import (
    READER_VERSION,
    WRITER_VERSION,
    Snapshot,
    check_supported,
    first_snapshot,
    from_checkpoint,
)

_RACES = Backoff(0.02, max_s=0.5)
"""Pauses of a commit that is offered, between its own attempts: it may be that nobody leads."""


def create_table(
    store: Store,
    directory: str,
    clock: Clock,
    configuration: dict[str, str] | None = None,
    columns: Declaration = NOTHING,
) -> None:
    """Commit version 0 of an empty log at `directory`, with the declared `columns`.

    Raises AlreadyExists when there is a table, which is then durable; StoreUnavailable.
    """
    now_ms = clock.now_ms()
    metadata = Metadata(
        id=new_table_id(clock),
        schemaString=delta_schema(declared=columns.fields()),
        configuration={
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL_COMMITS),
            "delta.logRetentionDuration": f"interval {LOG_RETENTION_MS // 3_600_000} hours",
            PROPERTY_FILE_RETENTION: f"interval {FILE_RETENTION_MS // 3_600_000} hours",
            # Another tool that writes a checkpoint must not delete commits on which fencing relies.
            "delta.enableExpiredLogCleanup": "false",
            **(configuration or {}),
        },
        createdTime=now_ms,
    )
    commit = Commit(
        info=commit_info(clock, "CREATE TABLE"),
        protocol=Protocol(READER_VERSION, WRITER_VERSION),
        metadata=metadata,
        txns=tuple(Txn(app_id, 0) for app_id in (TXN_HIGH_WATERMARK, TXN_LOG_START, TXN_LEADER)),
    )
    if put_commit(store, directory, 0, commit, clock) is not None:
        store.make_durable(log_directory(directory))
        raise AlreadyExists(f"there is a table at {directory} already; choose another directory")


class Table(DeltaLog[Snapshot]):
    """The Delta table of a partition."""

    def _first(self, commit: Commit) -> Snapshot:
        return first_snapshot(commit, self.directory)

    def _from_checkpoint(self, checkpoint: Checkpoint) -> Snapshot:
        return from_checkpoint(checkpoint)

    def _check_supported(self, state: Snapshot) -> None:
        check_supported(self.directory, state)

    def _classify(self, before: Snapshot, commit: Commit) -> tuple[Snapshot, bool]:
        after, kind = followed(self.directory, before, commit)
        # An append and a claim change none of the files that were there, so they spoil no maintenance. An
        # append is built again all the same: it begins at the high watermark.
        return after, kind not in (CommitKind.APPEND, CommitKind.CLAIM)

    def _broken(self, before: Snapshot, commit: Commit, after: Snapshot) -> Violation:
        return broken_step(before, commit, after)

    @contextmanager
    def _waiting(self) -> Iterator[Callable[[Commit], bool]]:
        """After some lost races the commit is offered to the leader, and withdrawn in the end."""
        times, pause_s, offered = 0, _RACES.first_s, False

        with ExitStack() as stack:

            def lost(commit: Commit) -> bool:
                nonlocal times, pause_s, offered
                times += 1
                if times >= OFFERED_AFTER and is_offerable(self._snapshot, commit):
                    made = put_offer(self.store, self.directory, self._snapshot, commit)
                    if made and not offered:
                        stack.callback(withdraw_offer, self.store, self.directory)
                        stack.enter_context(begun(f"a commit was offered to the leader of {self.directory}"))
                    offered = offered or made
                    self._pause(pause_s)
                    pause_s = _RACES.after(pause_s)
                return offered

            yield lost

    def take_offer(self, may_commit: Callable[[Snapshot], bool]) -> Commit | None:
        """Commit what another process offers, if the table is still as that needs it; for a leader, which
        `may_commit` as long as it leads. Returns the commit; the offer is gone then, taken or not.

        Raises CorruptLog for an offer that would break an invariant, and as `transact`.
        """
        read_at = self.clock.boottime()
        try:
            offer = read_offer(self.store, self.directory, self._snapshot)

            def build(snapshot: Snapshot) -> Commit | None:
                # Before each put: a leader that slept must not bring back files that were vacuumed since.
                fresh = (self.clock.boottime() - read_at) * 1000 < OFFER_MAX_AGE_MS
                return (
                    offer
                    if offer is not None and fresh and may_commit(snapshot) and fits(offer, snapshot)
                    else None
                )

            return None if offer is None else self.transact(build)
        finally:
            withdraw_offer(self.store, self.directory)

    def widen(self, columns: Declaration) -> None:
        """Let the table have the declared `columns`, too; no commit if it has them. Raises as `transact`."""
        info = commit_info(self.clock, "ADD COLUMNS")

        def build(snapshot: Snapshot) -> Commit | None:
            grown = snapshot.declared.joined(columns)
            if grown == snapshot.declared:
                return None
            schema = delta_schema(declared=grown.fields())
            return Commit(info, metadata=replace(snapshot.metadata, schemaString=schema))

        if self.snapshot.declared.joined(columns) != self.snapshot.declared:
            self.transact(build)

    def make_durable_below(self, end: int) -> None:
        """Make the log below offset `end` durable, which this process may not have read yet.

        Costs nothing and waits for no commit if it is known to be durable; one read of the log if `end` is
        beyond the snapshot. Raises StoreUnavailable, Damaged.
        """
        if end <= (0 if self._durable is None else self._durable.high_watermark):
            return
        with self._lock:
            if end > self._snapshot.high_watermark:
                self._look()
            self.make_durable()
