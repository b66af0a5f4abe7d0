"""The operations that answers list where a client asks for them."""

from collections.abc import Iterator

import pytest

from api.kafka.clients.client import NOT_ASKED
from api.kafka.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from api.kafka.protocol.messages.groups import DescribeGroupsRequest
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_groups import joined
from tests.kit.secured import Secured, acl

BOB = "User:bob"
DESCRIBE, WRITE, ALTER = 1 << 8, 1 << 4, 1 << 7
READ, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 1 << 3, 1 << 6, 1 << 10, 1 << 11


@pytest.fixture(scope="module")
def bob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """A client that may write to one of two topics, and describe the other."""
    secured = Secured(tmp_path_factory.mktemp("root"))
    key, admin = secured.key(BOB), secured.key()
    secured.allow(
        acl(BOB, Operation.WRITE, ResourceType.TOPIC, "written"),
        acl(BOB, Operation.DESCRIBE, ResourceType.TOPIC, "seen"),
        acl(BOB, Operation.ALTER, ResourceType.CLUSTER),
        acl(BOB, Operation.ALL, ResourceType.GROUP, "bobs"),
    )
    with kafka_gateway(secured.cluster.store.url, authentication_methods="api-key") as gateway:
        _make(gateway, admin, "written", "seen", "hidden")
        with asker(gateway.port) as client:
            client.key(key)
            yield client


def _make(gateway: KafkaGateway, key: str, *topics: str) -> None:
    with asker(gateway.port) as client:
        client.key(key)
        named = [MetadataRequestTopic(name=name) for name in topics]
        made = client.ask(MetadataRequest(topics=named, allow_auto_topic_creation=True))
        assert [topic.error_code for topic in made.topics] == [0] * len(topics)


def test_metadata_lists_them_for_topics_and_the_cluster(bob: Asker) -> None:
    asked = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    found = {topic.name: topic.topic_authorized_operations for topic in bob.ask(asked).topics}
    assert found == {"written": WRITE | DESCRIBE, "seen": DESCRIBE}
    of_cluster = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    assert bob.ask(of_cluster, 10).cluster_authorized_operations == ALTER | DESCRIBE


def test_they_are_not_told_unasked(bob: Asker) -> None:
    found = bob.ask(MetadataRequest(topics=None), 9)
    assert {topic.topic_authorized_operations for topic in found.topics} == {NOT_ASKED}
    assert found.cluster_authorized_operations == NOT_ASKED
    assert bob.ask(DescribeClusterRequest()).cluster_authorized_operations == NOT_ASKED


def test_descriptions_list_them(bob: Asker) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert bob.ask(asked).cluster_authorized_operations == ALTER | DESCRIBE
    found = bob.ask(DescribeTopicPartitionsRequest()).topics
    assert [(topic.name, topic.topic_authorized_operations) for topic in found] == [
        ("seen", DESCRIBE),
        ("written", WRITE | DESCRIBE),
    ]


def test_settings_of_groups_have_operations(bob: Asker) -> None:
    """Kafka has them since groups have settings."""
    joined(bob, "bobs")
    asked = DescribeGroupsRequest(groups=["bobs"], include_authorized_operations=True)
    of_group = bob.ask(asked).groups[0].authorized_operations
    assert of_group == READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
