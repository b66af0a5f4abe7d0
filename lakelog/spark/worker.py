"""State that a Python process of Spark keeps between its tasks."""

import gc
from functools import cache, lru_cache

from lakelog.spark.options import RootLocation
from log_tables.store.store import Store, open_store


@lru_cache(maxsize=16)
def store_at(location: RootLocation) -> Store:
    """The store, opened once in a process and only read."""
    return open_store(location.root, dict(location.storage), create=False)


@cache
def freeze_gc() -> None:
    """Let the garbage collector skip all objects loaded so far: the modules stay loaded anyway.

    Spark's worker collects all garbage after every task. With the modules that PySpark loads, this takes
    longer than a small task.
    """
    gc.collect()
    gc.freeze()
