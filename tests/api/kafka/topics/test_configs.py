"""DescribeConfigs and ListConfigResources."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource as RdResource
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PlainResource

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from api.kafka.topics.configs import (
    PROTOCOL_VERSION,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    broker_settings,
)
from ingest.settings import Settings
from log_tables.cluster.setting import WITHOUT_EFFECT
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker

CERTIFICATES = {
    "ssl_certfile": "c",
    "ssl_keyfile": "k",
    "ssl_ca_certs": "a",
    "ssl_client_auth": "requested",
}


def describe(
    asking: Asker,
    name: str,
    *keys: str,
    kind: int = ConfigResourceType.TOPIC,
    version: int = 4,
    more: bool = True,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[*keys] if keys else None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=more, include_documentation=more)
    (result,) = asking.ask(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.fixture(scope="module")
def topic(kafka: KafkaGateway) -> str:
    return kafka.create_topic("described", retention_ms="7", cleanup_policy="compact")


@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_of_a_topic_are_told_with_their_source(asking: Asker, topic: str, version: int) -> None:
    found = {each.name: each for each in describe(asking, topic, version=version).configs}
    assert [*found] == [*KAFKA_SETTINGS]
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source) == ("7", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(each.value, each.source) for each in retention.synonyms] == [("7", 1), ("-1", 5)]
    replicas = found["min.insync.replicas"]
    assert (replicas.value, replicas.config_source, replicas.read_only) == ("1", 5, False)
    assert [(each.value, each.source) for each in replicas.synonyms] == [("1", 5)]
    if version >= 3:
        assert found["compression.type"].documentation == KAFKA_SETTINGS["compression.type"].meaning
        without = {name for name, each in found.items() if each.documentation.startswith("Without effect.")}
        assert without == {*WITHOUT_EFFECT}


def test_the_types_of_settings_are_kafkas(asking: Asker, topic: str) -> None:
    kinds = {each.name: each.config_type for each in describe(asking, topic).configs}
    assert kinds["cleanup.policy"] == kinds["leader.replication.throttled.replicas"] == ConfigType.LIST
    assert kinds["compression.type"] == kinds["value.columns"] == ConfigType.STRING
    assert kinds["max.message.bytes"] == kinds["min.insync.replicas"] == ConfigType.INT
    assert kinds["retention.ms"] == kinds["max.compaction.lag.ms"] == ConfigType.LONG
    assert kinds["min.cleanable.dirty.ratio"] == ConfigType.DOUBLE
    assert kinds["preallocate"] == kinds["remote.storage.enable"] == ConfigType.BOOLEAN


def test_no_more_is_told_than_was_asked_for(asking: Asker, topic: str) -> None:
    (only,) = describe(asking, topic, "retention.ms", "no.such", more=False).configs
    assert (only.name, only.synonyms, only.documentation) == ("retention.ms", [], None)


def test_a_gateway_tells_its_own_settings(asking: Asker, kafka: KafkaGateway) -> None:
    found = {each.name: each for each in describe(asking, "1", kind=ConfigResourceType.BROKER).configs}
    assert [*found] == [each.name for each in broker_settings(Settings())]
    assert all(each.read_only for each in found.values())
    made = found["auto.create.topics.enable"]
    assert (made.value, made.config_source, made.config_type) == ("true", 5, ConfigType.BOOLEAN)
    assert found["num.partitions"].value == "1"
    assert found["inter.broker.protocol.version"].value == PROTOCOL_VERSION
    there = found["advertised.listeners"]
    assert (there.value, there.config_source) == (f"PLAINTEXT://{kafka.bootstrap}", 4)
    assert found["socket.request.max.bytes"].value == str(32 * 1024 * 1024)
    assert describe(asking, "", kind=ConfigResourceType.BROKER).configs == []


@pytest.mark.parametrize(
    ("more", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"ssl_certfile": "c", "ssl_keyfile": "k"}, "SSL"),
        ({"authentication_methods": "scram"}, "SASL_PLAINTEXT"),
        ({"authentication_methods": "api-key", "ssl_certfile": "c", "ssl_keyfile": "k"}, "SASL_SSL"),
        ({"authentication_methods": "mtls", **CERTIFICATES}, "SSL"),
        ({"authentication_methods": "mtls,scram", **CERTIFICATES}, "SASL_SSL"),
    ],
)
def test_an_advertised_listener_has_its_protocol(more: dict[str, Any], protocol: str) -> None:
    settings = Settings(kafka_listener="a:1", kafka_advertised_listener="b:2", **more)
    assert next(broker_settings(settings)).value == f"{protocol}://b:2"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ConfigResourceType.TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResourceType.BROKER, "77", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here_is_refused(asking: Asker, kind: int, name: str, code: int) -> None:
    refused = describe(asking, name, kind=kind)
    assert (refused.error_code, refused.configs) == (code, [])
    assert refused.error_message


def test_internal_topics_are_described(asking: Asker) -> None:
    assert describe(asking, "__cluster_metadata").error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_what_has_settings_is_listed(asking: Asker, topic: str) -> None:
    all_ = asking.ask(ListConfigResourcesRequest()).config_resources
    assert {each.resource_type for each in all_} == {ConfigResourceType.TOPIC, ConfigResourceType.BROKER}
    topics = asking.ask(ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC]))
    assert topic in [each.resource_name for each in topics.config_resources]
    brokers = asking.ask(ListConfigResourcesRequest(resource_types=[ConfigResourceType.BROKER]))
    assert [each.resource_name for each in brokers.config_resources] == ["1"]
    groups = asking.ask(ListConfigResourcesRequest(resource_types=[ConfigResourceType.GROUP]))
    assert (groups.error_code, groups.config_resources) == (0, [])
    strange = asking.ask(ListConfigResourcesRequest(resource_types=[99]))
    assert strange.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert asking.ask(ListConfigResourcesRequest(), 0).config_resources == []


def test_clients_read_settings(kafka: KafkaGateway, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for kind, name, setting in (("topic", topic, "cleanup.policy"), ("broker", "1", "num.partitions")):
        (asked,) = admin.describe_configs([RdResource(kind, name)]).values()
        assert asked.result()[setting].value in ("compact", "1")
    plain = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        found = plain.describe_configs([PlainResource("TOPIC", topic)])
        assert "compact" in str(found)
    finally:
        plain.close()
