"""Topics come, change and go by one append each, whoever is first."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidTopicName,
    TopicDeleted,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.limits import PARTITIONS_MAX
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import Fault, FaultyStore
from tests.kit.clusters import another, directories, names
from tests.kit.failures import before
from tests.kit.partitions import append, values

HOUR_MS = 60 * 60 * 1000


def test_a_topic_that_was_created_is_there_for_everyone(cluster: Cluster) -> None:
    made = create_topic(cluster, "t", 3, {"compression.type": "lz4"})
    assert (made.name, made.directory, made.partition_count) == ("t", "topics/t", 3)
    elsewhere = another(cluster)
    found = elsewhere.topic("t")
    assert (found.topic_id, found.partition_count) == (made.topic_id, 3)
    assert found.config.overrides == {"compression.type": "lz4"}
    partition = found.partition(2)
    assert partition.config.compression == "lz4"
    partition.claim("http://second")
    append(partition, b"a")
    assert cluster.topic("t").partition(2).refresh().high_watermark == 1
    assert names(elsewhere) == ["t"]


def test_a_creation_looks_at_no_other_topic(cluster: Cluster) -> None:
    """Else to create ten thousand would take hours."""
    store = FaultyStore(cluster.store)
    create_topic(another(cluster, store), "t")
    asked = {call.path for call in store.calls if call.path.startswith("topics") and "/__" not in call.path}
    assert all(path.startswith("topics/t/") for path in asked), asked


def test_a_name_is_taken_once(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    for process in (cluster, another(cluster)):
        with pytest.raises(TopicExists, match="'t' exists already"):
            create_topic(process, "t", 2)
    assert cluster.topic("t").partition_count == 1
    assert directories(cluster.store) == {"topics/t"}


@pytest.mark.parametrize("name", ["../t", "", "a" * 250, "__cluster_metadata", "__consumer_offsets", "t~2"])
def test_a_name_that_is_not_allowed_writes_nothing(cluster: Cluster, name: str) -> None:
    version = cluster.metadata_log.partition.snapshot.version
    with pytest.raises(InvalidTopicName):
        create_topic(cluster, name)
    assert cluster.metadata_log.partition.refresh().version == version
    assert directories(cluster.store) == set()


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1])
def test_a_count_of_partitions_that_is_not_allowed_writes_nothing(cluster: Cluster, partitions: int) -> None:
    with pytest.raises(InvalidArgument, match=f"cannot have {partitions} partitions"):
        create_topic(cluster, "t", partitions)
    with pytest.raises(InvalidConfig):
        create_topic(cluster, "t", 1, {"no.such": "setting"})
    assert directories(cluster.store) == set()


@pytest.mark.parametrize("name", ["t", "__cluster_metadata", "__consumer_offsets"])
def test_what_does_not_exist_cannot_be_changed(cluster: Cluster, name: str) -> None:
    for change in (
        lambda: alter_topic(cluster, name, {}),
        lambda: add_partitions(cluster, name, 2),
        lambda: delete_topic(cluster, name),
    ):
        with pytest.raises(UnknownTopic, match=f"no topic '{name}'"):
            change()


def test_settings_change_for_everyone_and_become_table_properties(cluster: Cluster) -> None:
    create_topic(cluster, "t", 2, {"compression.type": "lz4", "max.message.bytes": "9"})
    elsewhere = another(cluster)
    partition = elsewhere.topic("t").partition(0)
    alter_topic(cluster, "t", {"compression.type": None, "producer.id.expiration.ms": "5000"})
    elsewhere.refresh()
    config = elsewhere.topic("t").config
    assert config.overrides == {"max.message.bytes": "9", "producer.id.expiration.ms": "5000"}
    assert (partition.config.compression, partition.config.producer_expiration_ms) == ("zstd", 5000)
    for index in range(2):
        properties = another(cluster).topic("t").partition(index).snapshot.metadata.configuration
        assert properties["delta.setTransactionRetentionDuration"] == "interval 5 seconds"
    with pytest.raises(InvalidConfig):
        alter_topic(cluster, "t", {"compression.type": "brotli"})
    assert elsewhere.topic("t").config.overrides == config.overrides


def test_a_topic_whose_columns_would_be_too_long_can_still_be_altered(cluster: Cluster) -> None:
    """Columns that a later declaration leaves out stay in the topic's record, and count."""
    first, second = (
        ", ".join(f"{name}{index} string FROM '/{'x' * 500}'" for index in range(100)) for name in "ab"
    )
    create_topic(cluster, "t", configs={"value.columns": first})
    with pytest.raises(InvalidConfig, match="with those that were left out"):
        alter_topic(cluster, "t", {"value.columns": second})
    assert alter_topic(cluster, "t", {"value.columns": None}).config.columns.text == ""
    assert alter_topic(cluster, "t", {"retention.ms": "1000"}).config["retention.ms"] == "1000"


def test_a_topic_that_grows_keeps_what_it_has(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 1)
    topic.partition(0).claim("http://first")
    append(topic.partition(0), b"a")
    elsewhere = another(cluster)
    assert add_partitions(elsewhere, "t", 3).partition_count == 3
    with pytest.raises(UnknownPartition):
        topic.partition(2)
    cluster.refresh()
    assert cluster.topic("t") is topic
    assert topic.partition(2).high_watermark == 0
    assert values(topic.partition(0)) == [b"a"]
    for count in (3, 1):
        with pytest.raises(InvalidArgument, match="has 3 partitions"):
            add_partitions(cluster, "t", count)
    with pytest.raises(InvalidArgument):
        add_partitions(cluster, "t", PARTITIONS_MAX + 1)


def test_a_topic_that_was_deleted_is_gone_for_everyone_and_its_leaders_are_fenced(cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 2)
    elsewhere = another(cluster)
    leaders = [elsewhere.claim(elsewhere.topic("t"), index) for index in range(2)]
    delete_topic(cluster, "t")
    for leader in leaders:
        with pytest.raises(TopicDeleted):
            append(leader, b"lost")
    for process in (cluster, elsewhere):
        process.refresh()
        assert process.topics() == []
        with pytest.raises(UnknownTopic):
            process.topic("t")
        with pytest.raises(UnknownTopic):
            delete_topic(process, "t")
    with pytest.raises(UnknownTopic):
        elsewhere.claim(topic, 0)


def test_a_recreated_topic_has_nothing_of_the_old_one(cluster: Cluster) -> None:
    old = create_topic(cluster, "t", 2, {"compression.type": "gzip"})
    leader = cluster.claim(old, 0)
    append(leader, b"old")
    elsewhere = another(cluster)
    delete_topic(cluster, "t")
    new = create_topic(elsewhere, "t")
    assert (new.directory, new.partition_count, dict(new.config.overrides)) == ("topics/t~2", 1, {})
    assert new.topic_id != old.topic_id
    assert values(new.partition(0)) == []
    with pytest.raises(TopicDeleted):
        append(leader, b"late")
    cluster.refresh()
    assert cluster.topic("t").directory == "topics/t~2"
    delete_topic(cluster, "t")
    assert create_topic(cluster, "t").directory == "topics/t~3"
    assert check(cluster.store).problems == []


def test_a_deletion_fences_the_incarnation_that_it_deletes(cluster: Cluster) -> None:
    """Between the look at the topic and the deletion another process deletes it and makes it again."""
    create_topic(cluster, "t")
    elsewhere = another(cluster)
    leaders = []

    def remade() -> None:
        delete_topic(elsewhere, "t")
        leaders.append(elsewhere.claim(create_topic(elsewhere, "t"), 0))

    record = Fault(1, before(remade), {"put_new"}, "__cluster_metadata")
    slow = another(cluster, FaultyStore(cluster.store, [record]))
    try:
        delete_topic(slow, "t")
    except UnknownTopic:
        assert names(cluster) == ["t"]
        append(leaders[0], b"kept")
    else:
        assert names(cluster) == []
        with pytest.raises(TopicDeleted):
            append(leaders[0], b"lost")


def test_of_processes_that_create_one_topic_at_once_one_does(store_root: Path) -> None:
    processes = [Cluster.open(open_store(store_root), SystemClock(), f"http://{n}") for n in range(3)]
    start = threading.Barrier(3)

    def run(number: int) -> str:
        start.wait()
        try:
            topic = create_topic(processes[number], "t", 1 + number)
        except TopicExists:
            return ""
        partition = processes[number].claim(topic, number)
        append(partition, b"here")
        return topic.topic_id

    with ThreadPoolExecutor(3) as pool:
        made = [topic_id for topic_id in pool.map(run, range(3)) if topic_id]
    fresh = Cluster.open(open_store(store_root), SystemClock())
    assert [topic.topic_id for topic in fresh.topics()] == made
    assert values(fresh.topics()[0].partitions()[-1]) == [b"here"]
    assert directories(fresh.store) == {fresh.topics()[0].directory}
    assert check(fresh.store).problems == []


def test_processes_that_change_topics_at_once_take_turns(store_root: Path) -> None:
    processes = [Cluster.open(open_store(store_root), SystemClock(), f"http://{n}") for n in range(2)]
    start = threading.Barrier(2)

    def run(number: int) -> None:
        start.wait()
        for name in (f"{number}-a", f"{number}-b"):
            create_topic(processes[number], name)
        alter_topic(processes[number], f"{number}-a", {"compression.type": "lz4"})
        add_partitions(processes[number], f"{number}-a", 2)
        delete_topic(processes[number], f"{number}-b")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    for process in processes:
        assert names(process) == ["0-a", "1-a"]
        for topic in process.topics():
            assert (topic.partition_count, topic.config["compression.type"]) == (2, "lz4")
    assert check(open_store(store_root)).problems == []


def test_a_creation_that_another_overtakes_never_takes_over_its_directory(cluster: Cluster) -> None:
    elsewhere = another(cluster)

    def overtake() -> None:
        create_topic(elsewhere, "t")

    record = Fault(1, before(overtake), {"put_new"}, "__cluster_metadata")
    slow = another(cluster, FaultyStore(cluster.store, [record]))
    with pytest.raises(TopicExists):
        create_topic(slow, "t")
    topic = another(cluster).topic("t")
    assert topic.topic_id == elsewhere.topic("t").topic_id
    assert directories(cluster.store) == {topic.directory}
    elsewhere.claim(elsewhere.topic("t"), 0)
    append(elsewhere.topic("t").partition(0), b"kept")
    assert values(another(cluster).topic("t").partition(0)) == [b"kept"]


def test_a_directory_is_never_used_twice_whoever_creates_and_deletes_in_between(cluster: Cluster) -> None:
    """A slow creation has chosen its number; meanwhile another creates the topic and deletes it again."""
    elsewhere = another(cluster)

    def created_and_deleted() -> None:
        create_topic(elsewhere, "t")
        delete_topic(elsewhere, "t")

    record = Fault(1, before(created_and_deleted), {"put_new"}, "__cluster_metadata")
    slow = another(cluster, FaultyStore(cluster.store, [record]))
    used = {"topics/t", "topics/t~2"}
    try:
        create_topic(slow, "t")
    except TopicExists:
        pass
    else:
        delete_topic(slow, "t")
    cluster.clock.pause(30 * HOUR_MS / 1000)
    sweep(cluster)
    assert directories(cluster.store) == set()
    assert create_topic(cluster, "t").directory not in used
