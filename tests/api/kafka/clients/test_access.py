"""Every API that is offered, with and without the ACLs that its rule asks for."""

from collections.abc import Iterator

import pytest

from api.kafka.connections.answer_line import errors_in
from api.kafka.handlers import HANDLERS, RULES
from api.kafka.protocol.apis import (
    API_VERSIONS,
    APIS,
    LIST_GROUPS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from api.kafka.protocol.codec import encode
from api.kafka.protocol.messages.cluster import MetadataRequest
from api.kafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
)
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from coordinator.groups.classic.consumer_protocol import assigned_partitions, subscribed_topics
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_requests import TRANSACTIONAL_ID, VERSIONS, request_of
from tests.kit.secured import Secured, acl, bearer

REFUSALS = {
    ResourceType.TOPIC: "TOPIC_AUTHORIZATION_FAILED",
    ResourceType.GROUP: "GROUP_AUTHORIZATION_FAILED",
    ResourceType.CLUSTER: "CLUSTER_AUTHORIZATION_FAILED",
    ResourceType.TRANSACTIONAL_ID: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
PUBLIC = {API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE}
OFFERED = sorted({PRODUCE, *HANDLERS} - PUBLIC)
TOPIC, MISSING, GROUP = "secret-1", "absent-1", "hidden-1"
ABOUT = {
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_ID,
}
SEEN = "Metadata-1"


def named(api_key: int) -> str:
    return APIS[api_key].name


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    """A key of a principal without ACLs, one of a principal for each API, and an administrator's."""
    made = {
        "nobody": secured.key("User:nobody"),
        "admin": secured.key(),
        "writer": secured.key("User:writer"),
        "looker": secured.key("User:looker"),
    }
    secured.allow(
        acl("User:writer", Operation.WRITE, ResourceType.TOPIC, "others"),
        acl("User:looker", Operation.DESCRIBE, ResourceType.GROUP, "shown"),
        acl("User:looker", Operation.DESCRIBE, ResourceType.TOPIC, SEEN),
    )
    for api_key in OFFERED:
        name = named(api_key)
        made[name] = secured.key(f"User:{name}")
        for operation, kind in RULES[api_key].needs:
            about = {**ABOUT, ResourceType.TOPIC: f"{name}-*"}[kind]
            secured.allow(acl(f"User:{name}", operation, kind, about))
    return made


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    given = {"authentication_methods": "api-key", "auto_create_topics_enable": "true"}
    with kafka_gateway(secured.cluster.store.url, **given) as running:
        running.running.client.headers.update(bearer(keys["admin"]))
        running.create_topic(TOPIC)
        running.running.produce(TOPIC, 1)
        for api_key in OFFERED:
            if named(api_key) != "CreateTopics":
                running.create_topic(f"{named(api_key)}-1")
        yield running


def ask(client: Asker, api_key: int, topic: str) -> tuple[set[str], bytes]:
    """The errors of the answer, and the answer."""
    api = APIS[api_key]
    version = VERSIONS.get(api_key, api.max_version)
    answer = client.ask(request_of(api.request, topic, GROUP), version)
    return set(errors_in(answer)), encode(answer, version)


def test_every_api_that_is_offered_has_a_rule() -> None:
    assert {PRODUCE, *HANDLERS} <= set(RULES) <= set(APIS)
    assert {key for key, rule in RULES.items() if rule.is_public} == PUBLIC


@pytest.mark.parametrize("api_key", OFFERED, ids=named)
def test_without_an_acl_it_is_refused_changes_nothing_and_tells_nothing(
    gateway: KafkaGateway, keys: dict[str, str], api_key: int
) -> None:
    before = state(gateway)
    with asker(gateway.port) as client:
        client.key(keys["nobody"])
        errors, answer = ask(client, api_key, TOPIC)
        _, of_missing = ask(client, api_key, MISSING)
    rule = RULES[api_key]
    assert errors <= {REFUSALS[kind] for _, kind in rule.needs}
    assert bool(errors) == bool(rule.needs)
    assert answer.replace(TOPIC.encode(), MISSING.encode()) == of_missing
    assert state(gateway) == before


def state(gateway: KafkaGateway) -> object:
    """The topics, their settings and their ends, and the groups, as an administrator sees them."""
    get = gateway.running.client.get
    topics = {
        topic: (get(f"/topics/{topic}").json(), get(f"/topics/{topic}/partitions/0/offsets").json())
        for topic in get("/topics").json()
    }
    return topics, get(f"{gateway.running.cluster}/consumer-groups").json()


@pytest.mark.parametrize("api_key", OFFERED, ids=named)
def test_with_the_acls_of_its_rule_it_is_not_refused(
    gateway: KafkaGateway, keys: dict[str, str], api_key: int
) -> None:
    with asker(gateway.port) as client:
        client.key(keys[named(api_key)])
        errors, _ = ask(client, api_key, f"{named(api_key)}-1")
    assert not errors & set(REFUSALS.values())


def test_lists_have_only_what_one_may_describe(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    with asker(gateway.port) as client:
        client.key(keys["nobody"])
        assert client.ask(MetadataRequest(topics=None)).topics == []
        if LIST_GROUPS in HANDLERS:
            assert client.ask(APIS[LIST_GROUPS].request()).groups == []
    with asker(gateway.port) as client:
        client.key(keys[named(METADATA)])
        (topic,) = client.ask(MetadataRequest(topics=None)).topics
        assert topic.name == "Metadata-1"


def test_a_group_shows_topics_that_one_may_describe(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    group = "shown"
    with asker(gateway.port) as client, asker(gateway.port) as looker:
        client.key(keys["admin"])
        looker.key(keys["looker"])
        joins = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC, SEEN],
            topic_partitions=[],
        )
        assert len(client.ask(joins).assignment.topic_partitions) == 2
        for who, named_topics in ((client, {TOPIC, SEEN}), (looker, {SEEN})):
            (found,) = who.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
            (member,) = found.members
            assert {*member.subscribed_topic_names} == named_topics
            for assignment in (member.assignment, member.target_assignment):
                assert {each.topic_name for each in assignment.topic_partitions} == named_topics
            (found,) = who.ask(DescribeGroupsRequest(groups=[group])).groups
            (member,) = found.members
            assert {*(subscribed_topics(member.member_metadata) or ())} == named_topics
            owned = assigned_partitions(member.member_assignment) or ()
            assert {at.topic for at in owned} == named_topics


def test_write_on_any_topic_lets_a_producer_be_idempotent(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as client:
        client.key(keys["writer"])
        assert (
            client.ask(
                InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
            ).error_code
            == 0
        )


def test_refusals_and_first_accesses_are_audited(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    with asker(gateway.port) as client:
        client.key(keys["nobody"])
        ask(client, PRODUCE, TOPIC)
    with asker(gateway.port) as client:
        client.key(keys["admin"])
        ask(client, PRODUCE, "Produce-1")
    about = f"principal = 'User:nobody' and resource_name = '{TOPIC}' and operation = 'WRITE'"
    wait_for_audit(gateway.data, f"kind = 'denial' and {about}")
    wait_for_audit(
        gateway.data, "kind = 'access' and principal = 'User:admin' and resource_name = 'Produce-1'"
    )
