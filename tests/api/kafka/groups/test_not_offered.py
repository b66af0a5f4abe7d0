"""Topics that are hidden from Kafka's clients."""

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from tests.kit.kafka_asking import Asker


def test_the_topic_of_the_groups_is_named_nowhere(asking: Asker) -> None:
    """A client that finds the topic would read it, but it is not in Kafka's format."""
    name = "__consumer_offsets"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    assert asking.ask(asked, 9).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in {each.name for each in asking.ask(MetadataRequest(topics=None), 9).topics}
    described = asking.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])).topics
    assert [each.error_code for each in described] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
