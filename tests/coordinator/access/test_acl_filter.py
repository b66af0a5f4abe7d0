"""Filters of ACLs; that they find what Kafka's find is in test_kafka_decisions.py."""

import pytest

from coordinator.access.acl_argument import AclFilter, PatternTypeFilter, filter_from
from log_tables.cluster.acl import Acl, Operation, Permission, ResourceType
from tests.kit.acls import acl

ACLS = [
    acl("flights"),
    acl("fl", prefixed=True),
    acl("*"),
    acl("flights-2"),
    acl("flights", prefixed=True, deny=True),
]


def names(pattern_type: PatternTypeFilter, name: str | None = "flights") -> list[tuple[str, str]]:
    chosen = AclFilter(resource_name=name, pattern_type=pattern_type)
    return [(each.resource_name, each.pattern_type) for each in ACLS if chosen.matches(each)]


def test_a_filter_of_nothing_finds_all() -> None:
    assert all(AclFilter().matches(each) for each in ACLS)


def test_any_finds_a_name_in_patterns_of_both_types() -> None:
    assert names(PatternTypeFilter.ANY) == [("flights", "LITERAL"), ("flights", "PREFIXED")]


def test_literal_and_prefixed_find_a_name_in_patterns_of_that_type() -> None:
    assert names(PatternTypeFilter.LITERAL) == [("flights", "LITERAL")]
    assert names(PatternTypeFilter.PREFIXED) == [("flights", "PREFIXED")]
    assert names(PatternTypeFilter.PREFIXED, None) == [("fl", "PREFIXED"), ("flights", "PREFIXED")]


def test_match_finds_all_patterns_for_a_name() -> None:
    found = [("flights", "LITERAL"), ("fl", "PREFIXED"), ("*", "LITERAL"), ("flights", "PREFIXED")]
    assert names(PatternTypeFilter.MATCH) == found
    assert len(names(PatternTypeFilter.MATCH, None)) == len(ACLS)


@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        (AclFilter(ResourceType.TOPIC), acl("flights", resource_type=ResourceType.GROUP)),
        (AclFilter(principal="User:ann"), acl("flights", "User:*")),
        (AclFilter(host="*"), acl("flights", host="10.0.0.1")),
        (AclFilter(operation=Operation.READ), acl("flights", operation=Operation.ALL)),
        (AclFilter(permission=Permission.ALLOW), acl("flights", deny=True)),
    ],
)
def test_each_field_leaves_out_acls_that_have_another(chosen: AclFilter, other: Acl) -> None:
    assert chosen.matches(acl("flights"))
    assert not chosen.matches(other)


@pytest.mark.parametrize(
    "chosen",
    [
        AclFilter(),
        AclFilter(ResourceType.TOPIC, "fl", PatternTypeFilter.MATCH),
        AclFilter(principal="User:ann", host="*", operation=Operation.READ, permission=Permission.DENY),
    ],
)
def test_a_filter_is_the_same_as_parameters_of_a_request(chosen: AclFilter) -> None:
    assert filter_from(chosen.named()) == chosen


def test_an_address_is_found_however_it_is_written() -> None:
    assert AclFilter(host="0:0:0:0:0:0:0:1").matches(acl("flights", host="::1"))
