"""Our decisions next to those of Kafka 4.3.1: `scripts/kafka_decisions.py` has asked its own classes."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from coordinator.access.acl_argument import SUPPORTED_OPERATIONS, filter_from
from coordinator.access.authorizer import Authorizer
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.kit.acls import asks, scanned

FIELDS = ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"]


@cache
def fixture() -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The operations of each resource type, and the sets of ACLs with questions and answers."""
    kept = Path(__file__).with_name("kafka_decisions.jsonl.gz").read_bytes()
    supported, *sets = (json.loads(line) for line in gzip.decompress(kept).splitlines())
    return supported, sets


def acls_of(each: dict[str, Any]) -> list[Acl]:
    return [
        Acl(
            ResourceType(kind),
            name,
            PatternType(pattern),
            principal,
            host,
            Operation(op),
            Permission(permission),
        )
        for kind, name, pattern, principal, host, op, permission in each["acls"]
    ]


def digits(decided: list[bool]) -> str:
    return "".join("01"[each] for each in decided)


def test_ten_thousand_requests_are_decided_as_kafka_decides_them() -> None:
    decisions = ""
    for each in fixture()[1]:
        rules = Authorizer(acls_of(each), each["super_users"])
        decided = digits(
            [
                rules.authorize(asks(user, host=host), Operation(operation), ResourceType(kind), name)
                for user, host, operation, kind, name in each["requests"]
            ]
        )
        assert decided == each["allowed"], each
        decisions += decided
    assert len(decisions) == 10_000
    assert 2_000 < decisions.count("1") < 8_000


def test_at_least_one_resource_is_decided_as_kafka_decides_it() -> None:
    decisions = ""
    for each in fixture()[1]:
        rules = Authorizer(acls_of(each), each["super_users"])
        decided = digits(
            [
                rules.authorize_by_resource_type(
                    asks(user, host=host), Operation(operation), ResourceType(kind)
                )
                for user, host, operation, kind in each["by_type"]
            ]
        )
        assert decided == each["allowed_by_type"], each
        decisions += decided
    assert 400 < decisions.count("1") < 1_600


def test_filters_find_the_acls_that_kafkas_find() -> None:
    decisions = ""
    for each in fixture()[1]:
        acls = acls_of(each)
        for fields, found in zip(each["filters"], each["found"], strict=True):
            given = {name: text or None for name, text in zip(FIELDS, fields, strict=True)}
            acl_filter = filter_from(given)
            assert digits([acl_filter.matches(acl) for acl in acls]) == found, (each["acls"], fields)
            decisions += found
    assert decisions.count("1") > 500


def test_each_resource_type_has_the_operations_that_it_has_in_kafka() -> None:
    ours = {
        str(kind): {str(each) for each in operations} for kind, operations in SUPPORTED_OPERATIONS.items()
    }
    theirs = {kind: set(operations) - {"TWO_PHASE_COMMIT"} for kind, operations in fixture()[0].items()}
    assert ours == theirs


def test_the_plain_scan_that_other_tests_compare_with_decides_as_kafka_does() -> None:
    for each in fixture()[1]:
        if each["super_users"]:
            continue
        acls = acls_of(each)
        for (user, host, operation, kind, name), allowed in zip(
            each["requests"], each["allowed"], strict=True
        ):
            if ":" not in host:
                context = asks(user, host=host)
                assert (
                    digits([scanned(acls, context, Operation(operation), ResourceType(kind), name)])
                    == allowed
                )
