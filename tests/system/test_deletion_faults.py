"""Deletions that die, fail, and meet: the topic is gone whole, and re-created whole."""

from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import OutcomeUnknown, StoreUnavailable, TopicExists, UnknownTopic
from log_tables.layout import commit_path
from log_tables.limits import LOG_RETENTION_MS
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.table.table import Table
from log_tables.testing import ClockedStore, Crash, Fault, FaultyStore, crash_after, crash_before, unavailable
from tests.kit.clusters import another, ended, looked, names
from tests.kit.failures import before
from tests.kit.partitions import append

COMMITS = {"put_if_absent"}


def killed_in_deletion(cluster: Cluster, count: int) -> None:
    """Die when `count` logs have been ended."""
    fault = Fault(1 + count, crash_before, COMMITS, "topics/t")
    dying = another(cluster, FaultyStore(cluster.store, [fault]))
    with pytest.raises(Crash):
        delete_topic(dying, "t")


@pytest.mark.parametrize("count", [0, 2])
def test_a_topic_is_recreated_only_when_the_logs_of_the_old_one_have_ended(
    cluster: Cluster, count: int
) -> None:
    create_topic(cluster, "t", 3)
    stale = another(cluster)
    append(stale.claim(stale.topic("t"), 2), b"old")
    killed_in_deletion(cluster, count)
    assert sum(ended(cluster, "topics/t", 3)) == count  # in parallel: which ones is open
    create_topic(cluster, "t", 3)
    assert ended(cluster, "topics/t", 3) == [True] * 3
    assert [stale.with_current_topic("t", lambda t: t.partition(2).refresh()).high_watermark] == [0]


def test_a_deletion_that_was_left_is_finished_by_who_deletes_again(cluster: Cluster) -> None:
    create_topic(cluster, "t", 2)
    killed_in_deletion(cluster, 1)
    elsewhere = another(cluster)
    delete_topic(elsewhere, "t")  # no error: it is this one that has done it
    assert ended(cluster, "topics/t", 2) == [True] * 2
    with pytest.raises(UnknownTopic):
        delete_topic(elsewhere, "t")


def test_a_deletion_that_was_left_is_finished_by_a_sweep_before_a_file_goes(
    cluster: Cluster, clock: ManualClock
) -> None:
    topic = create_topic(cluster, "t", 2, {"topic.delete.delay.ms": "0"})
    append(cluster.claim(topic, 1), b"old")
    killed_in_deletion(cluster, 1)
    assert sweep(cluster) == []
    assert ended(cluster, "topics/t", 2) == [True] * 2
    clock.advance(LOG_RETENTION_MS + topic.config.file_delete_delay_ms)
    assert sweep(cluster) == ["topics/t"]


def test_a_log_that_was_ended_late_stays_for_an_hour_by_the_clock_of_the_store(
    cluster: Cluster, clock: ManualClock
) -> None:
    topic = create_topic(cluster, "t", 1, {"topic.delete.delay.ms": "0"})
    killed_in_deletion(cluster, 0)
    clock.advance(LOG_RETENTION_MS + topic.config.file_delete_delay_ms)
    assert sweep(cluster) == []
    clock.advance(LOG_RETENTION_MS - 1)
    assert sweep(cluster) == []
    clock.advance(1)
    assert sweep(cluster) == ["topics/t"]


def test_a_deletion_that_the_store_interrupts_is_repeated(cluster: Cluster) -> None:
    create_topic(cluster, "t", 2)
    faulty = FaultyStore(
        cluster.store, [Fault(n, unavailable, {"get"}, "topics/t/partition=1/") for n in range(1, 3)]
    )
    unlucky = another(cluster, faulty)
    with pytest.raises(OutcomeUnknown, match=r"topic 't' was deleted, and then: "):
        delete_topic(unlucky, "t")
    while faulty.calls and not all(ended(cluster, "topics/t", 2)):
        try:
            delete_topic(unlucky, "t")
        except (OutcomeUnknown, StoreUnavailable):
            continue
    assert names(cluster) == []


def test_a_creation_is_refused_if_another_topic_of_the_name_was_created_and_deleted_during_it(
    cluster: Cluster,
) -> None:
    """The other one's deletion may have been left, and this one has not looked at that."""
    elsewhere = another(cluster)

    def came_and_went() -> None:
        create_topic(elsewhere, "t")
        delete_topic(elsewhere, "t")

    fault = Fault(1, before(came_and_went), COMMITS, "topics/t/partition=0/")
    with pytest.raises(TopicExists, match="created and deleted at the same time; create it again"):
        create_topic(another(cluster, FaultyStore(cluster.store, [fault])), "t")
    assert create_topic(another(cluster), "t").partition_count == 1


def test_a_topic_that_is_created_and_deleted_while_the_old_logs_end_is_noticed(
    cluster: Cluster,
) -> None:
    """The deletion of the new topic may be unfinished, too."""
    create_topic(cluster, "t")
    killed_in_deletion(cluster, 0)

    def came_and_went() -> None:
        elsewhere = another(cluster)
        create_topic(elsewhere, "t")
        delete_topic(elsewhere, "t")
        creating.refresh()  # as another thread of that process does

    fault = Fault(1, before(came_and_went), COMMITS, "topics/t/partition=0/")
    creating = another(cluster, FaultyStore(cluster.store, [fault]))
    with pytest.raises(TopicExists, match="created and deleted at the same time; create it again"):
        create_topic(creating, "t")


def test_of_two_deletions_at_once_the_later_one_ends_the_logs_too(cluster: Cluster) -> None:
    """The earlier one may be slow, or dead: after any answer nobody finds the topic."""
    create_topic(cluster, "t", 2)
    stale = another(cluster)
    append(stale.claim(stale.topic("t"), 1), b"old")
    fault = Fault(1, before(lambda: killed_in_deletion(cluster, 1)), COMMITS, "topics/__cluster_metadata")
    second = another(cluster, FaultyStore(cluster.store, [fault]))
    delete_topic(second, "t")
    assert ended(cluster, "topics/t", 2) == [True] * 2
    with pytest.raises(UnknownTopic):
        stale.with_current_topic("t", lambda topic: topic.partition(1).refresh())


def test_a_topic_that_was_re_created_is_not_deleted(cluster: Cluster) -> None:
    create_topic(cluster, "t")

    def recreated() -> None:
        elsewhere = another(cluster)
        delete_topic(elsewhere, "t")
        create_topic(elsewhere, "t")

    fault = Fault(1, before(recreated), COMMITS, "topics/__cluster_metadata")
    with pytest.raises(UnknownTopic, match="re-created at the same time"):
        delete_topic(another(cluster, FaultyStore(cluster.store, [fault])), "t")
    assert looked(another(cluster).topic("t")) == []


def test_a_damaged_partition_does_not_stand_in_the_way(cluster: Cluster) -> None:
    create_topic(cluster, "t", 3)
    elsewhere = another(cluster)
    cluster.store.delete(commit_path("topics/t/partition=0", 0))
    cluster.store.put(commit_path("topics/t/partition=1", 1), b"{")
    delete_topic(elsewhere, "t")
    assert Table(cluster.store, "topics/t/partition=2", cluster.clock).snapshot.deleted
    assert create_topic(elsewhere, "t").directory == "topics/t~2"


@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_whoever_dies_at_any_write_of_a_deletion_the_topic_is_recreated_whole(
    clock: ManualClock, failure: Callable[[Callable[[], object]], object]
) -> None:
    for nth in range(1, 20):
        root = Cluster.open(ClockedStore(open_store("memory://"), clock), clock)
        stale = another(root)
        create_topic(root, "t", 2)
        append(stale.claim(stale.topic("t"), 0), b"old")
        try:
            delete_topic(another(root, FaultyStore(root.store, [Fault(nth, failure)])), "t")
        except Crash:
            pass
        else:
            return
        survivor = another(root)
        if names(survivor):
            delete_topic(survivor, "t")
        append(survivor.claim(create_topic(survivor, "t"), 0), b"new")
        assert stale.with_current_topic("t", looked) == [b"new"]
        assert check(root.store).problems == []
    raise AssertionError("it never ends")
