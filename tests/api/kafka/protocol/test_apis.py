"""Which APIs are described, and in which versions, next to what brokers of Kafka offer."""

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.schemas import load_json

from api.kafka.protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    APIS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
    Api,
)

OF_KAFKA_3_0: dict[int, tuple[int, int]] = BROKER_API_VERSIONS[3, 0]
OF_KAFKA_4_4 = {API_VERSIONS: 5, DELETE_GROUPS: 3}
"""The newest versions of what Kafka 4.4 has changed of this."""

OF_CLIENTS = {ADD_PARTITIONS_TO_TXN: 3}
"""The newest versions of clients, where newer ones are of brokers among themselves (KIP-890)."""

OF_KAFKA_4_3: dict[int, tuple[int, int]] = BROKER_API_VERSIONS[4, 3]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_client_of_kafka_3_0_that_does_not_negotiate_is_understood(api: Api) -> None:
    _, newest = OF_KAFKA_3_0.get(api.key, (0, 0))
    assert api.max_version >= newest


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_client_of_kafka_4_3_may_use_every_version(api: Api) -> None:
    oldest, newest = OF_KAFKA_4_3[api.key]
    newest = OF_CLIENTS.get(api.key, OF_KAFKA_4_4.get(api.key, newest))
    assert (api.advertised_min, api.max_version) == (oldest, newest)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_key_and_both_messages_are_those_of_the_name(api: Api) -> None:
    assert _key(api) == api.key
    assert api.response.__name__ == f"{api.name}Response"
    assert api.response.versions == api.request.versions
    assert api.response.first_flexible == api.request.first_flexible


def _key(api: Api) -> int:
    """The key that kafka-python has for the request; it does not have the newest."""
    newest = {CONSUMER_GROUP_HEARTBEAT: 68, CONSUMER_GROUP_DESCRIBE: 69}  # of Kafka's own descriptions
    if api.key in newest:
        return newest[api.key]
    key: int = load_json(api.request.__name__)["apiKey"]
    return key


def test_produce_is_advertised_from_0_on_and_understood_from_3_on() -> None:
    assert (APIS[PRODUCE].advertised_min, APIS[PRODUCE].min_version) == (0, 3)
    others = [api for api in APIS.values() if api.key != PRODUCE]
    assert [api.advertised_min for api in others] == [api.min_version for api in others]


def test_clients_that_know_nothing_yet_may_use_version_0() -> None:
    assert {APIS[key].min_version for key in (API_VERSIONS, FIND_COORDINATOR, JOIN_GROUP, METADATA)} == {0}
