"""A topic that is deleted, and re-created, under processes that know it as it was."""

import threading
from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import CorruptLog, TopicDeleted, UnknownPartition, UnknownTopic
from log_tables.layout import TXN_LEADER, TXN_LOG_START, checkpoint_path, commit_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.invariant import broken_step
from log_tables.table.table import Table
from tests.kit.clusters import another, directories, ended, looked
from tests.kit.partitions import append, values

# The end of a log.


def test_the_claims_of_a_deletion_end_the_logs_and_checkpoints_keep_that(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 3)
    append(cluster.claim(topic, 0), b"old")
    delete_topic(cluster, "t")
    assert ended(cluster, "topics/t", 3) == [True] * 3
    table = topic.partition(0).table
    table.checkpoint(0)
    assert cluster.store.head(checkpoint_path("topics/t/partition=0", table.snapshot.version)).size > 0
    cluster.store.delete(commit_path("topics/t/partition=0", table.snapshot.version))
    assert ended(cluster, "topics/t", 1) == [True]


def merged(partition: Partition) -> bool:
    table, inputs = partition.table, partition.snapshot.segments
    made = merge(table.store, table.directory, inputs, "zstd", table.clock)
    return commit_merge(table, inputs, made)


WAYS: dict[str, Callable[[Partition], object]] = {
    "look": lambda partition: partition.refresh(),
    "look and wait": lambda partition: partition.refresh(wait=True),
    "claim": lambda partition: partition.claim("http://second"),
    "append": lambda partition: append(partition, b"late"),
    "truncate": lambda partition: partition.truncate(1),
    "set properties": lambda partition: partition.set_properties({"lakelog.x": "1"}),
    "merge": merged,
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_done_with_a_partition_of_a_deleted_topic(cluster: Cluster, way: str) -> None:
    create_topic(cluster, "t")
    elsewhere = another(cluster)
    leader = elsewhere.claim(elsewhere.topic("t"), 0)
    append(leader, b"a")
    append(leader, b"b")
    delete_topic(cluster, "t")
    last = Table(cluster.store, "topics/t/partition=0", cluster.clock).snapshot.version
    for _ in range(2):  # the first meets it, the second knows it
        with pytest.raises(
            TopicDeleted,
            match="topics/t/partition=0 was deleted, and may have been re-created; list the topics",
        ):
            WAYS[way](leader)
    assert not leader.leading
    assert Table(cluster.store, "topics/t/partition=0", cluster.clock).snapshot.version == last


@pytest.mark.parametrize("way", WAYS)
def test_a_table_that_is_gone_when_it_is_opened_again_is_damage(
    cluster: Cluster, clock: ManualClock, way: str
) -> None:
    """So all that is done with a topic that was swept meanwhile is done with the one that is there."""
    leader = cluster.claim(create_topic(cluster, "t"), 0)
    append(leader, b"a")
    append(leader, b"b")
    for item in [*cluster.store.list("topics/t/partition=0/_delta_log/")]:
        cluster.store.delete(item.path)
    clock.pause(CONFIRMATION_MAX_AGE_S + 1)
    with pytest.raises(CorruptLog, match="topics/t/partition=0 is gone"):
        WAYS[way](leader)


def test_who_waits_for_records_is_woken_by_the_end_of_the_log(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t")
    woken = threading.Event()
    topic.partition(0).on_commit(woken.set)
    delete_topic(cluster, "t")
    assert woken.is_set()


def test_what_follows_the_end_of_a_log_breaks_an_invariant(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t")
    delete_topic(cluster, "t")
    snapshot, info = topic.partition(0).snapshot, commit_info(cluster.clock, "CLAIM")
    for txns in ((Txn(TXN_LEADER, snapshot.leader_epoch + 1),), (Txn(TXN_LOG_START, 0),), ()):
        assert "the topic was deleted before" in (broken_step(snapshot, Commit(info, txns=txns)) or ""), txns


def test_fsck_names_a_topic_that_is_there_and_whose_log_has_ended(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 2)
    topic.partition(1).delete("http://first")
    assert [problem.split(";")[0] for problem in check(cluster.store).problems] == [
        "topics/t/partition=1: it says that its topic was deleted, and the metadata log says that it exists"
    ]
    with pytest.raises(CorruptLog, match="run `lakelog fsck`"):
        cluster.with_current_topic("t", lambda found: found.partition(1).refresh())


# Who knows the topic as it was.


def test_who_knows_the_old_topic_is_led_to_the_new_one(cluster: Cluster) -> None:
    create_topic(cluster, "t", 2)
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")
    assert stale.with_current_topic("t", looked) == [b"old"]
    delete_topic(cluster, "t")
    append(cluster.claim(create_topic(cluster, "t"), 0), b"new")
    assert stale.with_current_topic("t", looked) == [b"new"]
    assert stale.topic("t").topic_id == cluster.topic("t").topic_id


def test_who_knows_a_topic_that_is_gone_hears_so(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    stale = another(cluster)
    assert stale.with_current_topic("t", looked) == []
    delete_topic(cluster, "t")
    with pytest.raises(UnknownTopic, match="there is no topic 't'"):
        stale.with_current_topic("t", looked)


def test_a_partition_that_came_with_the_new_topic_is_looked_for(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    stale = another(cluster)
    add_partitions(cluster, "t", 2)
    assert stale.with_current_topic("t", lambda topic: topic.partition(1)).directory == "topics/t/partition=1"
    delete_topic(cluster, "t")
    create_topic(cluster, "t", 3)
    assert (
        stale.with_current_topic("t", lambda topic: topic.partition(2)).directory == "topics/t~2/partition=2"
    )
    with pytest.raises(UnknownPartition, match="has no partition 3; it has 0 to 2"):
        stale.with_current_topic("t", lambda topic: topic.partition(3))


def test_a_table_that_was_swept_is_no_damage(cluster: Cluster, clock: ManualClock) -> None:
    create_topic(cluster, "t", 2, {"file.delete.delay.ms": "0", "topic.delete.delay.ms": "0"})
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")
    assert stale.with_current_topic("t", looked) == [b"old"]
    delete_topic(cluster, "t")
    clock.advance(LOG_RETENTION_MS)
    clock.pause(CONFIRMATION_MAX_AGE_S)
    assert sweep(cluster) == ["topics/t"]
    create_topic(cluster, "t", 2)
    topic = stale.topic("t")
    with pytest.raises(CorruptLog, match="the table at topics/t/partition=0 is gone"):
        topic.partition(0).refresh()
    with pytest.raises(TopicDeleted):
        topic.partition(1)  # which was not open
    assert (
        stale.with_current_topic("t", lambda topic: topic.partition(1)).directory == "topics/t~2/partition=1"
    )


def test_a_segment_that_was_swept_is_no_damage(cluster: Cluster) -> None:
    create_topic(cluster, "t", 1, {"file.delete.delay.ms": "0", "topic.delete.delay.ms": "0"})
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")

    def read(topic: Topic) -> list[bytes | None]:
        partition = topic.partition(0)
        partition.refresh()
        if topic.incarnation == 1:
            delete_topic(cluster, "t")
            sweep(cluster)
            create_topic(cluster, "t")
        return values(partition)

    assert stale.with_current_topic("t", read) == []


def test_what_is_damaged_stays_damaged(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t")
    append(cluster.claim(topic, 0), b"a")
    cluster.store.delete(f"topics/t/partition=0/{topic.partition(0).snapshot.segments[0].path}")
    with pytest.raises(Exception, match="is missing"):
        another(cluster).with_current_topic("t", looked)


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "alter": lambda cluster: alter_topic(cluster, "t", {"compression.type": "lz4"}),
    "grow": lambda cluster: add_partitions(cluster, "t", 2),
    "delete": lambda cluster: delete_topic(cluster, "t"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_who_knows_the_old_topic_is_made_to_the_new_one(cluster: Cluster, change: str) -> None:
    create_topic(cluster, "t")
    stale = another(cluster)
    stale.topic("t").partition(0)
    delete_topic(cluster, "t")
    create_topic(cluster, "t")
    CHANGES[change](stale)
    cluster.refresh()
    assert [topic.partition_count for topic in cluster.topics()] == {"grow": [2], "delete": []}.get(
        change, [1]
    )
    assert directories(cluster.store) == {"topics/t", "topics/t~2"}
    assert cluster.store.list_dirs("topics/t/") == ["topics/t/_delta_log", "topics/t/partition=0"]
