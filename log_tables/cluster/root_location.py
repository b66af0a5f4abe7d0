"""Where a root was when it was last known to be whole, which shows whether it was copied or moved since.

A root holds an anchor, and the identity that the store gives to the anchor and to directories that every root
has from its first day on. In a copy these have another identity.

A root of another format (docs/FORMAT.md) is refused: nothing is read or written.
"""

from enum import Enum

from log_tables.errors import CorruptLog, ObjectMissing, UnsupportedTable
from log_tables.layout import (
    CLUSTER_METADATA,
    FORMAT,
    HOME,
    HOME_ANCHOR,
    METADATA_DIRECTORY,
    PROPERTY_FORMAT,
    TOPICS,
    UNFINISHED_COPY,
    log_directory,
    old_partition_directory,
    topic_directory,
)
from log_tables.store.store import Store, ensure
from log_tables.table.snapshot import Snapshot

_DIRECTORIES = (TOPICS, log_directory(METADATA_DIRECTORY))


class RootLocation(Enum):
    """Whether a root is where it was when `remember` was last called."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


def locate(store: Store) -> RootLocation:
    """Whether the root of `store` is where it was. Raises StoreUnavailable."""
    try:
        remembered, now = store.get(HOME).decode(errors="replace"), _identity(store)
    except ObjectMissing:
        return RootLocation.UNKNOWN
    return RootLocation.HERE if remembered == now else RootLocation.ELSEWHERE


def _identity(store: Store) -> str:
    return store.identity(HOME_ANCHOR, _DIRECTORIES)


def note_location(store: Store) -> None:
    """Note that the root, which has a metadata log, is here. Raises StoreUnavailable."""
    ensure(store, HOME_ANCHOR, b"")
    while locate(store) is not RootLocation.HERE:  # another process may put the anchor at the same time
        store.put(HOME, _identity(store).encode())


def check_finished(store: Store) -> None:
    """Raise CorruptLog for a copy that is not finished; StoreUnavailable."""
    try:
        original = store.get(UNFINISHED_COPY).decode(errors="replace")
    except ObjectMissing:
        return
    raise CorruptLog(
        f"this is an unfinished copy of {original}; run `lakelog root copy` again, which continues where it "
        "stopped"
    )


def check_format(metadata: Snapshot) -> None:
    """Raise UnsupportedTable when the root, whose metadata log is `metadata`, is not of the format FORMAT."""
    found = metadata.metadata.configuration.get(PROPERTY_FORMAT, "")
    if found != FORMAT:
        raise _other_format(found or "unknown")


def check_not_old(store: Store) -> None:
    """Raise UnsupportedTable for a root of format 1, whose metadata log is in another place."""
    old = old_partition_directory(topic_directory(CLUSTER_METADATA), 0)
    if any(True for _ in store.list(log_directory(old) + "/")):
        raise _other_format("1")


def _other_format(found: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"this root has the format {found}, and this lakelog reads and writes format {FORMAT}; use the "
        "version of lakelog that made it, or copy its records to a new root with that version's "
        "`lakelog consume` and this one's `lakelog produce`",
        feature=f"{PROPERTY_FORMAT} {found}",
    )
