"""The deletion of files that a table no longer refers to, in two runs at least an hour apart.

The first run marks: it notes the names of unreferenced files in a ledger, an object in the table's directory.
A later run deletes them, an hour after that if the table still has their offsets, as after a merge: its
readers go on in the file that replaced them. Files of records that were deleted or moved stay for 24 hours.
Only the store's clock counts, which stamps files and ledgers alike, so a file is unreferenced for that long
whatever the clocks of the machines say.

A mark is a new object, and before files are deleted comes a commit. A disk that is full to its last byte has
room for neither. Then those files are deleted which a commit that is there already allows to be deleted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from log_tables.counts import counted
from log_tables.errors import (
    AlreadyExists,
    Conflict,
    CorruptLog,
    InvalidArgument,
    ObjectMissing,
    StoreFull,
    begun,
)
from log_tables.layout import (
    PROPERTY_FILE_RETENTION,
    commit_path,
    is_ledger,
    ledger_path,
    segment_base_offset,
    vacuum_directory,
)
from log_tables.limits import (
    CONFIRMATION_MAX_AGE_S,
    FILE_RETENTION_MS,
    KIB,
    LEDGER_NAMES_MAX,
    REPLACED_FILE_RETENTION_MS,
    VACUUM_MARK_AGE_MS,
)
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Store
from log_tables.table.commit import VACUUM, Commit
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table

_UNIT_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_INTERVAL = re.compile(rf"(?:interval\s+)?(\d+)\s+({'|'.join(_UNIT_MS)})s?", re.IGNORECASE)
SPARED_MS = 2 * CONFIRMATION_MAX_AGE_S * 1000
"""A file that is due earlier is not brought back."""

_COMMIT_BYTES = 64 * KIB
"""More than a commit without files takes of a disk, with its temporary name and the blocks of directories."""

_Ledger = tuple[ObjectInfo, bool, Sequence[str]]
_names_decoder = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The result of a vacuum, or of a dry run: files that it marked, files that were marked before and are
    not due yet, and files that it deleted, with their bytes.
    """

    marked: int
    waiting: int
    deleted: int
    deleted_bytes: int


@dataclass(slots=True)
class _Found:
    """The unreferenced files of a table: names to mark, of files that were replaced and of others, the
    number of marked ones that wait, due ones by size, the due ledgers with their times by the store's clock,
    in milliseconds, and ledgers that count no more.
    """

    began_ms: int
    replaced: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    waiting: int = 0
    due: dict[str, int] = field(default_factory=dict)
    due_ledgers: dict[str, int] = field(default_factory=dict)
    void_ledgers: list[str] = field(default_factory=list)


def vacuum(
    table: Table,
    dry_run: bool = False,
    ledger_names_max: int = LEDGER_NAMES_MAX,
    replaced_ms: int = REPLACED_FILE_RETENTION_MS,
    held: Callable[[], Collection[str]] = frozenset,
) -> VacuumResult:
    """Mark the unreferenced files of `table`, and delete those whose mark is old enough.

    It touches only segment files below the high watermark. Files that others replaced are deleted
    `replaced_ms` after they were marked. With `dry_run` nothing is changed. A ledger has at most
    `ledger_names_max` names, and so many files are deleted between two looks at the table. It may be killed
    at any point, and run at the same time as another vacuum. `held` gives the files that another table over
    the same directory still names; they count as referenced. Raises StoreFull where a disk has no room for
    what must be written before more is deleted, StoreUnavailable, OutcomeUnknown, ForeignCommit;
    InvalidArgument, CorruptLog for a property or a ledger that cannot be read.
    """
    found = _look(table, max(replaced_ms, REPLACED_FILE_RETENTION_MS), held)
    if dry_run:
        deleted = list(found.due)
    else:
        is_marked = _mark_where_there_is_room(table, found, ledger_names_max)
        deleted = _delete_due(table, found, ledger_names_max, held)
        if not is_marked:
            with begun(f"{counted(len(deleted), 'file')} of {table.directory} were deleted"):
                _mark(table, found, ledger_names_max)
    size = sum(found.due[name] for name in deleted)
    return VacuumResult(len(found.replaced) + len(found.others), found.waiting, len(deleted), size)


def retention_ms(snapshot: Snapshot) -> int:
    """How long a file of deleted records stays after it was marked: as the table says, and at least a day.

    Raises InvalidArgument.
    """
    text = snapshot.metadata.configuration.get(PROPERTY_FILE_RETENTION)
    if text is None:
        return FILE_RETENTION_MS
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(
            f"the table property {PROPERTY_FILE_RETENTION} is {text!r}; set it to `interval 24 hours` or more"
        )
    return max(FILE_RETENTION_MS, int(match[1]) * _UNIT_MS[match[2].lower()])


def _look(table: Table, replaced_ms: int, held: Callable[[], Collection[str]]) -> _Found:
    # In this order: a file that is committed after the log was read was put less than REWRITE_MAX_AGE_MS
    # before, and so is too young for a mark, however long the listing takes.
    found = _Found(table.store.now_ms())
    snapshot = table.refresh(wait=True)
    begin = max(snapshot.log_start, snapshot.tiered)
    ledgers = [*_ledgers(table, found, replaced_ms, max(replaced_ms, retention_ms(snapshot)))]
    live = {*(segment.path for segment in snapshot.segments), *held()}
    due, waiting = _marked(found, ledgers, live)
    gone = {*snapshot.tombstones}
    prefix = f"{table.directory}/"
    for item in table.store.list(prefix):
        name = item.path[len(prefix) :]
        base = segment_base_offset(name)
        if base is None or "/" in name or base >= snapshot.high_watermark or name in live:
            continue
        if name in due:
            found.due[name] = item.size
        elif name in waiting:
            found.waiting += 1
        # No rewrite can be about to commit what a commit has removed.
        elif name in gone or item.modified_ms < found.began_ms - VACUUM_MARK_AGE_MS:
            (found.replaced if base >= begin else found.others).append(name)
    return found


def _ledgers(table: Table, found: _Found, replaced_ms: int, kept_ms: int) -> Iterator[_Ledger]:
    """The ledgers, whether each is due, and the names in it."""
    for item in table.store.list(f"{vacuum_directory(table.directory)}/"):
        if not is_ledger(item.path):
            continue
        with suppress(ObjectMissing):  # another vacuum has just deleted it
            # Older, not as old: some stores stamp whole seconds.
            stay_ms = replaced_ms if is_ledger(item.path, replaced=True) else kept_ms
            old = item.modified_ms < found.began_ms - stay_ms
            yield item, old, _names(table.store, item.path)


def _marked(found: _Found, ledgers: Iterable[_Ledger], live: Collection[str]) -> tuple[set[str], set[str]]:
    """The names in the ledgers that are due, and in the others; notes these ledgers in `found`.

    One that names a file of the table is void: a restore brought that back at the time of the mark, and its
    records may be deleted again, for a day from then on. The rest of its files are marked once more.
    """
    due, waiting = set[str](), set[str]()
    for item, old, names in ledgers:
        if any(name in live for name in names):
            found.void_ledgers.append(item.path)
            continue
        (due if old else waiting).update(names)
        if old:
            found.due_ledgers[item.path] = item.modified_ms
    return due, waiting


def _names(store: Store, ledger: str) -> list[str]:
    try:
        return _names_decoder.decode(store.get(ledger))
    except msgspec.MsgspecError as error:
        raise CorruptLog(
            f"the ledger {ledger} is not a list of file names ({error}); delete it, and its files "
            "are marked again"
        ) from None


def _mark(table: Table, found: _Found, most: int) -> None:
    if found.replaced or found.others:
        table.make_durable()  # a power cut that brings a file back into the table must not leave its mark
    parts = [(names, True) for names in _parts(found.replaced, most)]
    parts += [(names, False) for names in _parts(found.others, most)]
    for names, replaced in parts:
        path = ledger_path(table.directory, found.began_ms, table.clock.random_hex(8), replaced)
        # A store that repeated the put says that it exists; if it does not, the next vacuum marks again.
        with suppress(AlreadyExists):
            table.store.put_if_absent(path, msgspec.json.encode(names))
    for path in found.void_ledgers:
        table.store.delete(path)


def _mark_where_there_is_room(table: Table, found: _Found, most: int) -> bool:
    """Mark, unless there is no room for it and files are due, which make some; returns whether it did."""
    try:
        _mark(table, found, most)
    except StoreFull:
        if not found.due:
            raise
        return False
    return True


def _delete_due(table: Table, found: _Found, most: int, held: Callable[[], Collection[str]]) -> list[str]:
    """Delete the due files that are still unreferenced, and their ledgers; returns the names of the files."""
    deleted: list[str] = []
    if found.due:
        _outrun_due(table, found)
    for names in _parts(list(found.due), most):
        live = {*(segment.path for segment in table.refresh(wait=True).segments), *held()}
        gone = [name for name in names if name not in live]
        table.store.delete_objects([f"{table.directory}/{name}" for name in gone])
        deleted += gone
    for path in found.due_ledgers:
        table.store.delete(path)
    return deleted


def _outrun_due(table: Table, found: _Found) -> None:
    """`outrun_sleepers`: a rewrite that is built again since the marks is too old. Without room for a commit
    only those files stay due which an earlier one allows to delete.

    That one is an hour younger than their mark: what a rewrite or a restore has looked at before, it has put
    half an hour later, or not at all. Raises StoreFull where there are no such files.
    """
    try:
        outrun_sleepers(table)
    except StoreFull as error:
        newest_ms = table.store.head(commit_path(table.directory, table.snapshot.version)).modified_ms
        outrun = {path: ms for path, ms in found.due_ledgers.items() if ms + SPARED_MS < newest_ms}
        names = {name for path in outrun for name in _names(table.store, path)}
        due = {name: size for name, size in found.due.items() if name in names}
        if not due:
            raise StoreFull(
                f"{counted(len(found.due), 'file')} of {table.directory} ({sum(found.due.values()):,} bytes) "
                f"may be deleted once there is room for a commit of {_COMMIT_BYTES:,} bytes, and there is "
                f"none ({error.message}): free so much outside of the root, then run "
                "`lakelog maintain --once --job housekeeping`"
            ) from None
        found.due, found.due_ledgers = due, outrun


def spare(table: Table, names: Collection[str]) -> None:
    """Take the marks from the files `names`, which become part of the table again; others that were marked
    with them are marked anew.

    Raises Conflict for a file that a vacuum may delete within the hour: nobody commits what he looked at
    longer than half an hour ago.
    """
    now_ms, kept_ms = table.store.now_ms(), retention_ms(table.snapshot)
    for item in [*table.store.list(f"{vacuum_directory(table.directory)}/")] if names else ():
        if not is_ledger(item.path):
            continue
        with suppress(ObjectMissing):
            marked = {*_names(table.store, item.path)} & {*names}
            stay_ms = REPLACED_FILE_RETENTION_MS if is_ledger(item.path, replaced=True) else kept_ms
            if marked and item.modified_ms + stay_ms < now_ms + SPARED_MS:
                raise Conflict(
                    f"the file {table.directory}/{min(marked)} is about to be deleted, as its records were "
                    "deleted a day ago; choose a later state"
                )
            if marked:
                table.store.delete(item.path)


def outrun_sleepers(table: Table) -> None:
    """Have every commit that a sleeping process is about to put, as of before this call, built again.

    It loses against the next version, which this puts unless another process does. The snapshot is durable
    then, and has every commit of before. Raises StoreUnavailable, OutcomeUnknown, Damaged.
    """
    commit, version = Commit(commit_info(table.clock, VACUUM)), table.snapshot.version
    table.transact(lambda snapshot: commit if snapshot.version == version else None)


def _parts(names: Sequence[str], most: int) -> list[Sequence[str]]:
    return [names[start : start + most] for start in range(0, len(names), most)]
