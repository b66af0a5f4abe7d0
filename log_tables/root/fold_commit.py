"""The check of one commit of the table over a topic: what follows from its other actions is derived again."""

from collections.abc import Iterator

import msgspec

from log_tables.layout import PARTITION, TXN_DELETED
from log_tables.root.commit_replay import check_claims, check_info, check_remove
from log_tables.table.commit import RESTORE, VACUUM, Add, Commit
from log_tables.table.snapshot import segment_of
from log_tables.topic_table.topic_snapshot import (
    TopicSnapshot,
    end_txn,
    noted_txn,
    partition_of,
    target_txn,
)
from log_tables.topic_table.topic_table import REFOLD

_FOLDS = ("OPTIMIZE", "DELETE", "WRITE", RESTORE)
_CHANGES = {
    "OPTIMIZE": False,
    "DELETE": True,
    "WRITE": True,
    RESTORE: False,
    REFOLD: True,
    "CREATE TABLE": True,
    "ADD COLUMNS": True,
    VACUUM: True,
}
"""The `dataChange` of the files of each operation."""


def check_commit(before: TopicSnapshot, commit: Commit) -> Iterator[str]:
    """The problems of `commit`, which breaks no rule of the fold, after the table `before`."""
    name = commit.info.operation
    yield from check_info(commit.info)
    changes = {add.dataChange for add in commit.adds} | {remove.dataChange for remove in commit.removes}
    if name not in _CHANGES:
        yield f"it has the operation {name!r}, which the fold does not have"
        return
    if changes - {_CHANGES[name]}:
        yield f"{name} has files with dataChange {', '.join(map(str, changes))}"
    if (name in ("WRITE", RESTORE) and commit.removes) or (name == "ADD COLUMNS" and changes):
        yield f"{name} removes files, or has some"
    if (commit.metadata is not None) != (name in ("ADD COLUMNS", REFOLD)):
        yield f"{name} {'has' if commit.metadata is not None else 'lacks'} metaData"
    if commit.metadata is not None and name != REFOLD:
        was, now = map(msgspec.structs.asdict, (before.metadata, commit.metadata))
        yield from (
            f"{name} changes {each} of the table"
            for each in was
            if each != "schemaString" and was[each] != now[each]
        )
    if name in _FOLDS and not any(txn.app_id == TXN_DELETED for txn in commit.txns):
        yield from _folded(commit)
    for txn in commit.txns:
        if txn.last_updated is not None or txn.version < -1:
            yield f"it sets {txn.app_id} to {txn.version}, with lastUpdated {txn.last_updated}"
    yield from _files(before, commit)


def _folded(commit: Commit) -> Iterator[str]:
    """Each commit says which version of a partition it folds, and how far the files are that it appends."""
    said = {txn.app_id: txn.version for txn in commit.txns}
    ends = dict[int, int]()
    for add in commit.adds if commit.info.operation == "WRITE" else ():
        number, _ = partition_of(add.path)
        ends[number] = max(ends.get(number, 0), segment_of(own(add)).last_offset + 1)
    paths = [add.path for add in commit.adds] + [remove.path for remove in commit.removes]
    touched = {partition_of(path)[0] for path in paths}
    for number in sorted(touched):
        target, noted = said.get(target_txn(number)), said.get(noted_txn(number))
        end = said.get(end_txn(number))
        if commit.info.operation != "WRITE" and (noted is None) != (end is None):
            yield f"it notes version {noted} of partition {number}, with the end {end}"
        if target is None or noted not in (None, target):
            yield f"it folds version {target} of partition {number}, and notes {noted}"
        # Behind the records of a copied log may be a gap: where it ends, the noted version says.
        ends_behind = noted is not None and end is not None and end > ends.get(number, end)
        if number in ends and end != ends[number] and not ends_behind:
            yield f"it sets {end_txn(number)} to {end}, and the files that it adds end at {ends[number]}"
    known = {name(number) for number in touched for name in (target_txn, noted_txn, end_txn)}
    for app_id in sorted({*said} - known):
        yield f"it sets {app_id}, and has no file of that partition"


def _files(before: TopicSnapshot, commit: Commit) -> Iterator[str]:
    for add in commit.adds:
        yield from check_claims(add)
    for remove in commit.removes:
        number, name = partition_of(remove.path)
        if remove.partitionValues != {PARTITION: str(number)}:
            yield f"the remove of {remove.path} has the partition values {remove.partitionValues}"
        item = next((item for item in before.of(number) if item.path == name), None)
        yield from check_remove(remove, item)


def own(add: Add) -> Add:
    """`add` as the partition's own table has it. Raises CorruptLog."""
    return msgspec.structs.replace(add, path=partition_of(add.path)[1])
