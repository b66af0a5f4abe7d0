"""DeleteRecords."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker


def delete(asking: Asker, topic: str, partition: int, offset: int, version: int = 2) -> tuple[int, int]:
    """The log start and the error code in the answer."""
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])])
    (answer,) = asking.ask(asked, version).topics
    (found,) = answer.partitions
    assert (answer.name, found.partition_index) == (topic, partition)
    return found.low_watermark, found.error_code


@pytest.fixture
def topic(kafka: KafkaGateway, request: pytest.FixtureRequest) -> str:
    name = kafka.create_topic(request.node.name)
    assert kafka.running.produce(name, *range(5), partition=0).is_success
    return name


def test_records_before_an_offset_go(kafka: KafkaGateway, asking: Asker, topic: str) -> None:
    assert delete(asking, topic, 0, 2) == (2, 0)
    assert delete(asking, topic, 0, 1, version=0) == (2, 0)  # it never moves back
    assert delete(asking, topic, 0, 3, version=1) == (3, 0)
    assert delete(asking, topic, 0, -1) == (5, 0)
    offsets = kafka.running.client.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert offsets == {"beginning_offset": 5, "end_offset": 5}


def test_what_is_not_there_is_refused(asking: Asker, topic: str) -> None:
    assert delete(asking, topic, 0, 6) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(asking, topic, 0, -2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(asking, topic, 9, 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(asking, "absent", 0, 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(asking, "__consumer_offsets", 0, 0) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_librdkafka_deletes_records(kafka: KafkaGateway, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert done.result().low_watermark == 4
