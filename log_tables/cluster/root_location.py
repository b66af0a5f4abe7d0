"""Where a root was when it was last known to be whole, which shows whether it was copied or moved since.

A root holds an anchor, and the identity that the store gives to the anchor and to directories that every root
has from its first day on. In a copy these have another identity.
"""

from contextlib import suppress
from enum import Enum

from log_tables.errors import AlreadyExists, CorruptLog, ObjectMissing
from log_tables.layout import (
    HOME,
    HOME_ANCHOR,
    METADATA_DIRECTORY,
    TOPICS,
    UNFINISHED_COPY,
    log_directory,
)
from log_tables.store.store import Store

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
    with suppress(AlreadyExists):
        store.put_if_absent(HOME_ANCHOR, b"")
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
