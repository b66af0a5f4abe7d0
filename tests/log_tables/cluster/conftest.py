"""A cluster on a store in memory, on the clock of the test."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def cluster(store: Store, clock: ManualClock) -> Cluster:
    return Cluster.open(store, clock, "http://first")
