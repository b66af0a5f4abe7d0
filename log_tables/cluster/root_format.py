"""The format of a root (docs/FORMAT.md). A root of another one is refused: nothing is read or written."""

from log_tables.errors import UnsupportedTable
from log_tables.layout import (
    CLUSTER_METADATA,
    FORMAT,
    PROPERTY_FORMAT,
    log_directory,
    old_partition_directory,
    topic_directory,
)
from log_tables.store.store import Store
from log_tables.table.snapshot import Snapshot


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
