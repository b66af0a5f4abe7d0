"""Metadata of topics that are asked for by their ids."""

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_groups import unique


def _found(asking: Asker, *asked: MetadataRequestTopic) -> list[MetadataResponseTopic]:
    """Nothing is made for asking."""
    answer = asking.ask(MetadataRequest(topics=[*asked], allow_auto_topic_creation=False))
    topics: list[MetadataResponseTopic] = answer.topics
    return topics


@pytest.mark.parametrize("name", [None, "", "another"])
def test_an_id_counts_whatever_name_is_beside_it(
    kafka: KafkaGateway, asking: Asker, name: str | None
) -> None:
    """Java's consumers ask so for the topics that an expression of RE2 has matched, with an empty name."""
    topic = kafka.create_topic(unique("topic"), 2)
    (by_name,) = _found(asking, MetadataRequestTopic(name=topic))
    (by_id,) = _found(asking, MetadataRequestTopic(topic_id=by_name.topic_id, name=name))
    assert (by_id.error_code, by_id.name, len(by_id.partitions)) == (ErrorCode.NONE, topic, 2)


@pytest.mark.parametrize("name", [None, ""])
def test_an_id_that_nobody_has_is_unknown(asking: Asker, name: str | None) -> None:
    (refused,) = _found(asking, MetadataRequestTopic(topic_id=b"x" * 16, name=name))
    assert (refused.error_code, refused.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"x" * 16)
