"""The check of a root in use: what happens while it reads is no problem, and no doubt."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import OffsetKey, OffsetValue, encode
from log_tables.cluster.topic_fold import fold
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS, commit_path
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import input_batch
from log_tables.root.fsck import check, check_topic
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore, Fault, FaultyStore
from tests.kit.failures import before
from tests.kit.partitions import append

GROUP = "readers"
DIRECTORY = "topics/t/partition=0"


@pytest.fixture
def cluster(store_root: Path, clock: ManualClock) -> Cluster:
    """A cluster with the topic `t` of a partition, and groups."""
    cluster = Cluster.open(ClockedStore(open_store(store_root), clock), clock, "http://first")
    fold(create_topic(cluster, "t"))
    create_topic(cluster, CONSUMER_OFFSETS, 2, internal=True)
    return cluster


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    """The partition 0 of `t`, with two records in a segment."""
    partition = cluster.claim(cluster.topic("t"), 0)
    append(partition, b"a", b"b")
    fold(cluster.topic("t"))
    return partition


def commit(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    """Let the group commit an offset."""
    number = partition_for_key(GROUP.encode(), 2, MURMUR3)
    log = cluster.claim(cluster.topic(CONSUMER_OFFSETS), number)
    said = encode(OffsetKey(GROUP, topic, partition), OffsetValue(offset, cluster.topic(topic).topic_id))
    log.append([AppendRequest(input_batch([said], cluster.clock.now_us()))])


def test_what_groups_commit_meanwhile_is_no_problem_and_no_doubt(
    cluster: Cluster, partition: Partition
) -> None:
    def meanwhile() -> None:
        append(partition, b"c", b"d")
        create_topic(cluster, "new")
        add_partitions(cluster, "t", 3)
        for topic, number, offset in (("t", 0, 4), ("new", 0, 0), ("t", 2, 0)):
            commit(cluster, topic, number, offset)

    (segment,) = partition.snapshot.segments
    path = f"{DIRECTORY}/{segment.path}"
    report = check(FaultyStore(cluster.store, [Fault(1, before(meanwhile), {"get"}, path)]))
    assert (report.problems, report.doubts) == ([], [])
    commit(cluster, "t", 0, 5)
    (doubt,) = check(cluster.store).doubts
    assert "has committed offset 5 of t-0, which ends at 4" in doubt


def test_an_offset_of_a_topic_that_had_more_partitions_before_is_no_problem(cluster: Cluster) -> None:
    create_topic(cluster, "again", 3)
    commit(cluster, "again", 2, 0)
    delete_topic(cluster, "again")
    create_topic(cluster, "again", 1)
    assert check(cluster.store).problems == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_topic_that_is_altered_or_deleted_meanwhile_is_no_problem(
    cluster: Cluster, partition: Partition, whole: bool
) -> None:
    def altered() -> None:
        alter_topic(cluster, "t", {"producer.id.expiration.ms": "7200000", "value.columns": "n bigint"})
        topic = add_partitions(cluster, "t", 2)
        append(cluster.claim(topic, 1), b"c")
        fold(topic)

    def deleted() -> None:
        delete_topic(cluster, "t")

    for meanwhile in (altered, deleted):
        store = FaultyStore(
            cluster.store, [Fault(1, before(meanwhile), {"get"}, commit_path(partition.directory, 1))]
        )
        assert (check(store) if whole else check_topic(store, "t")).problems == []
