"""Where a root was when it was last known to be whole: what shows that it was copied, or moved, since.

A root holds an anchor, and beside it what the store says of the anchor. A copy has an anchor of its own, of
which its store says something else.
"""

from contextlib import suppress
from enum import Enum

from log_tables.errors import AlreadyExists, ObjectMissing
from log_tables.layout import HOME, HOME_ANCHOR
from log_tables.store import Store


class Home(Enum):
    """Whether a root is where it was."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


def look(store: Store) -> Home:
    """Where the root of `store` was when `remember` was last called. Raises StoreUnavailable."""
    try:
        remembered, now = store.get(HOME).decode(errors="replace"), store.identity(HOME_ANCHOR)
    except ObjectMissing:
        return Home.UNKNOWN
    return Home.HERE if remembered == now else Home.ELSEWHERE


def remember(store: Store) -> None:
    """This is where the root is. Raises StoreUnavailable."""
    with suppress(AlreadyExists):
        store.put_if_absent(HOME_ANCHOR, b"")
    while look(store) is not Home.HERE:  # who makes the anchor at the same time may not be done with it
        store.put(HOME, store.identity(HOME_ANCHOR).encode())
