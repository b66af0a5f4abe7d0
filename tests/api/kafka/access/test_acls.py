"""ACLs made, described and deleted by Kafka's clients."""

from collections.abc import Iterator
from typing import Any

import pytest

from api.kafka.access.acl_index import AclIndex
from api.kafka.access.acls import DELETED_MAX, FILTERS_MAX, filter_asked
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.access import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from log_tables.cluster.acl import ANY, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.limits import KAFKA_RESOURCES_MAX
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_decisions import acls_of, digits, kafka_decisions
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

TYPES = ["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
PATTERNS = ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
OPERATIONS = ["UNKNOWN", "ANY", *Operation, "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"]
PERMISSIONS = ["UNKNOWN", "ANY", "DENY", "ALLOW"]
"""By Kafka's codes."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def key(secured: Secured) -> str:
    return secured.key()


@pytest.fixture(scope="module")
def gateway(secured: Secured, key: str) -> Iterator[KafkaGateway]:
    with kafka_gateway(secured.cluster.store.url, authentication_methods="api-key") as running:
        running.running.client.headers.update(bearer(key))
        yield running


@pytest.fixture
def admin(gateway: KafkaGateway, key: str) -> Iterator[Asker]:
    with asker(gateway.port) as client:
        client.key(key)
        yield client


def creation(name: str, host: str = ANY, operation: int = 3, **changes: Any) -> AclCreation:
    """ALLOW READ on the literal topic `name` to User:ann."""
    given: dict[str, Any] = {"resource_type": 2, "resource_pattern_type": 3, "permission_type": 3}
    given |= {"principal": "User:ann", "resource_name": name, "host": host, "operation": operation}
    return AclCreation(**(given | changes))


def anything(**changes: Any) -> dict[str, Any]:
    """The fields of a filter that finds all ACLs, with changes."""
    given = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return given | changes


def found(admin: Asker, version: int = 3, **changes: Any) -> list[tuple[str, str, str]]:
    """The name, host and operation of the ACLs that a filter finds."""
    answer = admin.ask(DescribeAclsRequest(**anything(**changes)), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (each.resource_name, acl.host, OPERATIONS[acl.operation])
        for each in answer.resources
        for acl in each.acls
    ]


def code(names: list[str], name: str) -> int:
    return names.index(name)


def asked(fields: list[str]) -> DescribeAclsRequest:
    """A filter of the fixture as Kafka's clients send it: an empty field is null."""
    kind, name, pattern, principal, host, operation, permission = fields
    texts = [None if not text else text.replace("<empty>", "") for text in (name, principal, host)]
    return DescribeAclsRequest(
        resource_type_filter=code(TYPES, kind),
        resource_name_filter=texts[0],
        pattern_type_filter=code(PATTERNS, pattern),
        principal_filter=texts[1],
        host_filter=texts[2],
        operation=code(OPERATIONS, operation),
        permission_type=code(PERMISSIONS, permission),
    )


def test_ten_thousand_filters_find_the_acls_that_kafkas_find() -> None:
    count, decisions = 0, ""
    for each in kafka_decisions()[1]:
        acls = acls_of(each)
        index = AclIndex(acls)
        for fields, expected in zip(each["filters"], each["found"], strict=True):
            wanted = filter_asked(asked(fields))
            matched = digits([wanted is not None and wanted.matches(acl) for acl in acls])
            assert matched == expected, (each["acls"], fields)
            if wanted is not None:  # as DeleteAcls finds them
                kept = {*index.acls(index.find(wanted))}
                assert digits([acl in kept for acl in acls]) == expected, (each["acls"], fields)
            count, decisions = count + 1, decisions + matched
    assert count == 10_000
    assert 2_500 < decisions.count("1") < len(decisions) / 2


def test_an_acl_is_made_described_and_deleted_in_every_version(admin: Asker) -> None:
    for version in (1, 2, 3):
        name = f"versions-{version}"
        made = admin.ask(CreateAclsRequest(creations=[creation(name), creation(name)]), version)
        assert [(each.error_code, each.error_message) for each in made.results] == [(0, None)] * 2
        assert found(admin, version, resource_name_filter=name) == [(name, "*", "READ")]
        wanted = DeleteAclsFilter(**anything(resource_name_filter=name))
        (result,) = admin.ask(DeleteAclsRequest(filters=[wanted]), version).filter_results
        assert [each.principal for each in result.matching_acls] == ["User:ann"]
        assert found(admin, version, resource_name_filter=name) == []


def test_other_doors_see_them_and_they_hold_at_once(
    gateway: KafkaGateway, secured: Secured, admin: Asker
) -> None:
    created = creation("network", "127.0.0.9/8", operation=8, principal="User:near")
    assert admin.ask(CreateAclsRequest(creations=[created])).results[0].error_code == 0
    secured.cluster.refresh()
    kept = Acl(
        ResourceType.TOPIC,
        "network",
        PatternType.LITERAL,
        "User:near",
        "127.0.0.0/8",
        Operation.DESCRIBE,
        Permission.ALLOW,
    )
    assert kept in secured.cluster.metadata_log.access.acls
    listed = gateway.running.client.get(f"{gateway.running.cluster}/acls?resource_name=network").json()
    assert [each["host"] for each in listed["data"]] == ["127.0.0.0/8"]
    gateway.create_topic("network")
    key = {"Authorization": f"Bearer {secured.key('User:near')}"}

    def may() -> int:
        return gateway.running.client.get("/topics/network", headers=key).status_code

    wait_until(lambda: may() == 200, "the gateway knows the key")
    wanted = DeleteAclsFilter(**anything(host_filter="127.1.1.1/8"))
    assert admin.ask(DeleteAclsRequest(filters=[wanted])).filter_results[0].matching_acls
    assert may() == 403
    wait_for_audit(gateway.data, "operation = 'CreateAcls' and event like '%127.0.0.0/8%'")
    wait_for_audit(gateway.data, "operation = 'DeleteAcls' and event like '%127.0.0.0/8%'")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"resource_type": 6}, "the resource type DELEGATION_TOKEN are not kept here"),
        ({"resource_type": 7}, "the resource type USER are not kept here"),
        ({"resource_type": 1}, "1 is no resource type of an ACL; use one of TOPIC, GROUP"),
        ({"resource_type": -1}, "-1 is no resource type"),
        ({"operation": 15}, "the operation TWO_PHASE_COMMIT are not kept here"),
        ({"operation": 1}, "1 is no operation"),
        ({"operation": 9}, "TOPIC has no operation CLUSTER_ACTION"),
        ({"resource_pattern_type": 2}, "2 is no pattern type"),
        ({"permission_type": 0}, "0 is no permission type"),
        ({"principal": "Role:x"}, "neither User:<name> nor Group:<name>"),
        ({"host": "example.org"}, "neither an IP address nor a network"),
        ({"name": ""}, "is not one of 1 to"),
        ({"resource_type": 4, "operation": 8}, "the cluster is 'kafka-cluster'"),
    ],
)
def test_an_acl_that_cannot_be_kept_is_refused_by_name_and_others_are_made(
    admin: Asker, changes: dict[str, Any], says: str
) -> None:
    wrong = creation(**{"name": "wrong"} | changes)
    answer = admin.ask(CreateAclsRequest(creations=[wrong, creation("beside")]))
    refused, made = answer.results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert says in refused.error_message
    assert made.error_code == 0
    assert [name for name, _, _ in found(admin)].count("wrong") == 0


@pytest.mark.parametrize(
    "changes",
    [{"resource_type_filter": 0}, {"pattern_type_filter": 9}, {"operation": 99}, {"permission_type": -128}],
)
def test_a_filter_of_codes_that_nobody_knows_is_refused(admin: Asker, changes: dict[str, int]) -> None:
    assert admin.ask(DescribeAclsRequest(**anything(**changes))).error_code == ErrorCode.INVALID_REQUEST
    good, wrong = DeleteAclsFilter(**anything(host_filter="9.9.9.9")), DeleteAclsFilter(**anything(**changes))
    results = admin.ask(DeleteAclsRequest(filters=[wrong, good])).filter_results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST, 0]


def test_acls_that_two_filters_find_are_in_both_answers(admin: Asker) -> None:
    admin.ask(CreateAclsRequest(creations=[creation(f"twice-{number}") for number in range(3)]))
    filters = [DeleteAclsFilter(**anything(resource_name_filter=f"twice-{number}")) for number in (0, 1, 1)]
    results = admin.ask(DeleteAclsRequest(filters=filters)).filter_results
    assert [[acl.resource_name for acl in each.matching_acls] for each in results] == [
        ["twice-0"],
        ["twice-1"],
        ["twice-1"],
    ]
    assert found(admin, resource_name_filter="twice-2") == [("twice-2", "*", "READ")]


def test_a_request_makes_and_names_so_many_and_no_more(admin: Asker) -> None:
    many = [creation(f"many-{number}") for number in range(KAFKA_RESOURCES_MAX + 1)]
    codes = [each.error_code for each in admin.ask(CreateAclsRequest(creations=many)).results]
    assert codes == [0] * KAFKA_RESOURCES_MAX + [ErrorCode.POLICY_VIOLATION]
    of_tokens = DeleteAclsFilter(**anything(resource_type_filter=6))
    all_of_ann = DeleteAclsFilter(**anything(principal_filter="User:ann"))
    filters = [*[of_tokens] * (FILTERS_MAX - 4), *[all_of_ann] * 5]
    results = admin.ask(DeleteAclsRequest(filters=filters)).filter_results
    listed = [len(each.matching_acls) for each in results]
    codes = [each.error_code for each in results]
    assert sum(listed) <= DELETED_MAX
    assert codes[-1] == ErrorCode.POLICY_VIOLATION  # one filter too many
    assert codes[-4] == (ErrorCode.POLICY_VIOLATION if 2 * listed[-5] > DELETED_MAX else 0)
    assert found(admin, principal_filter="User:ann") == []


@pytest.mark.parametrize("operation", [Operation.DESCRIBE, Operation.ALTER])
def test_one_without_the_right_hears_so_for_each_part(
    gateway: KafkaGateway, secured: Secured, operation: Operation
) -> None:
    key = secured.key(f"User:{operation}")
    secured.allow(acl(f"User:{operation}", operation, ResourceType.CLUSTER))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def codes() -> list[int]:
        with asker(gateway.port) as client:
            if client.key(key).error_code:
                return []
            described = client.ask(DescribeAclsRequest(**anything()))
            made = CreateAclsRequest(creations=[creation("x", operation=99), creation("x")])
            created = client.ask(made)
            nothing = DeleteAclsFilter(**anything(host_filter="x"))
            deleted = client.ask(DeleteAclsRequest(filters=[nothing, nothing]))
            return [
                described.error_code,
                *(each.error_code for each in (*created.results, *deleted.filter_results)),
            ]

    may_alter = operation is Operation.ALTER
    altered = [ErrorCode.INVALID_REQUEST, 0, 0, 0] if may_alter else [denied] * 4
    wait_until(lambda: codes() == [0, *altered], "the gateway goes by the ACL")  # ALTER implies DESCRIBE
