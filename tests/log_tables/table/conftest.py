"""Tables on the clock of the test: a partition, and one whose files a vacuum may delete."""

import pytest

from log_tables.limits import VACUUM_MARK_AGE_MS
from log_tables.partition.partition import Partition
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, ManualClock
from tests.kit.partitions import append_each, new_partition
from tests.kit.vacuums import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def merged(world: World) -> World:
    """Three small segments that a merge has taken out of the table six hours ago."""
    append_each(world.partition, [b"0", b"1", b"2"])
    world.merge()
    world.wait(VACUUM_MARK_AGE_MS + 1)
    return world


@pytest.fixture
def deleted(world: World) -> World:
    """Three small segments whose records were deleted six hours ago."""
    append_each(world.partition, [b"0", b"1", b"2"])
    world.partition.truncate(3)
    world.wait(VACUUM_MARK_AGE_MS + 1)
    return world


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    return new_partition(store, clock)
