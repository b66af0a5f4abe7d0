"""Reads beside a commit in flight, of a topic that is deleted or has another leader meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import NotLeader, TopicDeleted
from log_tables.layout import commit_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S
from log_tables.store.store import Store
from log_tables.testing import Fault, FaultyStore
from tests.kit.clusters import another, looked
from tests.kit.failures import before
from tests.kit.partitions import append

COMMITS = {"put_if_absent"}


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
    create_topic(cluster, "t")
    store, in_flight, done = hanging(cluster.store)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(append, leader, b"old")
        assert in_flight.wait(60)
        assert looked(slow.topic("t")) == []  # at once: nobody else has committed
        delete_topic(cluster, "t")
        append(cluster.claim(create_topic(cluster, "t"), 0), b"new")
        fetching = pool.submit(slow.with_current_topic, "t", looked)
        done.set()
        assert fetching.result() == [b"new"]
        with pytest.raises(TopicDeleted):
            appending.result()


@pytest.mark.parametrize("landed", [False, True])
def test_a_fenced_leader_with_a_commit_in_flight_gives_what_others_have_committed(
    cluster: Cluster, landed: bool
) -> None:
    topic = create_topic(cluster, "t")
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
    create_topic(cluster, "t")
    store, in_flight, done = hanging(cluster.store)
    slow = another(cluster, store)
    leader = slow.claim(slow.topic("t"), 0)
    with ThreadPoolExecutor(9) as pool:
        appending = pool.submit(append, leader, b"slow")
        assert in_flight.wait(60)
        next_one = commit_path("topics/t/partition=0", leader.snapshot.version + 1)
        looking, go_on = threading.Event(), threading.Event()

        def look_late() -> None:
            looking.set()
            assert go_on.wait(60)

        store.faults.append(Fault(1, before(look_late), {"get"}, next_one))
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
    create_topic(cluster, "t")
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
