"""The tables that are written to now, as gateways say for those who follow many where requests are paid.

Each gateway has an object of its own, and overwrites it when a table becomes busy or quiet. It is a hint: a
table that is not named may be busy all the same.
"""

from collections.abc import Collection

import msgspec

from log_tables.clock import Clock
from log_tables.errors import ObjectMissing
from log_tables.layout import BUSY_TABLES
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Store

BUSY_S = 60.0
"""A table is busy so long after a commit."""

NAMED_MAX = 10_000
"""More tables are not named."""

_decoder = msgspec.json.Decoder(frozenset[str])


class BusyTables:
    """The busy tables of one gateway, which says so in the store. Of one thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._versions: dict[str, int] = {}
        self._until_s: dict[str, float] = {}
        self._said: frozenset[str] = frozenset()

    def note(self, name: str, versions: dict[str, int]) -> None:
        """Say, as the gateway `name`, which of the tables with these `versions` are busy, if that changed.

        Raises as `Store.put`.
        """
        now = self._clock.monotonic()
        for directory, version in versions.items():
            if self._versions.get(directory, version) != version:
                self._until_s[directory] = now + BUSY_S
        self._versions = versions
        self._until_s = {directory: until_s for directory, until_s in self._until_s.items() if until_s > now}
        busy = frozenset(sorted(self._until_s)[:NAMED_MAX])
        if busy != self._said:
            self._store.put(f"{BUSY_TABLES}/{name}", msgspec.json.encode(sorted(busy)))
            self._said = busy


class BusyWatch:
    """The tables that gateways name. Of one thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[ObjectInfo, frozenset[str]]] = {}

    def look(self) -> Collection[str]:
        """The directories of busy tables. Raises StoreUnavailable."""
        found = {item.path: item for item in self._store.list(f"{BUSY_TABLES}/")}
        for path in self._known.keys() - found.keys():
            del self._known[path]
        for path, item in found.items():
            known = self._known.get(path)
            if known is None or known[0] != item:
                self._known[path] = item, self._read(path)
        return frozenset().union(*(named for _, named in self._known.values()))

    def _read(self, path: str) -> frozenset[str]:
        try:
            return _decoder.decode(self._store.get(path))
        except (ObjectMissing, msgspec.MsgspecError):
            return frozenset()  # it was removed just now, or is of another version
