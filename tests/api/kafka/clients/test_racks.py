"""Racks: a client reads from the gateway that stands where it does (KIP-392)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial

import httpx
import pytest
from confluent_kafka import Consumer

from api.kafka.clients.racks import ReadReplicas
from api.kafka.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from coordinator.brokers.leadership import preferred_leaders
from log_tables.cluster.metadata_log import BrokerRecord
from tests.kit.gateway import NEVER_MS
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import asker
from tests.kit.kafka_groups import unique
from tests.kit.kafka_programs import kafka_tool
from tests.kit.several import brokers, leaders
from tests.kit.support import WAIT_S, wait_until

PARTITIONS, RECORDS = 4, 40


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaGateway, KafkaGateway]]:
    """Gateways 1 and 2 of one root, in the racks a and b."""
    root = tmp_path_factory.mktemp("racks")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(kafka_gateway(root, broker_rack=rack, leader_timeout_ms=NEVER_MS))
            for rack in "ab"
        )
        for each in (one, two):
            wait_until(partial(sees_both, each), "each gateway sees the other")
        yield one, two


def sees_both(gateway: KafkaGateway) -> bool:
    return len([each for each in brokers(gateway.running.url) if each["alive"]]) == 2


@pytest.fixture
def topic(racks: tuple[KafkaGateway, KafkaGateway]) -> str:
    """A topic of which each gateway leads half."""
    one, _ = racks
    name = one.create_topic(unique("racked"), PARTITIONS)
    for number in range(RECORDS):
        assert one.running.produce(name, number, partition=number % PARTITIONS).is_success
    wait_until(lambda: sorted(leaders(one.running.url, name)) == [1, 1, 2, 2], "both lead")
    return name


def fetched(gateway: KafkaGateway, topic: str, racks: Sequence[str]) -> list[list[PartitionData]]:
    """The answers to one client that asks in the name of each of `racks` in turn."""
    parts = [FetchPartition(partition=each, partition_max_bytes=1_000_000) for each in range(PARTITIONS)]
    found = []
    with asker(gateway.port) as asking:
        for rack in racks:
            asked = FetchRequest(topics=[FetchTopic(topic=topic, partitions=parts)], rack_id=rack)
            found.append(asking.ask(asked, 12).responses[0].partitions)
    return found


def read_by(gateway: KafkaGateway, topic: str) -> float:
    """How many records of the topic a gateway has given to readers."""
    name = f'lakelog_fetch_records_total{{topic="{topic}"}}'
    lines = httpx.get(f"{gateway.running.url}/metrics").text.splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(name))


def test_racks_are_told(racks: tuple[KafkaGateway, KafkaGateway], topic: str) -> None:
    one, _ = racks
    with asker(one.port) as asking:
        answer = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        assert {each.node_id: each.rack for each in answer.brokers} == {1: "a", 2: "b"}
        for part in answer.topics[0].partitions:
            assert part.replica_nodes == part.isr_nodes == [part.leader_id, 3 - part.leader_id]
        described = asking.ask(DescribeClusterRequest())
        assert {each.broker_id: each.rack for each in described.brokers} == {1: "a", 2: "b"}
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
        assert all(len(each.replica_nodes) == 1 for each in asking.ask(asked).topics[0].partitions)
    assert {each["broker"]: each["rack"] for each in brokers(one.running.url)} == {1: "a", 2: "b"}


def test_a_client_is_sent_to_its_rack_once(racks: tuple[KafkaGateway, KafkaGateway], topic: str) -> None:
    """A client that comes back cannot go there, and would else be sent on for ever."""
    one, two = racks
    sent, back = fetched(one, topic, ["b", "b"])
    assert [(each.preferred_read_replica, bool(each.records)) for each in sent] == [(2, False)] * PARTITIONS
    assert all(each.high_watermark == RECORDS // PARTITIONS for each in sent)
    assert [(each.preferred_read_replica, bool(each.records)) for each in back] == [(-1, True)] * PARTITIONS
    for gateway, rack in ((one, "a"), (two, "b"), (one, "elsewhere"), (one, "")):
        (served,) = fetched(gateway, topic, [rack])
        assert all(each.records and each.preferred_read_replica == -1 for each in served)


@pytest.mark.parametrize("rack", ["a", "b"])
def test_librdkafka_reads_all_in_its_rack(
    racks: tuple[KafkaGateway, KafkaGateway], topic: str, rack: str
) -> None:
    own = {"bootstrap.servers": racks[0].bootstrap, "group.id": unique("g"), "client.rack": rack}
    with closing(Consumer({**own, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        found: list[object] = []
        while len(found) < RECORDS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            found.append(message)
    assert [read_by(each, topic) for each in racks] == [RECORDS * (rack == each) for each in "ab"]


def test_java_reads_all_in_its_rack(racks: tuple[KafkaGateway, KafkaGateway], topic: str) -> None:
    kafka_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", racks[0].bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", f"{RECORDS}", "--command-property", "client.rack=b"),
    )
    assert [read_by(each, topic) for each in racks] == [0, RECORDS]


def test_a_rack_shares_its_reads() -> None:
    """The leader answers where it stands in the rack, and else all gateways of the rack in turn."""
    gateways = [
        BrokerRecord(number, "", "", 0, kafka="h:1", rack=rack) for number, rack in enumerate("aabb-", 1)
    ]
    leading = [1, 3, 5, 1, 3, 5]
    found = [*ReadReplicas(gateways).each("t", leading)]
    in_a, in_b, in_last = (preferred_leaders("t", 6, which) for which in ((1, 2), (3, 4), (5,)))
    assert found == [
        [1, in_b[0], in_last[0]],
        [3, in_a[1], in_last[1]],
        [5, in_a[2], in_b[2]],
        [1, in_b[3], in_last[3]],
        [3, in_a[4], in_last[4]],
        [5, in_a[5], in_b[5]],
    ]
    assert [*ReadReplicas([BrokerRecord(1, "", "", 0), BrokerRecord(2, "", "", 0)]).each("t", [1, 2])] == [
        [1],
        [2],
    ]
