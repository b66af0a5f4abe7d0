"""CreateTopics, CreatePartitions and DeleteTopics, by raw requests and by clients."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PlainNewTopic

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from api.kafka.topics.configs import ConfigSource
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from log_tables.limits import PARTITIONS_MAX
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker


def new_topic(name: str, partitions: int = -1, replicas: int = -1, **configs: str | None) -> CreatableTopic:
    """`configs` are Kafka's names with `_` for `.`."""
    settings = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)


def create(asking: Asker, *topics: CreatableTopic, check: bool = False, version: int = 7) -> list[Any]:
    answer = asking.ask(CreateTopicsRequest(topics=[*topics], validate_only=check), version)
    return list(answer.topics)


def grow(asking: Asker, name: str, count: int, *assigned: list[int], check: bool = False) -> Any:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    (result,) = asking.ask(CreatePartitionsRequest(topics=[topic], validate_only=check)).results
    return result


def delete(asking: Asker, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    return list(asking.ask(DeleteTopicsRequest(topics=[*topics])).responses)


def test_a_topic_is_made_with_its_settings_and_the_answer_says_how(
    kafka: KafkaGateway, asking: Asker
) -> None:
    asked = new_topic(
        "made", 3, 3, retention_ms=" 5000 ", min_insync_replicas="2", compression_type="producer"
    )
    (made,) = create(asking, asked)
    assert (made.error_code, made.error_message) == (0, None)
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    assert {each.name for each in made.configs} == {*KAFKA_SETTINGS}
    changed = {each.name: each.value for each in made.configs if each.config_source != 5}
    expected = {"retention.ms": "5000", "min.insync.replicas": "2", "compression.type": "producer"}
    assert changed == expected
    by_source = {
        each.name for each in made.configs if each.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    assert by_source == {*expected}
    seen = kafka.running.client.get("/topics/made").json()
    assert len(seen["partitions"]) == 3
    assert seen["configs"]["retention.ms"] == "5000"
    assert "min.insync.replicas" not in seen["configs"]  # HTTP shows what does something


def test_a_topic_without_numbers_gets_the_gateways(asking: Asker) -> None:
    (made,) = create(asking, new_topic("unnumbered"))
    assert (made.num_partitions, made.replication_factor) == (1, 1)


def test_nothing_is_made_when_it_is_only_checked(kafka: KafkaGateway, asking: Asker) -> None:
    good, bad = create(asking, new_topic("checked", 2), new_topic("wrong", 0), check=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, bytes(16))
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert kafka.running.client.get("/topics/checked").status_code == 404


def assigned(*brokers: list[int], first: int = 0, partitions: int = -1) -> CreatableTopic:
    topic = new_topic("refused", partitions)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=each)
        for number, each in enumerate(brokers, first)
    ]
    return topic


REFUSED = {
    "no partitions": (new_topic("refused", 0), ErrorCode.INVALID_PARTITIONS),
    "less than none": (new_topic("refused", -2), ErrorCode.INVALID_PARTITIONS),
    "too many": (new_topic("refused", PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (new_topic("refused", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "a bad name": (new_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an internal name": (new_topic("__transaction_state"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an unknown setting": (new_topic("refused", no_such="1"), ErrorCode.INVALID_CONFIG),
    "a bad value": (new_topic("refused", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "a bad value without effect": (new_topic("refused", min_insync_replicas="0"), ErrorCode.INVALID_CONFIG),
    "a promise": (new_topic("refused", remote_log_copy_disable="true"), ErrorCode.INVALID_CONFIG),
    "no value": (new_topic("refused", retention_ms=None), ErrorCode.INVALID_CONFIG),
    "assigned and counted": (assigned([1], partitions=1), ErrorCode.INVALID_REQUEST),
    "assigned from 1 on": (assigned([1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned to nobody": (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned twice": (assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned to strangers": (assigned([99]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize(("topic", "code"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_topic_is_refused_with_kafkas_code(asking: Asker, topic: CreatableTopic, code: int) -> None:
    (refused,) = create(asking, topic)
    assert refused.error_code == code
    assert refused.error_message
    assert refused.topic_id == bytes(16)


def test_a_name_twice_and_one_that_exists(asking: Asker) -> None:
    twice = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    (refused,) = create(asking, twice, twice)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert create(asking, twice)[0].error_code == 0
    assert create(asking, twice)[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    setting = CreatableTopicConfig(name="retention.ms", value="1")
    wrong = CreatableTopic(name="other", num_partitions=1, replication_factor=1, configs=[setting, setting])
    assert create(asking, wrong)[0].error_code == ErrorCode.INVALID_REQUEST


def test_assigned_replicas_count_the_partitions(asking: Asker) -> None:
    topic = assigned([1], [1])
    topic.name = "assigned"
    (made,) = create(asking, topic)
    assert (made.error_code, made.num_partitions) == (0, 2)


def test_partitions_are_added(asking: Asker) -> None:
    create(asking, new_topic("grows", 2))
    assert grow(asking, "grows", 4, check=True) == CreatePartitionsTopicResult(name="grows")
    assert grow(asking, "grows", 3, [1]).error_code == 0  # it had 2 until now
    assert grow(asking, "grows", 3).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(asking, "grows", 0).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(asking, "grows", 5, [1]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(asking, "grows", 4, [99]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(asking, "absent", 5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(asking, "__cluster_metadata", 5).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = CreatePartitionsTopic(name="grows", count=9, assignments=None)
    (twice,) = asking.ask(CreatePartitionsRequest(topics=[topic, topic])).results
    assert twice.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_is_deleted_by_its_name_or_its_id(asking: Asker) -> None:
    old, other = create(asking, new_topic("gone"), new_topic("gone-too"))
    by_name, by_id = DeleteTopicState(name="gone"), DeleteTopicState(topic_id=other.topic_id)
    first, second = delete(asking, by_name, by_id)
    assert (first.name, first.error_code) == ("gone", 0)
    assert (second.name, second.topic_id, second.error_code) == ("gone-too", other.topic_id, 0)
    (new,) = create(asking, new_topic("gone"))
    (refused,) = delete(asking, DeleteTopicState(topic_id=old.topic_id))
    assert (refused.name, refused.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert new.topic_id != old.topic_id
    assert delete(asking, by_name)[0].error_code == 0
    assert delete(asking, by_name)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(asking, by_name, by_name)[0].error_code == ErrorCode.INVALID_REQUEST
    both = DeleteTopicState(name="gone", topic_id=new.topic_id)
    assert delete(asking, both)[0].error_code == ErrorCode.INVALID_REQUEST
    assert delete(asking, DeleteTopicState())[0].error_code == ErrorCode.INVALID_REQUEST
    internal = DeleteTopicState(name="__cluster_metadata")
    assert delete(asking, internal)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_each_version_is_answered(asking: Asker) -> None:
    for version in range(2, 8):
        (made,) = create(asking, new_topic(f"version-{version}", 1, 1), version=version)
        assert (made.name, made.error_code) == (f"version-{version}", 0)
    for version in range(4):
        topic = CreatePartitionsTopic(name="version-2", count=version + 2, assignments=None)
        (grown,) = asking.ask(CreatePartitionsRequest(topics=[topic]), version).results
        assert grown.error_code == 0
    for version in range(1, 6):
        asked = DeleteTopicsRequest(topic_names=[f"version-{version + 1}"])
        (gone,) = asking.ask(asked, version).responses
        assert (gone.name, gone.error_code) == (f"version-{version + 1}", 0)


def test_the_bound_of_all_partitions_is_no_quota(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path, partitions_max=3) as gateway, asker(gateway.port) as asking:
        assert create(asking, new_topic("four", 4))[0].error_code == ErrorCode.POLICY_VIOLATION
        assert create(asking, new_topic("three", 3))[0].error_code == 0
        assert grow(asking, "three", 4).error_code == ErrorCode.POLICY_VIOLATION


def test_librdkafka_administers_topics(kafka: KafkaGateway) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = NewTopic("rd", num_partitions=2, replication_factor=3, config={"cleanup.policy": "compact"})
    assert admin.create_topics([topic])["rd"].result() is None
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([topic])["rd"].result()
    assert admin.create_partitions([NewPartitions("rd", 3)])["rd"].result() is None
    assert len(admin.list_topics("rd").topics["rd"].partitions) == 3
    assert admin.delete_topics(["rd"])["rd"].result() is None
    assert "rd" not in admin.list_topics().topics


def test_kafka_python_administers_topics(kafka: KafkaGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        admin.create_topics([PlainNewTopic("kp", 2, 1)])
        assert "kp" in admin.list_topics()
        (described,) = admin.describe_topics(["kp"])
        assert len(described["partitions"]) == 2
        admin.delete_topics(["kp"])
        assert "kp" not in admin.list_topics()
    finally:
        admin.close()
