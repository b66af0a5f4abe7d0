"""The newest records of a partition, counted: offsets may have gaps, and the log a remote tier."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.store.store import Store, open_store
from tests.kit.mirrored import END, OFFSETS, mirrored_topic
from tests.kit.partitions import append, held, new_partition, thin_out
from tests.kit.tiers import tiered, with_tier


def begins(partition: Partition, at_most: int) -> list[tuple[int, int]]:
    return [partition.newest(count) for count in range(at_most + 1)]


def test_each_offset_of_a_whole_log_has_one(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    assert begins(partition, 1) == [(0, 0), (0, 0)]
    append(partition, b"a", b"b", b"c")
    append(partition, b"d")
    assert begins(partition, 5) == [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4), (0, 4)]
    partition.truncate(2)
    assert begins(partition, 4) == [(4, 0), (3, 1), (2, 2), (2, 2), (2, 2)]


@pytest.mark.parametrize("log_start", [0, 8, 14, 16, 20])
def test_they_are_counted_over_gaps(tmp_path: Path, log_start: int) -> None:
    partition = mirrored_topic(Cluster.open(open_store(tmp_path)), "t").partition(0)
    partition.truncate(log_start)
    live = [offset for offset in OFFSETS if offset >= log_start]
    assert partition.newest(0) == (END, 0)
    for count in range(1, len(OFFSETS) + 2):
        start, found = partition.newest(count)
        assert [*held(partition)] == live
        assert [offset for offset in live if offset >= start] == live[-count:]
        assert found == len(live[-count:])


def test_they_may_lie_in_the_remote_tier(store: Store, clock: ManualClock, root: RemoteRoot) -> None:
    partition = new_partition(store, clock)
    for value in (b"a", b"b", b"c"):
        append(partition, value, b"2", b"3")
    thin_out(partition, partition.snapshot.segments[:1], lambda offset: offset != 1)
    tiered(partition, root, 2)
    both = with_tier(partition, root)
    assert begins(both, 9)[4:] == [(5, 4), (4, 5), (3, 6), (2, 7), (0, 8), (0, 8)]
