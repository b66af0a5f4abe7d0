"""A topic that a mirror makes, for Kafka's clients: read-only, and read whole, over gaps and to the end."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.answer_line import errors_in
from api.kafka.handlers import RULES
from api.kafka.logs.list_offsets import OffsetSpec
from api.kafka.protocol import apis
from api.kafka.protocol.messages import configs
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from api.kafka.protocol.messages.replicas import ElectLeadersRequest, TopicPartitions
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from api.kafka.protocol.notation import Message
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit import kafka_transactions
from tests.kit.kafka import KafkaGateway, librdkafka_reader, produce, read_all
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_requests import VERSIONS, request_of
from tests.kit.mirrored import (
    END,
    OFFSETS,
    at_us,
    copy,
    key_of,
    mirrored_topic,
    promote,
    source,
    state_of,
    value_of,
)
from tests.kit.support import WAIT_S, wait_until

CHANGES = {Operation.WRITE, Operation.ALTER, Operation.DELETE, Operation.ALTER_CONFIGS}
CHANGING = sorted(
    key
    for key, rule in RULES.items()
    if any(kind is ResourceType.TOPIC and operation in CHANGES for operation, kind in rule.needs)
)
POLICY = ErrorCode.POLICY_VIOLATION


@pytest.fixture(scope="module")
def cluster(kafka: KafkaGateway) -> Cluster:
    """The root of the gateway, as a mirror's process opens it."""
    return Cluster.open(open_store(kafka.data))


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    return mirrored_topic(cluster, "mirrored").name


@pytest.fixture
def before(cluster: Cluster, topic: str) -> Iterator[None]:
    """Nothing changes the topic in a test."""
    state = state_of(cluster, topic)
    yield
    assert state_of(cluster, topic) == state


def requests(topic: str) -> Iterator[tuple[str, Message, int | None]]:
    """Each API that changes topics, with what changes a topic of its own; its name, and the version."""
    for key in CHANGING:
        version = VERSIONS.get(key)
        yield apis.APIS[key].name, request_of(apis.APIS[key].request, topic, "g"), version
    part = DeleteRecordsPartition(partition_index=0, offset=1)
    asked = DeleteRecordsTopic(name=topic, partitions=[part])
    yield "records", DeleteRecordsRequest(topics=[asked]), None
    grown = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    yield "growth", CreatePartitionsRequest(topics=[grown]), None
    setting = configs.IncrementalConfig(name="value.columns", config_operation=0, value="n bigint FROM '/n'")
    resource = configs.IncrementalConfigsResource(resource_type=2, resource_name=topic, configs=[setting])
    yield "columns", configs.IncrementalAlterConfigsRequest(resources=[resource]), None


@pytest.mark.usefixtures("before")
def test_each_api_that_changes_a_topic_is_refused(
    kafka: KafkaGateway, asking: Asker, cluster: Cluster, topic: str
) -> None:
    changed = set()
    for number, (name, theirs, version) in enumerate(requests(topic)):
        own = kafka.create_topic(f"own-{number}", 1, **{"retention.ms": "1000000"})
        assert kafka.running.produce(own, "x", "y", partition=0).is_success
        [mine] = [each for what, each, _ in requests(own) if what == name]
        known = state_of(cluster, own)
        asking.ask(mine, version)
        if state_of(cluster, own) != known:
            changed.add(name)
            assert set(errors_in(asking.ask(theirs, version))) == {"POLICY_VIOLATION"}, name
    assert changed == {"Produce", "DeleteTopics", "AlterConfigs", "growth", "records", "columns"}


@pytest.mark.usefixtures("before")
def test_no_producer_of_librdkafka_writes_to_it(kafka: KafkaGateway, topic: str) -> None:
    for settings in ({}, {"enable.idempotence": True}, {"acks": 1}):
        assert produce(kafka.bootstrap, topic, [b"x"], **settings).failed == ["POLICY_VIOLATION"]


@pytest.mark.usefixtures("before")
def test_no_transaction_takes_it_in(asking: Asker, topic: str) -> None:
    held = kafka_transactions.begin(asking, "into-a-mirror")
    assert kafka_transactions.add(asking, held, {topic: [0]}) == {topic: [POLICY]}
    assert kafka_transactions.produce(asking, held, topic, b"x").error_code == POLICY
    # There is nothing in it.
    assert kafka_transactions.end(asking, held, 3).error_code == ErrorCode.INVALID_TXN_STATE


def test_no_election_is_needed(asking: Asker, topic: str) -> None:
    asked = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=[0])])
    assert set(errors_in(asking.ask(asked))) == {"ELECTION_NOT_NEEDED"}


def test_a_gateway_that_lives_is_named_its_leader(asking: Asker, topic: str) -> None:
    """The table was claimed by the mirror, which no client can ask."""
    answer = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    leader = answer.topics[0].partitions[0].leader_id
    assert leader in {broker.node_id for broker in answer.brokers}


@pytest.mark.parametrize("start", [0, 7, 8, 10, 14, 16, 19, 20])
def test_librdkafka_reads_it_from_anywhere(kafka: KafkaGateway, topic: str, start: int) -> None:
    found = read_all(kafka.bootstrap, topic, start=start)
    assert [(each.offset, each.key, each.value, each.time[1]) for each in found] == [
        (offset, key_of(offset), value_of(offset), at_us(offset) // 1_000)
        for offset in OFFSETS
        if offset >= start
    ]


def test_it_is_read_by_few_bytes_at_a_time(kafka: KafkaGateway, topic: str) -> None:
    bounds = {"fetch.message.max.bytes": 1, "message.max.bytes": 1_000, "fetch.max.bytes": 1_000}
    found = read_all(kafka.bootstrap, topic, **bounds)
    assert [each.offset for each in found] == [*OFFSETS]


@pytest.mark.parametrize("offset", range(16, END + 1))
def test_a_fetch_in_the_gap_at_the_end_gets_on_to_the_high_watermark(
    asking: Asker, topic: str, offset: int
) -> None:
    """Kafka's Java client goes on behind the last offset of a batch, also of one without records."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)
    asked = FetchTopic(topic=topic, partitions=[part])
    wait_ms = int(WAIT_S * 1_000) if offset < END else 0
    answer = asking.ask(FetchRequest(topics=[asked], min_bytes=1, max_wait_ms=wait_ms), 12)
    found = answer.responses[0].partitions[0]
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, END, END)
    if offset == END:
        assert not found.records
        return
    batch = bytes(found.records)
    base, delta, count = (int.from_bytes(batch[a:b]) for a, b in ((0, 8), (23, 27), (57, 61)))
    assert (base, base + delta + 1, count) == (offset, END, 0)


def test_a_consumer_waits_at_the_high_watermark_for_what_comes(kafka: KafkaGateway, cluster: Cluster) -> None:
    """It hears of the end where the copy ends, not at the last record."""
    topic = mirrored_topic(cluster, "followed")
    consumer = librdkafka_reader(kafka.bootstrap)
    with closing(consumer):
        consumer.assign([TopicPartition(topic.name, 0, 15)])
        assert polled(consumer) == [("record", 15), ("end", END)]
        assert consumer.get_watermark_offsets(TopicPartition(topic.name, 0)) == (0, END)
        copy(cluster, topic, 0, [25], 27)
        assert polled(consumer) == [("record", 25), ("end", 27)]


def polled(consumer: Consumer) -> list[tuple[str, int | None]]:
    """All that comes up to the next end."""
    found: list[tuple[str, int | None]] = []
    while not found or found[-1][0] != "end":
        message = consumer.poll(WAIT_S)
        assert message is not None
        found.append(("end" if message.error() else "record", message.offset()))
    return found


def found_at(asking: Asker, topic: str, timestamp: int) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    answer = asking.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[part])]))
    found = answer.topics[0].partitions[0]
    return found.offset, found.timestamp


def test_offsets_are_found_by_time(asking: Asker, topic: str) -> None:
    def at(offset: int) -> int:
        return at_us(offset) // 1_000

    assert found_at(asking, topic, OffsetSpec.EARLIEST) == (0, -1)
    assert found_at(asking, topic, OffsetSpec.LATEST) == (END, -1)
    assert found_at(asking, topic, OffsetSpec.MAX_TIMESTAMP) == (15, at(15))
    assert found_at(asking, topic, at(10)) == (13, at(13))
    assert found_at(asking, topic, at(16)) == (-1, -1)


def test_a_group_reads_and_commits_it_and_goes_on_after_the_promotion(
    kafka: KafkaGateway, cluster: Cluster
) -> None:
    topic = mirrored_topic(cluster, "moved")
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "movers", "auto.offset.reset": "earliest"}

    def read(count: int) -> list[tuple[int | None, bytes | None]]:
        consumer = Consumer({**config, "enable.auto.commit": False})
        consumer.subscribe([topic.name])
        try:
            found = [message for _ in range(count) if (message := consumer.poll(WAIT_S)) is not None]
            consumer.commit(asynchronous=False)
            return [(message.offset(), message.value()) for message in found]
        finally:
            consumer.close()

    assert read(len(OFFSETS)) == [(offset, source(offset).value) for offset in OFFSETS]
    promote(cluster, topic.name)
    sent = produce(kafka.bootstrap, topic.name, [b"ours"])
    wait_until(lambda: bool(sent.placed), "it is written to")
    assert sent.placed == {b"ours": (0, END)}
    assert read(1) == [(END, b"ours")]
