"""AlterConfigs and IncrementalAlterConfigs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry
from confluent_kafka.admin._config import ConfigResource as RdResource

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages import configs
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from api.kafka.topics.config_changes import AlterOperation
from api.kafka.topics.configs import ConfigResourceType
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker, asker

SET, DELETE, APPEND, SUBTRACT = AlterOperation
TOPIC = ConfigResourceType.TOPIC

Change = tuple[str, int, str | None]


def overrides(asking: Asker, topic: str) -> dict[str, str]:
    """The settings that were set, as a client reads them."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    (result,) = asking.ask(DescribeConfigsRequest(resources=[resource])).results
    return {each.name: each.value for each in result.configs if each.config_source == 1}


def increment(
    asking: Asker, topic: str, *changes: Change, check: bool = False, version: int = 1, kind: int = TOPIC
) -> Any:
    resource = configs.IncrementalConfigsResource(
        resource_type=kind,
        resource_name=topic,
        configs=[
            configs.IncrementalConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)
    (result,) = asking.ask(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, topic)
    return result


def replace(
    asking: Asker, topic: str, wanted: dict[str, str | None], check: bool = False, version: int = 2
) -> Any:
    entries = [configs.AlterableConfig(name=name, value=value) for name, value in wanted.items()]
    resource = configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=entries)
    (result,) = asking.ask(AlterConfigsRequest(resources=[resource], validate_only=check), version).responses
    return result


@pytest.fixture
def topic(kafka: KafkaGateway, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return kafka.create_topic(name[:200])


def test_settings_are_set_and_reset_one_by_one(kafka: KafkaGateway, asking: Asker, topic: str) -> None:
    assert increment(asking, topic, ("retention.ms", SET, "7"), ("flush.ms", SET, " 9 ")).error_code == 0
    assert increment(asking, topic, ("preallocate", SET, "TRUE"), version=0).error_code == 0
    assert overrides(asking, topic) == {"retention.ms": "7", "flush.ms": "9", "preallocate": "true"}
    kafka.running.alter_topic(topic, retention_bytes="5")  # the other door keeps what it does not show
    assert increment(asking, topic, ("flush.ms", DELETE, None), ("segment.ms", DELETE, None)).error_code == 0
    assert overrides(asking, topic) == {"retention.ms": "7", "preallocate": "true", "retention.bytes": "5"}


def test_nothing_changes_when_it_is_only_checked(asking: Asker, topic: str) -> None:
    assert increment(asking, topic, ("retention.ms", SET, "7"), check=True).error_code == 0
    assert replace(asking, topic, {"retention.ms": "7"}, check=True).error_code == 0
    assert overrides(asking, topic) == {}


def test_words_are_put_into_lists_and_taken_out(asking: Asker, topic: str) -> None:
    policy, throttled = "cleanup.policy", "leader.replication.throttled.replicas"
    assert increment(asking, topic, (policy, APPEND, "compact")).error_code == 0
    assert overrides(asking, topic) == {policy: "delete,compact"}
    assert increment(asking, topic, (policy, APPEND, "compact")).error_code == 0
    assert increment(asking, topic, (policy, SUBTRACT, "delete")).error_code == 0
    assert overrides(asking, topic) == {policy: "compact"}
    assert increment(asking, topic, (policy, SET, "compact, delete")).error_code == 0
    assert overrides(asking, topic) == {policy: "compact,delete"}
    assert increment(asking, topic, (policy, SUBTRACT, "compact,delete")).error_code == 0
    assert overrides(asking, topic) == {policy: ""}  # neither: all records stay
    assert increment(asking, topic, (policy, APPEND, "compact")).error_code == 0
    assert overrides(asking, topic) == {policy: "compact"}
    assert increment(asking, topic, (throttled, APPEND, "0:1,1:1"), (policy, DELETE, None)).error_code == 0
    assert increment(asking, topic, (throttled, SUBTRACT, "0:1")).error_code == 0
    assert overrides(asking, topic) == {throttled: "1:1"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such", DELETE, None), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (("message.timestamp.after.max.ms", SET, "-1"), ErrorCode.INVALID_CONFIG),
        (("follower.replication.throttled.replicas", SET, "one"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_wrong_change_changes_nothing(asking: Asker, topic: str, change: Change, code: int) -> None:
    refused = increment(asking, topic, ("segment.ms", SET, "8"), change)
    assert refused.error_code == code
    assert change[0] in refused.error_message or code == ErrorCode.INVALID_REQUEST
    assert overrides(asking, topic) == {}


def test_settings_that_exclude_each_other_are_refused_together(asking: Asker, topic: str) -> None:
    assert increment(asking, topic, ("local.retention.ms", SET, "9")).error_code == 0
    assert increment(asking, topic, ("retention.ms", SET, "8")).error_code == ErrorCode.INVALID_CONFIG


def test_a_replacement_resets_what_it_does_not_name(asking: Asker, topic: str) -> None:
    assert increment(asking, topic, ("retention.ms", SET, "7"), ("flush.ms", SET, "9")).error_code == 0
    for version in range(3):
        assert replace(asking, topic, {"flush.messages": "5"}, version=version).error_code == 0
    assert overrides(asking, topic) == {"flush.messages": "5"}
    assert replace(asking, topic, {"retention.ms": None}).error_code == ErrorCode.INVALID_REQUEST
    assert replace(asking, topic, {"no.such": "1"}).error_code == ErrorCode.INVALID_CONFIG
    assert replace(asking, topic, {}).error_code == 0
    assert overrides(asking, topic) == {}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResourceType.BROKER, "1", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.CLIENT_METRICS, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_only_settings_of_topics_are_changed(asking: Asker, kind: int, name: str, code: int) -> None:
    refused = increment(asking, name, ("retention.ms", SET, "1"), kind=kind)
    assert refused.error_code == code
    assert refused.error_message


def test_a_resource_is_named_once(asking: Asker, topic: str) -> None:
    entries = [configs.AlterableConfig(name="retention.ms", value="1")]
    resource = configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=entries)
    (refused,) = asking.ask(AlterConfigsRequest(resources=[resource, resource])).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    twice = increment(asking, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST


def test_librdkafka_changes_settings(kafka: KafkaGateway, asking: Asker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [RdResource("topic", topic, incremental_configs=[entry])]
    ).values()
    assert done.result() is None
    assert overrides(asking, topic) == {"min.insync.replicas": "2"}
    (done,) = admin.alter_configs(
        [RdResource("topic", topic, set_config={"segment.bytes": "1048576"})]
    ).values()
    assert done.result() is None
    assert overrides(asking, topic) == {"segment.bytes": "1048576"}


def test_changes_that_meet_lose_nothing_of_one_another(
    kafka: KafkaGateway, asking: Asker, topic: str
) -> None:
    name = "follower.replication.throttled.replicas"

    def append(number: int) -> int:
        with asker(kafka.port) as other:
            return int(increment(other, topic, (name, APPEND, f"{number}:1")).error_code)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(append, range(8))] == [0] * 8
    assert sorted(overrides(asking, topic)[name].split(",")) == [f"{number}:1" for number in range(8)]
