"""Our decisions next to those of Kafka 4.4.0: `scripts/kafka_decisions.py` has asked its own classes."""

from coordinator.access.acl_argument import SUPPORTED_OPERATIONS
from coordinator.access.authorizer import Authorizer
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.acls import asks, scanned
from tests.kit.kafka_decisions import acls_of, digits, kafka_decisions


def test_ten_thousand_requests_are_decided_as_kafka_decides_them() -> None:
    decisions = ""
    for each in kafka_decisions()[1]:
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
    for each in kafka_decisions()[1]:
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


def test_each_resource_type_has_the_operations_that_it_has_in_kafka() -> None:
    ours = {
        str(kind): {str(each) for each in operations} for kind, operations in SUPPORTED_OPERATIONS.items()
    }
    theirs = {
        kind: set(operations) - {"TWO_PHASE_COMMIT"} for kind, operations in kafka_decisions()[0].items()
    }
    assert ours == theirs


def test_the_plain_scan_that_other_tests_compare_with_decides_as_kafka_does() -> None:
    for each in kafka_decisions()[1]:
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
