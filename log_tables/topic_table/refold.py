"""Beginning the table over a topic again, after another tool has committed to it, or its log was lost."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from log_tables.clock import Clock
from log_tables.errors import AlreadyExists, CorruptLog
from log_tables.layout import commit_version, log_directory
from log_tables.store.store import Store
from log_tables.table.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from log_tables.table.commit import Add, Commit, Remove, Txn, put_commit, read_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns
from log_tables.topic_table.topic_snapshot import PROTOCOL, is_noted_txn
from log_tables.topic_table.topic_table import create_topic_table, new_metadata

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
