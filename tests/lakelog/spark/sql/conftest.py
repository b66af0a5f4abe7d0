"""A root whose topics become views."""

from pathlib import Path

import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    return Cluster.open(open_store(store_root))
