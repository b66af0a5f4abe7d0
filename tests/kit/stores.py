"""Listing the objects of a store, and putting some."""

from log_tables.store.store import Store


def paths(store: Store, prefix: str, start_after: str = "") -> list[str]:
    return [item.path for item in store.list(prefix, start_after)]


def put_all(store: Store, *names: str) -> None:
    for name in names:
        store.put(name, name.encode())
