"""An API that the gateway does not offer is refused at once, with a reason that clients show."""

import pytest
from confluent_kafka import KafkaException, Producer

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker
from tests.kit.support import WAIT_S


def test_a_transactional_producer_of_librdkafka_ends_at_once(kafka: KafkaGateway, asking: Asker) -> None:
    """The producer would repeat an error that it takes for a passing one."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
    with pytest.raises(KafkaException, match="transactions are not offered") as caught:
        producer.init_transactions(10 * WAIT_S)
    assert caught.value.args[0].fatal()
    answer = asking.ask(InitProducerIdRequest(transactional_id="tx"))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_topic_of_the_groups_is_named_nowhere(asking: Asker) -> None:
    """A client that finds the topic would read it, but it is not in Kafka's format."""
    name = "__consumer_offsets"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    assert asking.ask(asked, 9).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in {each.name for each in asking.ask(MetadataRequest(topics=None), 9).topics}
    described = asking.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])).topics
    assert [each.error_code for each in described] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
