"""The table over a topic: the segments of all its partitions as one Delta table, which no data is copied for.

Any process may fold, at any time, and is killed at any point: the table says itself how far it is, and put if
absent decides between two. After another tool has committed to it, or its log was lost, it begins again.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.columns.declaration import Declaration
from log_tables.errors import AlreadyExists, CorruptLog, TopicDeleted
from log_tables.layout import (
    PARTITION,
    PROPERTY_FILE_RETENTION,
    TXN_DELETED,
    commit_version,
    log_directory,
)
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, FOLD_ACTIONS_MAX, TOPIC_LOG_RETENTION_MS
from log_tables.record import delta_schema
from log_tables.store.store import Store
from log_tables.table.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from log_tables.table.commit import (
    RESTORE,
    VACUUM,
    Add,
    Commit,
    Metadata,
    Remove,
    Txn,
    put_commit,
    read_commit,
)
from log_tables.table.delta_log import DeltaLog, commit_info, new_table_id
from log_tables.table.invariant import FOREIGN, Violation, foreign_commit, is_harmless, is_ours
from log_tables.table.snapshot import Snapshot
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns
from log_tables.topic_table.fold import broken_fold, plan
from log_tables.topic_table.topic_snapshot import (
    PROTOCOL,
    TopicSnapshot,
    check_supported,
    first_folded,
    from_checkpoint,
    is_noted_txn,
    remove_of,
)

_REMEDY = "make the table again with `lakelog root refold`"
FILES_OF_A_COMMIT = 100
"""Files of the table for each commit between two checkpoints: writing 100,000 takes 1.7 s of the machine."""

_NEVER = "interval 5200 weeks"
"""Another tool's VACUUM deletes nothing that is younger: its files are the partitions' own."""


def create_topic_table(
    store: Store, directory: str, clock: Clock, configuration: Mapping[str, str] | None = None
) -> None:
    """Commit version 0 of an empty table over the topic at `directory`.

    It has the properties of `configuration`, too. Raises AlreadyExists when there is a table, which is then
    durable; StoreUnavailable.
    """
    metadata = new_metadata(clock, configuration)
    commit = Commit(commit_info(clock, "CREATE TABLE"), protocol=PROTOCOL, metadata=metadata)
    if put_commit(store, directory, 0, commit, clock) is not None:
        store.make_durable(log_directory(directory))
        raise AlreadyExists(f"there is a table at {directory} already; choose another directory")


def new_metadata(clock: Clock, configuration: Mapping[str, str] | None = None) -> Metadata:
    """The metadata of a new table, with the properties of `configuration`, too."""
    return Metadata(
        id=new_table_id(clock),
        schemaString=delta_schema(partitioned=True),
        partitionColumns=(PARTITION,),
        configuration={**properties(), **(configuration or {})},
        createdTime=clock.now_ms(),
    )


def properties() -> dict[str, str]:
    """The properties of every table over a topic."""
    return {
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL_COMMITS),
        "delta.logRetentionDuration": f"interval {TOPIC_LOG_RETENTION_MS // 3_600_000} hours",
        PROPERTY_FILE_RETENTION: _NEVER,
        "delta.enableExpiredLogCleanup": "false",
    }


class TopicTable(DeltaLog[TopicSnapshot]):
    """The table of a topic. It is at the directory of the topic."""

    remedy = _REMEDY

    def _first(self, commit: Commit) -> TopicSnapshot:
        return first_folded(commit, self.directory)

    def _from_checkpoint(self, checkpoint: Checkpoint) -> TopicSnapshot:
        return from_checkpoint(checkpoint)

    def _check_supported(self, state: TopicSnapshot) -> None:
        check_supported(self.directory, state)

    def _classify(self, before: TopicSnapshot, commit: Commit) -> tuple[TopicSnapshot, bool]:
        return classify_fold(self.directory, before, commit), True

    def _broken(self, before: TopicSnapshot, commit: Commit, after: TopicSnapshot) -> Violation:
        return broken_fold(before, commit, after)

    def fold(self, partitions: Mapping[int, Snapshot], most: int = FOLD_ACTIONS_MAX) -> int:
        """Bring the table to the durable snapshots `partitions`, by number; returns how many commits it took.

        It stops early, without harm, when another process folds too. A partition that is folded further
        already is left as it is. Raises StoreUnavailable, OutcomeUnknown, ForeignCommit, TopicDeleted.
        """
        state = self.refresh(wait=True)
        made = self._widen(partitions.values())
        state = self.snapshot
        for step in plan(state, partitions, most):
            expected = state.version
            info = commit_info(self.clock, step.kind.value)
            if self.transact(_at(expected, step.commit(info))) is None:
                break
            state = self.snapshot
            made += 1
        return made

    def _widen(self, partitions: Iterable[Snapshot]) -> int:
        """Let the table have the declared columns of `partitions`, too; returns how many commits it took."""
        info = commit_info(self.clock, "ADD COLUMNS")

        def build(state: TopicSnapshot) -> Commit | None:
            grown = _grown(state, partitions)
            if grown == state.declared:
                return None
            schema = delta_schema(partitioned=True, declared=grown.fields())
            return Commit(info, metadata=replace(state.metadata, schemaString=schema))

        if _grown(self.snapshot, partitions) == self.snapshot.declared:
            return 0
        return int(self.transact(build) is not None)

    def end(self, number: int = 1) -> None:
        """Remove every file from the table: its topic was deleted, for the time `number`. Raises as `fold`
        does.
        """
        info, mark = commit_info(self.clock, "DELETE"), 2 * number - 1

        def build(state: TopicSnapshot) -> Commit | None:
            if state.deletions >= mark:
                return None
            removes = [
                remove_of(partition, segment, info.timestamp, data_change=True)
                for partition, segments in sorted(state.segments.items())
                for segment in segments
            ]
            return Commit(info, txns=(Txn(TXN_DELETED, mark),), removes=tuple(removes))

        self.transact(build, ended=True)

    def revive(self, number: int) -> bool:
        """Let the table go on, whose topic is back after its deletion `number`: folds then fill it. Returns
        False when it did before. Raises as `fold` does.
        """
        info, mark = commit_info(self.clock, RESTORE), 2 * number

        def build(state: TopicSnapshot) -> Commit | None:
            return Commit(info, txns=(Txn(TXN_DELETED, mark),)) if state.deletions < mark else None

        with suppress(TopicDeleted):
            self.refresh(wait=True)
        return self.transact(build, ended=True) is not None

    def checkpoint_is_due(self) -> bool:
        """Whether a checkpoint is worth its cost, which grows with the files that it names."""
        files = sum(len(segments) for segments in self.snapshot.segments.values())
        return self.checkpoint_due(max(CHECKPOINT_INTERVAL_COMMITS, files // FILES_OF_A_COMMIT))

    def clean(self) -> int:
        """Delete the log as far as it is old; returns how many files. Delta's streams resume in the rest."""
        return self.delete_expired_log(retention_ms=TOPIC_LOG_RETENTION_MS)


def _grown(state: TopicSnapshot, partitions: Iterable[Snapshot]) -> Declaration:
    grown = state.declared
    for snapshot in partitions:
        grown = grown.joined(snapshot.declared)
    return grown


def _at(version: int, commit: Commit) -> Callable[[TopicSnapshot], Commit | None]:
    """`commit` if the table is at `version`, otherwise nothing: it was made for that one."""
    return lambda state: commit if state.version == version else None


def classify_fold(table: str, before: TopicSnapshot, commit: Commit) -> TopicSnapshot:
    """The state after `commit` of another process. Raises ForeignCommit when it may not follow `before`."""
    if is_harmless(commit) and (not is_ours(commit) or commit.info.operation == VACUUM):
        return before.apply(commit)
    after = before.apply(commit) if is_ours(commit) else None
    reason = FOREIGN if after is None else broken_fold(before, commit, after)
    if after is None or reason is not None:
        raise foreign_commit(table, before.version + 1, commit, reason or FOREIGN, _REMEDY)
    return after


REFOLD = "REFOLD"
"""The operation of the commit that begins the table again."""


def refold(
    store: Store, directory: str, clock: Clock, configuration: Mapping[str, str] | None = None
) -> None:
    """Begin the table over the topic at `directory` again, empty and under a new id; folds then fill it.

    One commit takes out all that its log has named, whoever named it. Streams of other engines over the table
    refuse the new id. Commits that are missing or cannot be read are left out. The table has the properties
    of `configuration`, too. Raises StoreUnavailable.
    """
    while True:
        found = _log(store, directory)
        if found is None:
            with suppress(AlreadyExists):
                create_topic_table(store, directory, clock, configuration)
            return
        info, metadata = commit_info(clock, REFOLD), new_metadata(clock, configuration)
        txns = tuple(Txn(name, -1 if is_noted_txn(name) else 0) for name in sorted(found.txns))
        removes = tuple(
            Remove(add.path, True, info.timestamp, add.size, True, add.partitionValues)
            for add in found.adds.values()
        )
        commit = Commit(info, txns, removes=removes, protocol=PROTOCOL, metadata=metadata)
        if put_commit(store, directory, found.version + 1, commit, clock) is None:
            # Our own processes open the table here, and read nothing of what was before.
            write_checkpoint(
                store,
                directory,
                Checkpoint(found.version + 1, PROTOCOL, metadata, Txns(txns), (), Tombstones()),
            )
            return


@dataclass(slots=True)
class _Log:
    """The files and the txns that a log names at `version`."""

    version: int = -1
    adds: dict[str, Add] = field(default_factory=dict)
    txns: set[str] = field(default_factory=set)


def _log(store: Store, directory: str) -> _Log | None:
    """The content of the log by its actions alone, whatever they break; None without a log."""
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    commits = [version for version in map(commit_version, paths) if version is not None]
    if not commits:
        return None
    named, start = _Log(), None
    with suppress(CorruptLog):
        start = newest_checkpoint(store, directory)
    if start is not None:
        named = _Log(start.version, {add.path: add for add in start.adds}, {*start.txns})
    while named.version < max(commits):
        named.version += 1
        commit = None
        with suppress(CorruptLog):
            commit = read_commit(store, directory, named.version)
        if commit is None:
            continue  # no reader gets past it, but for those who begin at the checkpoint of the refold
        for remove in commit.removes:
            named.adds.pop(remove.path, None)
        named.adds |= {add.path: add for add in commit.adds}
        named.txns |= {txn.app_id for txn in commit.txns}
    return named
