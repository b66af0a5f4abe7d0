"""A root becomes a cluster, and its topics are found and claimed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, TopicDeleted, UnknownTopic
from log_tables.store.store import open_store
from tests.kit.clusters import another


def test_an_empty_root_becomes_a_cluster_that_every_process_knows_by_one_id(cluster: Cluster) -> None:
    assert cluster.topics() == []
    assert cluster.topics(include_internal=True) == []
    assert another(cluster).cluster_id == cluster.cluster_id
    assert len(cluster.cluster_id) == 36


def test_who_only_reads_makes_no_cluster() -> None:
    store = open_store("memory://")
    with pytest.raises(InvalidArgument, match="there is no lakelog data at memory://"):
        Cluster.open(store, create=False)
    assert list(store.list("")) == []


def test_processes_that_open_an_empty_root_at_once_share_it(store_root: Path) -> None:
    start = threading.Barrier(4)

    def run(_: int) -> str:
        start.wait()
        return Cluster.open(open_store(store_root), SystemClock()).cluster_id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(run, range(4)))) == 1


def test_a_topic_is_looked_for_before_it_is_called_unknown(cluster: Cluster) -> None:
    elsewhere = another(cluster)
    create_topic(cluster, "t")
    assert elsewhere.cached_topic("t") is None
    assert elsewhere.topic("t").name == "t"
    assert elsewhere.cached_topic("t") is not None
    with pytest.raises(UnknownTopic, match="there is no topic 'u'"):
        elsewhere.topic("u")


def test_who_leads_a_partition_is_in_its_table_until_the_topic_is_deleted(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 2)
    leaders = [cluster.claim(topic, 0, 7), cluster.claim(topic, 1)]
    elsewhere = another(cluster)
    assert [p.snapshot.leader_broker for p in elsewhere.topic("t").partitions()] == [7, 0]
    delete_topic(elsewhere, "t")
    with pytest.raises(TopicDeleted):
        leaders[0].refresh()
    assert leaders[0].snapshot.leader_broker == 0


def test_nobody_leads_a_topic_that_was_deleted_while_it_claimed(cluster: Cluster) -> None:
    elsewhere = another(cluster)
    create_topic(cluster, "t")
    topic = elsewhere.topic("t")
    delete_topic(cluster, "t")
    with pytest.raises(UnknownTopic, match="was deleted"):
        elsewhere.claim(topic, 0)
