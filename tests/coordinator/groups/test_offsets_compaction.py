"""A gateway keeps the log of its consumer groups short, and no committed offset is lost by it."""

from pathlib import Path

import pytest

from api.process.duties import compact
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import CONSUMER_OFFSETS, partition_directory, topic_directory
from log_tables.limits import DIRTY_RECORDS_MIN
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.segments.cleaner import is_dirty
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.partitions import append, entry
from tests.kit.support import wait_until

LOG = partition_directory(topic_directory(CONSUMER_OFFSETS), 0)
GROUPS, PARTITIONS, COMMITS = 5, 2, 300
EAGER = {"linger_ms": 0, "commits_per_second_max": 0}


def commit_often(gateway: RunningGateway, expected: dict[tuple[str, int], int], first: int) -> None:
    """COMMITS commits of one offset each, noted in `expected` when they are acknowledged."""
    for offset in range(first, first + COMMITS):
        commit(gateway, expected, offset)


def commit(gateway: RunningGateway, expected: dict[tuple[str, int], int], offset: int) -> None:
    group, partition = f"g{offset % GROUPS}", offset % PARTITIONS
    body = {"offsets": [{"topic": "t", "partition": partition, "offset": offset}]}
    answer = gateway.client.put(f"/consumers/{group}/offsets", json=body)
    assert answer.status_code == 204, answer.text
    expected[group, partition] = offset


def committed(gateway: RunningGateway) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for number in range(GROUPS):
        answer = gateway.client.get(f"/consumers/g{number}/offsets").json()
        found |= {(f"g{number}", item["partition"]): item["offset"] for item in answer["offsets"]}
    return found


def dirty(log: Partition) -> bool:
    found = log.refresh(wait=True)
    return is_dirty(found.segments, found.cleaned)


def test_many_commits_become_few_segments_and_every_offset_survives_restarts(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    expected: dict[tuple[str, int], int] = {}
    with running_gateway(tmp_path, **EAGER) as gateway:
        gateway.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            gateway.produce("t", *range(3 * COMMITS), partition=partition)
        commit_often(gateway, expected, 0)
        log = Partition(store, LOG, SystemClock())
        wait_until(lambda: not dirty(log), "the log is compacted")
        assert len(log.snapshot.segments) < COMMITS <= log.high_watermark
        commit_often(gateway, expected, COMMITS)
        assert committed(gateway) == expected
    with running_gateway(tmp_path, **EAGER) as gateway:
        assert committed(gateway) == expected
        commit_often(gateway, expected, 2 * COMMITS)
        gateway.kill()  # a compaction is due, or under way
    with running_gateway(tmp_path, **EAGER) as gateway:
        assert committed(gateway) == expected
        commit(gateway, expected, 3 * COMMITS)  # a look alone makes nobody the leader
        wait_until(lambda: not dirty(log), "the log is compacted again")
        assert len(log.snapshot.segments) < COMMITS
        assert committed(gateway) == expected
    assert check(store).problems == []


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.open(open_store(tmp_path), SystemClock(), "http://first")


def fill(partition: Partition) -> None:
    """Enough records of one key that a compaction is due."""
    partition.claim("http://first")
    partition.append([entry(*[b"x"] * DIRTY_RECORDS_MIN, keys=[b"k"] * DIRTY_RECORDS_MIN)])


def records(partition: Partition) -> int:
    return sum(segment.records for segment in partition.snapshot.segments)


def test_only_the_led_partitions_of_the_groups_log_are_compacted(cluster: Cluster) -> None:
    compact(cluster)  # there is none yet
    groups = create_topic(cluster, CONSUMER_OFFSETS, 3, internal=True)
    led, lost, _ = groups.partitions()
    other = create_topic(cluster, "t").partition(0)
    for partition in (led, lost, other):
        fill(partition)
    Cluster.open(cluster.store, cluster.clock).topic(CONSUMER_OFFSETS).partition(1).claim("http://other")
    lost.refresh()
    compact(cluster)
    assert [records(p) for p in (led, lost, other)] == [1, DIRTY_RECORDS_MIN, DIRTY_RECORDS_MIN]
    assert append(led, b"next") == DIRTY_RECORDS_MIN
    compact(cluster)
    assert records(led) == 2
