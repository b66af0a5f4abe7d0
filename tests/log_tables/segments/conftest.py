"""Partitions whose segments are rewritten."""

import pytest

from log_tables.clock import ManualClock
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore
from tests.kit.partitions import new_partition
from tests.kit.rewrites import A, B, C, put


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    partition = new_partition(store, clock)
    for number in range(5):
        rows = [
            Record(b"%d" % number, b"key", (("h", b"%d" % number),), 1_000 - number),
            Record(None, None, (), 5_000_000 + number),
        ]
        partition.append([AppendRequest(input_batch(rows, 0), ProducerStamp(7, 0, 2 * number))])
    return partition


@pytest.fixture
def keyed(store: Store, clock: ManualClock) -> Partition:
    """Offsets 0 to 8 in four segments: a and b twice, c once and deleted, two without a key."""
    partition = new_partition(store, clock)
    put(partition, (A, b"1"), (B, b"1"))
    put(partition, (None, b"x"), (C, b"1"), (A, b"2"))
    put(partition, (C, None), (None, None))
    put(partition, (B, b"2"), (A, b"3"))
    return partition
