"""Names and settings of topics: Kafka's, checked, and never a path out of the root."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic, check_topic_name, check_writable, is_internal
from log_tables.errors import CorruptLog, InvalidTopicName, LakelogError, UnknownPartition
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.store.store import Store, open_store
from log_tables.table.table import create_table
from log_tables.topic_table.topic_table import TopicTable


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "..a", "-", "a" * 249, "__internal", "0"])
def test_kafkas_names_are_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a" * 250, "a/b", "../a", "a b", "a\n", "ä", "a~2", "a\\b", "%2e", "a\x00", "topic:1"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


@given(st.text(max_size=300))
def test_no_name_that_is_allowed_leads_out_of_its_directory(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return
    parts = partition_directory(topic_directory(name, 2), 0).split("/")
    assert parts == ["topics", f"{name}~2", "partition=0"]
    assert len(parts[1].encode()) < 255


def test_a_name_that_is_too_long_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidTopicName, match="has 5000 characters; use 1 to 249") as raised:
        check_topic_name("x" * 5000)
    assert len(raised.value.message) < 200


@pytest.mark.parametrize("name", ["__debezium-heartbeat.x", "__strimzi_canary", "__", "__auditing", "_x"])
def test_programs_may_have_topics_with_two_underscores(name: str) -> None:
    assert not is_internal(name)
    check_writable(name)


@pytest.mark.parametrize("name", ["__audit", "__transaction_state", "__lakelog", "__lakelog.x"])
def test_names_that_are_reserved_are_no_topics_of_clients(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="is internal to lakelog"):
        check_writable(name)


def test_internal_topics_are_read_and_never_written() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("_mine")
    check_writable("_mine")
    with pytest.raises(InvalidTopicName, match="internal"):
        check_writable("__consumer_offsets")


@pytest.fixture
def store(clock: ManualClock) -> Store:
    store = open_store("memory://")
    for index in range(2):
        create_table(store, f"topics/t~3/partition={index}", clock)
    return store


@pytest.fixture
def topic(store: Store, clock: ManualClock) -> Topic:
    def opened(directory: str, config: PartitionConfig) -> Partition:
        return Partition(store, directory, clock, config)

    return Topic(opened, lambda at: TopicTable(store, at, clock), "t", "id", 3, 2, TopicConfig())


def test_a_partition_is_opened_at_its_first_use_and_once(topic: Topic) -> None:
    assert topic.directory == "topics/t~3"
    assert (topic.opened(), topic.is_open(1)) == ([], False)
    partition = topic.partition(1)
    assert partition.directory == "topics/t~3/partition=1"
    assert topic.partition(1) is partition
    assert topic.opened() == [(1, partition)]
    assert topic.partitions() == [topic.partition(0), partition]


@pytest.mark.parametrize("index", [-1, 2, 10**9])
def test_a_partition_that_does_not_exist_is_named(topic: Topic, index: int) -> None:
    with pytest.raises(UnknownPartition, match=f"topic t has no partition {index}; it has 0 to 1"):
        topic.partition(index)


def test_new_settings_reach_open_partitions(topic: Topic) -> None:
    partition = topic.partition(0)
    topic.update(
        2, TopicConfig.parse({"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"})
    )
    assert partition.config == PartitionConfig("gzip", True, 86_400_000, schemas=topic.schemas)
    assert topic.partition(1).config == partition.config


def test_a_partition_whose_table_is_lost_says_so(topic: Topic, store: Store) -> None:
    store.delete("topics/t~3/partition=0/_delta_log/00000000000000000000.json")
    with pytest.raises(CorruptLog, match="names the table topics/t~3/partition=0, which is missing"):
        topic.partition(0)
    assert isinstance(topic.partition(1).snapshot.version, int)
    with pytest.raises(LakelogError):
        topic.partitions()
