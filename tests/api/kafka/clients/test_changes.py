"""Changes of topics by clients that are somebody: what they may do, what is audited, what they pay."""

from collections.abc import Iterator

import pytest

from api.kafka.clients.door import named_once
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import DescribeTopicPartitionsRequest, TopicRequest
from api.kafka.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from api.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.limits import KAFKA_RESOURCES_MAX
from tests.kit.audits import short, wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.secured import Secured, acl, everything

ANN, BOB, CAT = "User:ann", "User:bob", "User:cat"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.allow(*everything(ANN), acl(BOB, Operation.CREATE, ResourceType.TOPIC, "bob-*"))
    made.allow(*everything(CAT, [ResourceType.TOPIC]))
    made.cluster.metadata_log.change_access(
        lambda _: [quota_record(CAT, Quota(controller_mutation_rate=2.0))]
    )
    return made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    return {principal: secured.key(principal) for principal in (ANN, BOB, CAT)}


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    assert keys
    with kafka_gateway(secured.cluster.store.url, authentication_methods="api-key") as running:
        yield running


@pytest.fixture
def ann(gateway: KafkaGateway, keys: dict[str, str]) -> Iterator[Asker]:
    with asker(gateway.port) as client:
        client.key(keys[ANN])
        yield client


@pytest.fixture
def bob(gateway: KafkaGateway, keys: dict[str, str]) -> Iterator[Asker]:
    with asker(gateway.port) as client:
        client.key(keys[BOB])
        yield client


def new_topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    )


def grown(name: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])


def altered(name: str) -> IncrementalAlterConfigsRequest:
    change = IncrementalConfig(name="flush.ms", value="5")
    resource = IncrementalConfigsResource(resource_type=2, resource_name=name, configs=[change])
    return IncrementalAlterConfigsRequest(resources=[resource])


def deleted(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])


def records_deleted(name: str) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=0, offset=-1)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[part])])


def test_a_request_names_each_resource_once_and_not_too_many() -> None:
    names = [*map(str, range(KAFKA_RESOURCES_MAX)), "0", "beyond"]
    judged = dict(named_once(names, str))
    assert [*judged] == [*dict.fromkeys(names)]
    refused = {name: refusal.code for name, refusal in judged.items() if refusal is not None}
    assert refused == {"0": ErrorCode.INVALID_REQUEST, "beyond": ErrorCode.POLICY_VIOLATION}


def test_each_change_is_audited_once(gateway: KafkaGateway, ann: Asker) -> None:
    assert ann.ask(new_topic("audited")).topics[0].error_code == 0
    assert ann.ask(grown("audited", 2)).results[0].error_code == 0
    assert ann.ask(altered("audited")).responses[0].error_code == 0
    assert ann.ask(records_deleted("audited")).topics[0].partitions[0].error_code == 0
    assert ann.ask(deleted("audited")).responses[0].error_code == 0
    where = f"principal = '{ANN}' and resource_name = 'audited'"
    found = wait_for_audit(gateway.data, where, 5)
    assert short(found, "operation", "resource_type") == [
        (operation, "TOPIC")
        for operation in (
            "CreateTopics",
            "CreatePartitions",
            "IncrementalAlterConfigs",
            "DeleteRecords",
            "DeleteTopics",
        )
    ]


def test_a_check_is_no_change_and_a_failure_is_audited(gateway: KafkaGateway, ann: Asker) -> None:
    checked = new_topic("only-checked")
    checked.validate_only = True
    assert ann.ask(checked).topics[0].error_code == 0
    assert ann.ask(deleted("never-there")).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (failure,) = wait_for_audit(gateway.data, "resource_name = 'never-there'")
    assert failure["operation"] == "DeleteTopics"
    assert wait_for_audit(gateway.data, "resource_name = 'only-checked'", 0) == []


def test_nobody_changes_what_no_acl_lets_them(ann: Asker, bob: Asker) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (made,) = ann.ask(new_topic("anns")).topics
    for name in ("anns", "absent"):  # the answer does not say whether it exists
        assert bob.ask(new_topic(name)).topics[0].error_code == denied
        assert bob.ask(grown(name, 5)).results[0].error_code == denied
        assert bob.ask(altered(name)).responses[0].error_code == denied
        assert bob.ask(deleted(name)).responses[0].error_code == denied
        assert bob.ask(records_deleted(name)).topics[0].partitions[0].error_code == denied
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        assert bob.ask(asked).topics[0].error_code == denied
    for topic_id in (made.topic_id, b"x" * 16):
        (refused,) = bob.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])).responses
        assert (refused.name, refused.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert bob.ask(DescribeTopicPartitionsRequest()).topics == []
    broker = IncrementalConfigsResource(resource_type=4, resource_name="1")
    (refused,) = bob.ask(IncrementalAlterConfigsRequest(resources=[broker])).responses
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_topic_may_be_made_by_somebody_who_may_not_read_its_settings(bob: Asker) -> None:
    (made,) = bob.ask(new_topic("bob-1", 2)).topics
    assert (made.error_code, made.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, None)


def test_changes_beyond_a_quota_are_refused_with_the_time_to_wait(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as cat:
        cat.key(keys[CAT])
        first = cat.ask(new_topic("cats-0", 62))
        assert first.topics[0].error_code == 0  # a second's worth is there, and more is a debt
        refused = cat.ask(new_topic("cats-1"))
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 25_000 < refused.throttle_time_ms <= 30_000
        assert cat.ask(grown("cats-0", 63)).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert cat.ask(deleted("cats-0")).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
