"""Gateways behind one address are one broker to Kafka's clients: of two, kafkajs would lose records."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from api.kafka.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from api.kafka.protocol.messages.groups import FindCoordinatorRequest
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from api.kafka.topics.configs import ConfigResourceType
from tests.kit.gateway import NEVER_MS
from tests.kit.kafka import Balanced, balanced, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.record_batches import Sent, kafka_python_batch

TOPIC, PARTITIONS = "shared", 4


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    with balanced(tmp_path_factory.mktemp("balanced")) as found:
        found.gateways[0].create_topic(TOPIC, PARTITIONS)
        yield found


def check(asking: Asker, node: int, address: str) -> None:
    """Whatever names a broker names `node`, at the address that all have."""
    host, port = address.split(":")
    found = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    assert [(each.node_id, each.host, each.port) for each in found.brokers] == [(node, host, int(port))]
    assert found.controller_id == node
    partitions = found.topics[0].partitions
    assert [(part.leader_id, part.replica_nodes) for part in partitions] == [(node, [node])] * PARTITIONS
    cluster = asking.ask(DescribeClusterRequest(include_fenced_brokers=True))
    assert [each.broker_id for each in cluster.brokers] == [node]
    for number in range(4):
        (found,) = asking.ask(FindCoordinatorRequest(coordinator_keys=[f"group-{number}"])).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, node)
        assert (found.host, found.port) == (host, int(port))


def test_clients_hear_of_one_broker(several: Balanced) -> None:
    for gateway in several.gateways:
        with asker(gateway.port) as asking:
            check(asking, 2, several.bootstrap)


def test_whoever_is_asked_has_the_settings_of_that_broker(several: Balanced) -> None:
    for gateway in several.gateways:
        with asker(gateway.port) as asking:
            asked = DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name="2")
            (found,) = asking.ask(DescribeConfigsRequest(resources=[asked])).results
            assert (found.error_code, bool(found.configs)) == (ErrorCode.NONE, True)


def test_a_batch_that_is_forwarded_names_no_other_leader(several: Balanced) -> None:
    batch = kafka_python_batch([Sent(None, b"v", 1)])
    parts = [PartitionProduceData(index=each, records=batch) for each in range(PARTITIONS)]
    topic = TopicProduceData(name=TOPIC, partition_data=parts)
    for gateway in several.gateways:
        with asker(gateway.port) as asking:
            answer = asking.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 12)
        found = answer.responses[0].partition_responses
        assert [part.error_code for part in found] == [ErrorCode.NONE] * PARTITIONS
        assert [part.current_leader for part in found] == [None] * PARTITIONS
        assert answer.node_endpoints == []


def test_one_that_was_killed_is_no_broker_beside_its_successor(tmp_path: Path) -> None:
    """It comes again as another gateway, while the first one is taken for alive."""
    with kafka_gateway(tmp_path / "root", leader_timeout_ms=NEVER_MS) as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)
        gateway.kill()
        gateway.start()
        with asker(gateway.port) as asking:
            check(asking, 2, gateway.bootstrap)
