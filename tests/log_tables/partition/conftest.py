"""A partition that this process leads, on a store in memory and on the clock of the test."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore
from tests.kit.partitions import new_partition
from tests.kit.tiers import remote_root


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    return new_partition(store, clock)


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """The directory of the remote root."""
    directory = tmp_path / "away"
    directory.mkdir()
    return directory


@pytest.fixture
def root(away: Path, clock: ManualClock) -> RemoteRoot:
    return remote_root(away, clock)
