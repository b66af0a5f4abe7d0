"""Roots as other tools copy them, and what such a tool may leave out."""

import shutil
from pathlib import Path

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import Store, open_store

TIERED = {"remote.storage.enable": "true"}
VALUES = [b"0", b"1", b"2", b"3"]


def copy_tree(cluster: Cluster, target: Path) -> Store:
    """Copy the files of a root, as `cp -r` does."""
    shutil.copytree(cluster.store.url.removeprefix("file://"), target)
    return open_store(target)


def reopened(store: Store, clock: ManualClock) -> Cluster:
    return Cluster.open(store, clock, create=False)
