"""ACLs and filters from fields, and which are refused."""

import pytest

from coordinator.access.acl_argument import (
    SUPPORTED_OPERATIONS,
    AclFilter,
    PatternTypeFilter,
    acl_from,
    checked,
    filter_from,
)
from coordinator.access.principal import USER_MAX_CHARS
from log_tables.cluster.acl import CLUSTER_NAME, Operation, Permission, ResourceType
from log_tables.errors import InvalidArgument
from log_tables.limits import ACL_NAME_MAX_CHARS
from tests.kit.acls import acl

FIELDS = {
    "resource_type": "TOPIC",
    "resource_name": "flights",
    "pattern_type": "PREFIXED",
    "principal": "User:ann",
    "host": "0:0:0:0:0:0:0:1",
    "operation": "READ",
    "permission": "DENY",
}


def test_an_acl_comes_from_its_fields_with_its_host_in_one_form() -> None:
    assert acl_from(FIELDS) == acl("flights", prefixed=True, deny=True, host="::1")


def test_an_acl_is_literal_and_for_any_host_unless_it_says_otherwise() -> None:
    assert acl_from({**FIELDS, "pattern_type": None, "host": None}) == acl("flights", deny=True)


@pytest.mark.parametrize("name", ["resource_type", "resource_name", "principal", "operation", "permission"])
def test_an_acl_without_another_field_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"an ACL needs {name}; add it"):
        acl_from({**FIELDS, name: None})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "resource_type",
            "TOPICS",
            "resource_type 'TOPICS' is not known; use one of TOPIC, GROUP, CLUSTER, ",
        ),
        ("pattern_type", "MATCH", "pattern_type 'MATCH' is not known; use one of LITERAL, PREFIXED"),
        ("operation", "ANY", "operation 'ANY' is not known; use one of ALL, READ, "),
        ("permission", "allow", "permission 'allow' is not known; use one of ALLOW, DENY"),
        ("principal", "ann", "the principal 'ann' is neither User:<name> nor Group:<name>"),
        ("principal", "User:", "the principal 'User:' is neither"),
        ("principal", "Role:x", "the principal 'Role:x' is neither"),
        ("principal", "User:a\n", "or some that cannot be shown"),
        (
            "principal",
            "User:" + "a" * (USER_MAX_CHARS + 1),
            f"has more than {USER_MAX_CHARS} characters",
        ),
        ("principal", "Group:*", "use User:\\* for everybody"),
        ("host", "example.org", "the host 'example.org' is neither an IP address nor a network such as"),
        ("host", "10.0.0.0/33", "is neither an IP address nor a network"),
        ("host", "10.0.0.0/255.0.0.0", "is neither an IP address nor a network"),
        ("host", "::/129", "is neither an IP address nor a network"),
        ("host", "/8", "is neither an IP address nor a network"),
        ("host", "", "the host '' is neither an IP address"),
        ("resource_name", "", "the resource name '' is not one of 1 to"),
        ("resource_name", "\ud800", "is not one of 1 to"),
        ("resource_name", "a" * (ACL_NAME_MAX_CHARS + 1), "is not one of 1 to"),
        (
            "operation",
            "CLUSTER_ACTION",
            "TOPIC has no operation CLUSTER_ACTION; use one of ALL, READ, WRITE, ",
        ),
        ("host", "fe80::1%\nsh", r"the host 'fe80::1%\\nsh' is neither an IP address"),
        ("host", "fe80::1%\x1b[2J", r"the host 'fe80::1%\\x1b\[2J' is neither an IP address"),
        (
            "resource_name",
            "a\0",
            r"the resource name 'a\\x00' is not one of 1 to 1000 characters that can be",
        ),
    ],
)
def test_an_acl_that_could_never_match_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as refused:
        acl_from({**FIELDS, name: text})
    assert len(refused.value.message) < 400


def test_the_cluster_has_one_name() -> None:
    named = acl(CLUSTER_NAME, operation=Operation.ALTER, resource_type=ResourceType.CLUSTER)
    assert checked(named) == named
    with pytest.raises(InvalidArgument, match="the cluster is 'kafka-cluster', not 'mine'; name it so"):
        checked(acl("mine", operation=Operation.ALTER, resource_type=ResourceType.CLUSTER))


@pytest.mark.parametrize("kind", list(ResourceType))
def test_each_resource_type_takes_its_operations_and_all(kind: ResourceType) -> None:
    for operation in Operation:
        asked = acl(CLUSTER_NAME, operation=operation, resource_type=kind)
        if operation in SUPPORTED_OPERATIONS[kind] | {Operation.ALL}:
            assert checked(asked) == asked
        else:
            with pytest.raises(InvalidArgument, match=f"{kind} has no operation {operation}"):
                checked(asked)


def test_a_filter_comes_from_the_fields_that_there_are() -> None:
    assert filter_from({}) == AclFilter()
    assert filter_from(FIELDS) == AclFilter(
        ResourceType.TOPIC,
        "flights",
        PatternTypeFilter.PREFIXED,
        "User:ann",
        "0:0:0:0:0:0:0:1",
        Operation.READ,
        Permission.DENY,
    )


def test_any_is_any_in_enumerations_and_a_text_elsewhere() -> None:
    enumerations = ("resource_type", "pattern_type", "operation", "permission")
    assert filter_from(dict.fromkeys(enumerations, "ANY")) == AclFilter()
    assert filter_from({"resource_name": "ANY"}) == AclFilter(resource_name="ANY")


def test_a_filter_for_what_there_is_not_is_refused() -> None:
    message = "pattern_type 'MATCHES' is not known; use one of LITERAL, PREFIXED, ANY, MATCH"
    with pytest.raises(InvalidArgument, match=message):
        filter_from({"pattern_type": "MATCHES"})
