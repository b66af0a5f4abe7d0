"""Quotas set and described by Kafka's clients."""

import sys
from collections.abc import Iterator, Mapping
from math import inf, nan
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.access import (
    AlterClientQuotasRequest,
    AlteredQuotas,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from log_tables.cluster.access_record import DEFAULT_QUOTA, Quota
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.security_admin import alter_quotas, remove_quota
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.secured import Secured, acl

Entity = Mapping[str, str | None]
RATE = {"producer_byte_rate": 1_000.0}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.allow(acl("User:reader", Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
    return made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    return {
        "admin": secured.key(),
        "reader": secured.key("User:reader"),
        "nobody": secured.key("User:nobody"),
    }


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    assert keys
    with kafka_gateway(secured.cluster.store.url, authentication_methods="api-key") as running:
        yield running


@pytest.fixture
def admin(gateway: KafkaGateway, secured: Secured, keys: dict[str, str]) -> Iterator[Asker]:
    with asker(gateway.port) as client:
        client.key(keys["admin"])
        yield client
    secured.cluster.refresh()
    for entity in secured.cluster.metadata_log.access.quotas:
        remove_quota(secured.cluster.metadata_log, entity)


def entity_data(entity: Entity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]


def altered(entity: Entity, rates: Mapping[str, float | None]) -> AlteredQuotas:
    ops = [OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()]
    return AlteredQuotas(entity=entity_data(entity), ops=ops)


def alter(
    client: Asker, *entries: AlteredQuotas, version: int = 1, **given: Any
) -> list[tuple[int, str | None]]:
    answer = client.ask(AlterClientQuotasRequest(entries=[*entries], **given), version)
    assert [each.entity for each in answer.entries] == [each.entity for each in entries]
    return [(each.error_code, each.error_message) for each in answer.entries]


def described(client: Asker, *components: ComponentData, strict: bool = False, version: int = 1) -> Any:
    answer = client.ask(DescribeClientQuotasRequest(components=[*components], strict=strict), version)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


def test_a_rate_is_set_described_and_removed_in_every_version(admin: Asker, secured: Secured) -> None:
    for version in (0, 1):
        ann = altered({"user": "ann"}, {"producer_byte_rate": 1_000.0, "request_rate": 2.5})
        assert alter(admin, ann, version=version) == [(0, None)]
        ((entity, values),) = described(admin, version=version)
        assert (entity, values) == ({"user": "ann"}, {"producer_byte_rate": 1_000.0, "request_rate": 2.5})
        secured.cluster.refresh()
        kept = secured.cluster.metadata_log.access.quotas
        assert kept == {"User:ann": Quota(producer_byte_rate=1_000.0, request_rate=2.5)}
        gone = altered(
            {"user": "ann"}, {"request_rate": None, "producer_byte_rate": None, "request_percentage": None}
        )
        assert alter(admin, gone, version=version) == [(0, None)]
        assert described(admin, version=version) == []


def test_what_has_not_been_set_may_be_removed(admin: Asker) -> None:
    assert alter(admin, altered({"user": "bob"}, {"request_rate": None})) == [(0, None)]


def test_the_default_is_the_user_without_a_name(admin: Asker, secured: Secured) -> None:
    assert alter(admin, altered({"user": None}, RATE)) == [(0, None)]
    secured.cluster.refresh()
    assert [*secured.cluster.metadata_log.access.quotas] == [DEFAULT_QUOTA]
    assert described(admin, ComponentData(entity_type="user", match_type=1, match=None)) == [
        ({"user": None}, RATE)
    ]


def test_filters_find_what_kafkas_find(admin: Asker, secured: Secured) -> None:
    log = secured.cluster.metadata_log
    alter_quotas(log, dict.fromkeys(("User:ann", "User:bob", "Group:crew", DEFAULT_QUOTA), RATE))
    ann, bob, default = ({"user": name} for name in ("ann", "bob", None))

    def users(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
        found = described(
            admin,
            *(ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components),
            strict=strict,
        )
        return found if isinstance(found, int) else [entity for entity, _ in found]

    assert users() == [default, ann, bob]  # those of groups are for `lakelog quota list`
    assert users(("user", 0, "ann")) == users(("user", 0, "ann"), strict=True) == [ann]
    assert users(("user", 2, None)) == [default, ann, bob]
    assert users(("user", 1, None)) == [default]
    assert users(("user", 0, "ann"), ("client-id", 2, None)) == []
    assert users(("client-id", 2, None)) == users(("ip", 1, None)) == users(strict=True) == []
    invalid = ErrorCode.INVALID_REQUEST
    assert users(("group", 2, None)) == users(("", 2, None)) == ErrorCode.UNSUPPORTED_VERSION
    assert users(("user", 0, None)) == users(("user", 1, "ann")) == users(("user", 2, "ann")) == invalid
    assert users(("user", 3, None)) == users(("user", -1, None)) == invalid
    assert (
        users(("user", 2, None), ("user", 0, "ann")) == users(("user", 2, None), ("ip", 2, None)) == invalid
    )


@pytest.mark.parametrize(
    ("entity", "rates", "says"),
    [
        ({"client-id": "app"}, RATE, "quotas of client-id are not kept here: a client names itself"),
        ({"user": "ann", "client-id": None}, RATE, "quotas of client-id are not kept here"),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}, "quotas of ip are not kept here: max_connec"),
        ({"group": "crew"}, RATE, "'group' is no entity of quotas; name a user"),
        ({}, RATE, "an entity has a user, once"),
        ({"user": ""}, RATE, "not written as User:NAME"),
        ({"user": "a\nb"}, RATE, "not written as User:NAME"),
        ({"user": "x" * 201}, RATE, "a name of 1 to 200 printable characters"),
        ({"user": "*"}, RATE, "not written as User:NAME"),
        (
            {"user": "ann"},
            {"request_percentage": 5.0},
            "request_percentage is not kept here: threads have",
        ),
        ({"user": "ann"}, {"consumer_rate": 5.0}, "there is no quota 'consumer_rate'"),
        ({"user": "ann"}, {"consumer_rate": None}, "there is no quota 'consumer_rate'"),
        ({"user": "ann"}, {"request_rate": -1.0}, "request_rate = -1.0 is not above 0"),
        ({"user": "ann"}, {"request_rate": nan}, "is not above 0"),
        ({"user": "ann"}, {"request_rate": inf}, "is not above 0"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_and_others_are_set(
    admin: Asker, entity: Entity, rates: Mapping[str, float | None], says: str
) -> None:
    (code, message), other = alter(admin, altered(entity, rates), altered({"user": "bob"}, RATE))
    assert code == ErrorCode.INVALID_REQUEST
    assert says in (message or "")
    assert other == (0, None)
    assert described(admin) == [({"user": "bob"}, RATE)]


@pytest.mark.parametrize("rate", [sys.float_info.max, sys.float_info.min / 2**52])
def test_the_largest_and_the_smallest_rate_are_rates(
    gateway: KafkaGateway, keys: dict[str, str], admin: Asker, rate: float
) -> None:
    """Some set the largest number where they mean no bound."""
    rates = dict.fromkeys(("consumer_byte_rate", "request_rate"), rate)
    assert alter(admin, altered({"user": "reader"}, rates)) == [(0, None)]
    with asker(gateway.port) as client:
        client.key(keys["reader"])
        asked = FetchRequest(topics=[FetchTopic(topic="none", partitions=[FetchPartition()])])
        assert client.ask(asked, 12).responses[0].partitions[0].error_code


def test_what_is_named_twice_is_refused(admin: Asker) -> None:
    twice = AlteredQuotas(
        entity=entity_data({"user": "ann"}),
        ops=[OpData(key="request_rate", value=rate) for rate in (1.0, 2.0)],
    )
    two_users = AlteredQuotas(entity=[*entity_data({"user": "a"}), *entity_data({"user": "b"})], ops=[])
    codes = [code for code, _ in alter(admin, twice, two_users)]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2
    same = AlterClientQuotasRequest(entries=[altered({"user": "ann"}, RATE)] * 2)
    assert [each.error_code for each in admin.ask(same).entries] == [ErrorCode.INVALID_REQUEST]
    assert described(admin) == []


def test_what_is_only_checked_changes_nothing(admin: Asker) -> None:
    assert alter(admin, altered({"user": "ann"}, RATE), validate_only=True) == [(0, None)]
    assert described(admin) == []


def test_rights_are_those_on_the_settings_of_the_cluster(
    gateway: KafkaGateway, keys: dict[str, str], admin: Asker
) -> None:
    alter(admin, altered({"user": "ann"}, RATE))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with asker(gateway.port) as client:
        client.key(keys["nobody"])
        assert described(client) == denied
        assert alter(client, altered({"ip": "x"}, RATE))[0][0] == denied
    with asker(gateway.port) as client:
        client.key(keys["reader"])
        assert described(client) == [({"user": "ann"}, RATE)]
        assert alter(client, altered({"user": "ann"}, RATE))[0][0] == denied
    wait_for_audit(gateway.data, "operation = 'AlterClientQuotas' and resource_name = 'User:ann'")
