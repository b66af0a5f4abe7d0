"""A topic that is deleted, and made again, under processes that know it as it was."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.sweep import sweep
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    CorruptLog,
    NotLeader,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.layout import TXN_LEADER, TXN_LOG_START, checkpoint_path, commit_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Commit, Txn
from log_tables.table.invariant import broken_step
from log_tables.table.table import Table, commit_info
from log_tables.testing import ClockedStore, Crash, Fault, FaultyStore, crash_after, crash_before, unavailable
from tests.kit.clusters import another, before, directories, names
from tests.kit.partitions import append, values

COMMITS = {"put_if_absent"}


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def cluster(store: Store, clock: ManualClock) -> Cluster:
    return Cluster.open(store, clock, "http://first")


def looked(topic: Topic) -> list[bytes | None]:
    """What a fetch from the first partition of `topic` would give."""
    partition = topic.partition(0)
    partition.refresh()
    return values(partition)


def ended(cluster: Cluster, directory: str, count: int) -> list[bool]:
    tables = (Table(cluster.store, f"{directory}/{index}", cluster.clock) for index in range(count))
    return [table.snapshot.deleted for table in tables]


# The end of a log.


def test_the_claims_of_a_deletion_end_the_logs_and_checkpoints_keep_that(cluster: Cluster) -> None:
    topic = cluster.create_topic("t", 3)
    append(cluster.claim(topic, 0), b"old")
    cluster.delete_topic("t")
    assert ended(cluster, "topics/t", 3) == [True] * 3
    table = topic.partition(0).table
    table.checkpoint(0)
    assert cluster.store.head(checkpoint_path("topics/t/0", table.snapshot.version)).size > 0
    cluster.store.delete(commit_path("topics/t/0", table.snapshot.version))
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
    cluster.create_topic("t")
    elsewhere = another(cluster)
    leader = elsewhere.claim(elsewhere.topic("t"), 0)
    append(leader, b"a")
    append(leader, b"b")
    cluster.delete_topic("t")
    last = Table(cluster.store, "topics/t/0", cluster.clock).snapshot.version
    for _ in range(2):  # the first meets it, the second knows it
        with pytest.raises(
            TopicDeleted, match="topics/t/0 was deleted, and may have been re-created; list the topics"
        ):
            WAYS[way](leader)
    assert not leader.leading
    assert Table(cluster.store, "topics/t/0", cluster.clock).snapshot.version == last


@pytest.mark.parametrize("way", WAYS)
def test_a_table_that_is_gone_when_it_is_opened_again_is_damage(
    cluster: Cluster, clock: ManualClock, way: str
) -> None:
    """So all that is done with a topic that was swept meanwhile is done with the one that is there."""
    leader = cluster.claim(cluster.create_topic("t"), 0)
    append(leader, b"a")
    append(leader, b"b")
    for item in [*cluster.store.list("topics/t/0/_delta_log/")]:
        cluster.store.delete(item.path)
    clock.pause(CONFIRMATION_MAX_AGE_S + 1)
    with pytest.raises(CorruptLog, match="topics/t/0 is gone"):
        WAYS[way](leader)


def test_who_waits_for_records_is_woken_by_the_end_of_the_log(cluster: Cluster) -> None:
    topic = cluster.create_topic("t")
    woken = threading.Event()
    topic.partition(0).on_commit(woken.set)
    cluster.delete_topic("t")
    assert woken.is_set()


def test_what_follows_the_end_of_a_log_breaks_an_invariant(cluster: Cluster) -> None:
    topic = cluster.create_topic("t")
    cluster.delete_topic("t")
    snapshot, info = topic.partition(0).snapshot, commit_info(cluster.clock, "CLAIM")
    for txns in ((Txn(TXN_LEADER, snapshot.leader_epoch + 1),), (Txn(TXN_LOG_START, 0),), ()):
        assert "the topic was deleted before" in (broken_step(snapshot, Commit(info, txns=txns)) or ""), txns


def test_fsck_names_a_topic_that_is_there_and_whose_log_has_ended(cluster: Cluster) -> None:
    topic = cluster.create_topic("t", 2)
    topic.partition(1).delete("http://first")
    assert [problem.split(";")[0] for problem in check(cluster.store).problems] == [
        "topics/t/1: it says that its topic was deleted, and the metadata log says that it exists"
    ]
    with pytest.raises(CorruptLog, match="run `lakelog fsck`"):
        cluster.with_current_topic("t", lambda found: found.partition(1).refresh())


# Who knows the topic as it was.


def test_who_knows_the_old_topic_is_led_to_the_new_one(cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")
    assert stale.with_current_topic("t", looked) == [b"old"]
    cluster.delete_topic("t")
    append(cluster.claim(cluster.create_topic("t"), 0), b"new")
    assert stale.with_current_topic("t", looked) == [b"new"]
    assert stale.topic("t").topic_id == cluster.topic("t").topic_id


def test_who_knows_a_topic_that_is_gone_hears_so(cluster: Cluster) -> None:
    cluster.create_topic("t")
    stale = another(cluster)
    assert stale.with_current_topic("t", looked) == []
    cluster.delete_topic("t")
    with pytest.raises(UnknownTopic, match="there is no topic 't'"):
        stale.with_current_topic("t", looked)


def test_a_partition_that_came_with_the_new_topic_is_looked_for(cluster: Cluster) -> None:
    cluster.create_topic("t")
    stale = another(cluster)
    cluster.add_partitions("t", 2)
    assert stale.with_current_topic("t", lambda topic: topic.partition(1)).directory == "topics/t/1"
    cluster.delete_topic("t")
    cluster.create_topic("t", 3)
    assert stale.with_current_topic("t", lambda topic: topic.partition(2)).directory == "topics/t~2/2"
    with pytest.raises(UnknownPartition, match="has no partition 3; it has 0 to 2"):
        stale.with_current_topic("t", lambda topic: topic.partition(3))


def test_a_table_that_was_swept_is_no_damage(cluster: Cluster, clock: ManualClock) -> None:
    cluster.create_topic("t", 2, {"file.delete.delay.ms": "0"})
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")
    assert stale.with_current_topic("t", looked) == [b"old"]
    cluster.delete_topic("t")
    clock.advance(LOG_RETENTION_MS)
    clock.pause(CONFIRMATION_MAX_AGE_S)
    assert sweep(cluster) == ["topics/t"]
    cluster.create_topic("t", 2)
    topic = stale.topic("t")
    with pytest.raises(CorruptLog, match="the table at topics/t/0 is gone"):
        topic.partition(0).refresh()
    with pytest.raises(TopicDeleted):
        topic.partition(1)  # which was not open
    assert stale.with_current_topic("t", lambda topic: topic.partition(1)).directory == "topics/t~2/1"


def test_a_segment_that_was_swept_is_no_damage(cluster: Cluster) -> None:
    cluster.create_topic("t", 1, {"file.delete.delay.ms": "0"})
    stale = another(cluster)
    append(cluster.claim(cluster.topic("t"), 0), b"old")

    def read(topic: Topic) -> list[bytes | None]:
        partition = topic.partition(0)
        partition.refresh()
        if topic.incarnation == 1:
            cluster.delete_topic("t")
            sweep(cluster)
            cluster.create_topic("t")
        return values(partition)

    assert stale.with_current_topic("t", read) == []


def test_what_is_damaged_stays_damaged(cluster: Cluster) -> None:
    topic = cluster.create_topic("t")
    append(cluster.claim(topic, 0), b"a")
    cluster.store.delete(f"topics/t/0/{topic.partition(0).snapshot.segments[0].path}")
    with pytest.raises(Exception, match="is missing"):
        another(cluster).with_current_topic("t", looked)


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "alter": lambda cluster: cluster.alter_topic("t", {"compression.type": "lz4"}),
    "grow": lambda cluster: cluster.add_partitions("t", 2),
    "delete": lambda cluster: cluster.delete_topic("t"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_who_knows_the_old_topic_is_made_to_the_new_one(cluster: Cluster, change: str) -> None:
    cluster.create_topic("t")
    stale = another(cluster)
    stale.topic("t").partition(0)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    CHANGES[change](stale)
    cluster.refresh()
    assert [topic.partition_count for topic in cluster.topics()] == {"grow": [2], "delete": []}.get(
        change, [1]
    )
    assert directories(cluster.store) == {"topics/t", "topics/t~2"}
    assert not cluster.store.list_dirs("topics/t/")[1:]


# Answers from memory while a commit is under way.


def hanging(store: Store, landed: bool = False) -> tuple[FaultyStore, threading.Event, threading.Event]:
    """A store whose second commit hangs, before or after it is there; when it hangs, and what ends that."""
    in_flight, done = threading.Event(), threading.Event()

    def hang(perform: Callable[[], object]) -> object:
        answer = perform() if landed else None
        in_flight.set()
        assert done.wait(60)
        return answer if landed else perform()

    return FaultyStore(store, [Fault(2, hang, COMMITS, "topics/t/")]), in_flight, done


def test_a_stale_leader_with_a_commit_in_flight_finds_the_end_of_the_log(cluster: Cluster) -> None:
    cluster.create_topic("t")
    store, in_flight, done = hanging(cluster.store)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(append, leader, b"old")
        assert in_flight.wait(60)
        assert looked(slow.topic("t")) == []  # at once: nobody else has committed
        cluster.delete_topic("t")
        append(cluster.claim(cluster.create_topic("t"), 0), b"new")
        fetching = pool.submit(slow.with_current_topic, "t", looked)
        done.set()
        assert fetching.result() == [b"new"]
        with pytest.raises(TopicDeleted):
            appending.result()


@pytest.mark.parametrize("landed", [False, True])
def test_a_fenced_leader_with_a_commit_in_flight_gives_what_others_have_committed(
    cluster: Cluster, landed: bool
) -> None:
    topic = cluster.create_topic("t")
    store, in_flight, done = hanging(cluster.store, landed)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(append, leader, b"slow")
        assert in_flight.wait(60)
        assert looked(slow.topic("t")) == []
        append(cluster.claim(topic, 0), b"fast")
        fetching = pool.submit(looked, slow.topic("t"))
        done.set()
        assert fetching.result() == ([b"slow", b"fast"] if landed else [b"fast"])
        if landed:
            assert appending.result() == 0
        else:
            with pytest.raises(NotLeader):
                appending.result()


def test_those_who_look_beside_a_commit_in_flight_share_a_look(cluster: Cluster) -> None:
    cluster.create_topic("t")
    store, in_flight, done = hanging(cluster.store)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(9) as pool:
        appending = pool.submit(append, leader, b"slow")
        assert in_flight.wait(60)
        next_one = commit_path("topics/t/0", leader.snapshot.version + 1)
        looking, go_on = threading.Event(), threading.Event()

        def look_late() -> None:
            looking.set()
            assert go_on.wait(60)

        store._faults.append(Fault(1, before(look_late), {"get"}, next_one))
        calls = len(store.calls)
        first = pool.submit(leader.refresh)
        assert looking.wait(60)
        others = [pool.submit(leader.refresh) for _ in range(6)]
        go_on.set()
        for each in (first, *others):
            assert each.result().high_watermark == 0
        # The first one's; and at most one for each who came when another had just begun.
        assert [call.path for call in store.calls[calls:]].count(next_one) <= 1 + len(others)
        done.set()
        appending.result()


def test_a_look_beside_a_commit_in_flight_does_not_trust_a_log_that_may_have_been_cleaned(
    cluster: Cluster, clock: ManualClock
) -> None:
    cluster.create_topic("t")
    store, in_flight, done = hanging(cluster.store)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(append, leader, b"slow")
        assert in_flight.wait(60)
        clock.pause(CONFIRMATION_MAX_AGE_S + 1)
        looking = pool.submit(leader.refresh)
        done.set()
        assert appending.result() == 0
        assert looking.result().high_watermark == 1


# Deaths in a deletion.


def killed_in_deletion(cluster: Cluster, count: int) -> None:
    """Die when `count` logs have been ended."""
    fault = Fault(1 + count, crash_before, COMMITS, "topics/t")
    dying = another(cluster, FaultyStore(cluster.store, [fault]))
    with pytest.raises(Crash):
        dying.delete_topic("t")


@pytest.mark.parametrize("count", [0, 2])
def test_a_topic_is_made_again_only_when_the_logs_of_the_old_one_have_ended(
    cluster: Cluster, count: int
) -> None:
    cluster.create_topic("t", 3)
    stale = another(cluster)
    append(stale.claim(stale.topic("t"), 2), b"old")
    killed_in_deletion(cluster, count)
    assert sum(ended(cluster, "topics/t", 3)) == count  # in parallel: which ones is open
    cluster.create_topic("t", 3)
    assert ended(cluster, "topics/t", 3) == [True] * 3
    assert [stale.with_current_topic("t", lambda t: t.partition(2).refresh()).high_watermark] == [0]


def test_a_deletion_that_was_left_is_finished_by_who_deletes_again(cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    killed_in_deletion(cluster, 1)
    elsewhere = another(cluster)
    elsewhere.delete_topic("t")  # no error: it is this one that has done it
    assert ended(cluster, "topics/t", 2) == [True] * 2
    with pytest.raises(UnknownTopic):
        elsewhere.delete_topic("t")


def test_a_deletion_that_was_left_is_finished_by_a_sweep_before_a_file_goes(
    cluster: Cluster, clock: ManualClock
) -> None:
    topic = cluster.create_topic("t", 2)
    append(cluster.claim(topic, 1), b"old")
    killed_in_deletion(cluster, 1)
    assert sweep(cluster) == []
    assert ended(cluster, "topics/t", 2) == [True] * 2
    clock.advance(LOG_RETENTION_MS + topic.config.file_delete_delay_ms)
    assert sweep(cluster) == ["topics/t"]


def test_a_log_that_was_ended_late_stays_for_an_hour_by_the_clock_of_the_store(
    cluster: Cluster, clock: ManualClock
) -> None:
    topic = cluster.create_topic("t")
    killed_in_deletion(cluster, 0)
    clock.advance(LOG_RETENTION_MS + topic.config.file_delete_delay_ms)
    assert sweep(cluster) == []
    clock.advance(LOG_RETENTION_MS - 1)
    assert sweep(cluster) == []
    clock.advance(1)
    assert sweep(cluster) == ["topics/t"]


def test_a_deletion_that_the_store_interrupts_is_repeated(cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    faulty = FaultyStore(cluster.store, [Fault(n, unavailable, {"get"}, "topics/t/1/") for n in range(1, 3)])
    unlucky = another(cluster, faulty)
    with pytest.raises(StoreUnavailable):
        unlucky.delete_topic("t")
    while faulty.calls and not all(ended(cluster, "topics/t", 2)):
        try:
            unlucky.delete_topic("t")
        except StoreUnavailable:
            continue
    assert names(cluster) == []


def test_a_creation_is_refused_if_another_topic_of_the_name_was_created_and_deleted_during_it(
    cluster: Cluster,
) -> None:
    """The other one's deletion may have been left, and this one has not looked at that."""
    elsewhere = another(cluster)

    def came_and_went() -> None:
        elsewhere.create_topic("t")
        elsewhere.delete_topic("t")

    fault = Fault(1, before(came_and_went), COMMITS, "topics/t/0/")
    with pytest.raises(TopicExists, match="created and deleted at the same time; create it again"):
        another(cluster, FaultyStore(cluster.store, [fault])).create_topic("t")
    assert another(cluster).create_topic("t").partition_count == 1


def test_a_topic_that_is_created_and_deleted_while_the_old_logs_end_is_noticed(
    cluster: Cluster,
) -> None:
    """Its own deletion may have been left."""
    cluster.create_topic("t")
    killed_in_deletion(cluster, 0)

    def came_and_went() -> None:
        elsewhere = another(cluster)
        elsewhere.create_topic("t")
        elsewhere.delete_topic("t")
        creating.refresh()  # as another thread of that process does

    fault = Fault(1, before(came_and_went), COMMITS, "topics/t/0/")
    creating = another(cluster, FaultyStore(cluster.store, [fault]))
    with pytest.raises(TopicExists, match="created and deleted at the same time; create it again"):
        creating.create_topic("t")


def test_of_two_deletions_at_once_the_later_one_ends_the_logs_too(cluster: Cluster) -> None:
    """The earlier one may be slow, or dead: after any answer nobody finds the topic."""
    cluster.create_topic("t", 2)
    stale = another(cluster)
    append(stale.claim(stale.topic("t"), 1), b"old")
    fault = Fault(1, before(lambda: killed_in_deletion(cluster, 1)), COMMITS, "topics/__cluster_metadata")
    second = another(cluster, FaultyStore(cluster.store, [fault]))
    second.delete_topic("t")
    assert ended(cluster, "topics/t", 2) == [True] * 2
    with pytest.raises(UnknownTopic):
        stale.with_current_topic("t", lambda topic: topic.partition(1).refresh())


def test_a_topic_that_was_re_created_is_not_deleted(cluster: Cluster) -> None:
    cluster.create_topic("t")

    def made_again() -> None:
        elsewhere = another(cluster)
        elsewhere.delete_topic("t")
        elsewhere.create_topic("t")

    fault = Fault(1, before(made_again), COMMITS, "topics/__cluster_metadata")
    with pytest.raises(UnknownTopic, match="re-created at the same time"):
        another(cluster, FaultyStore(cluster.store, [fault])).delete_topic("t")
    assert looked(another(cluster).topic("t")) == []


def test_a_damaged_partition_does_not_stand_in_the_way(cluster: Cluster) -> None:
    cluster.create_topic("t", 3)
    elsewhere = another(cluster)
    cluster.store.delete(commit_path("topics/t/0", 0))
    cluster.store.put(commit_path("topics/t/1", 1), b"{")
    elsewhere.delete_topic("t")
    assert Table(cluster.store, "topics/t/2", cluster.clock).snapshot.deleted
    assert elsewhere.create_topic("t").directory == "topics/t~2"


@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_whoever_dies_at_any_write_of_a_deletion_the_topic_is_made_again_whole(
    clock: ManualClock, failure: Callable[[Callable[[], object]], object]
) -> None:
    for nth in range(1, 20):
        root = Cluster.open(ClockedStore(open_store("memory://"), clock), clock)
        stale = another(root)
        root.create_topic("t", 2)
        append(stale.claim(stale.topic("t"), 0), b"old")
        try:
            another(root, FaultyStore(root.store, [Fault(nth, failure)])).delete_topic("t")
        except Crash:
            pass
        else:
            return
        survivor = another(root)
        if names(survivor):
            survivor.delete_topic("t")
        append(survivor.claim(survivor.create_topic("t"), 0), b"new")
        assert stale.with_current_topic("t", looked) == [b"new"]
        assert check(root.store).problems == []
    raise AssertionError("it never ends")
