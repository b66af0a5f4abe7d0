"""The authorizer: Kafka's rules one by one, and any of them together as a plain scan decides."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.authorizer import Authorizer
from coordinator.access.principal import RequestContext
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.limits import TOPIC_NAME_MAX_CHARS
from tests.kit.acls import acl, asks, scanned

TOPIC = ResourceType.TOPIC


def may(
    acls: list[Acl],
    name: str,
    operation: Operation = Operation.READ,
    context: RequestContext | None = None,
    resource_type: ResourceType = TOPIC,
) -> bool:
    return Authorizer(acls).authorize(context or asks(), operation, resource_type, name)


def may_some(acls: list[Acl], operation: Operation = Operation.READ, **who: str) -> bool:
    return Authorizer(acls).authorize_by_resource_type(asks(**who), operation, TOPIC)


def test_what_no_acl_matches_is_denied() -> None:
    assert not may([], "flights")
    assert not may([acl("other")], "flights")
    assert not may([acl("flights", "User:bob")], "flights")
    assert not may([acl("flights", operation=Operation.WRITE)], "flights")
    assert not may([acl("flights", resource_type=ResourceType.GROUP)], "flights")


def test_a_literal_acl_is_for_its_name_alone() -> None:
    assert may([acl("flights")], "flights")
    assert not may([acl("flights")], "flights-2")
    assert not may([acl("flights")], "flight")


def test_the_name_star_is_any_name() -> None:
    assert may([acl("*")], "flights")
    assert may([acl("*")], "*")


def test_a_name_that_begins_with_star_is_a_name_as_others_which_it_is_not_in_kafka() -> None:
    assert may([acl("*")], "*flights")
    assert not may([acl("*flights"), acl("*", deny=True)], "*flights")


def test_a_prefix_is_for_names_that_begin_with_it_and_its_star_is_a_character() -> None:
    assert may([acl("fl", prefixed=True)], "flights")
    assert may([acl("flights", prefixed=True)], "flights")
    assert not may([acl("flights", prefixed=True)], "fl")
    assert not may([acl("*", prefixed=True)], "flights")
    assert may([acl("*", prefixed=True)], "*flights")


def test_a_denial_is_stronger_than_every_permission() -> None:
    for name, prefixed in (("flights", False), ("fl", True), ("*", False)):
        denial = acl(name, prefixed=prefixed, deny=True)
        for acls in ([acl("flights"), acl("*"), denial], [denial, acl("flights", operation=Operation.ALL)]):
            assert not may(acls, "flights")


def test_everybody_is_user_star() -> None:
    assert may([acl("flights", "User:*")], "flights")
    assert not may([acl("flights"), acl("flights", "User:*", deny=True)], "flights")


def test_an_acl_of_a_group_is_for_those_who_are_in_it() -> None:
    acls = [acl("flights", "Group:pilots"), acl("flights", "Group:grounded", deny=True)]
    assert may(acls, "flights", context=asks("ann", "crew", "pilots"))
    assert not may(acls, "flights", context=asks("ann", "crew"))
    assert not may(acls, "flights", context=asks("pilots"))
    assert not may(acls, "flights", context=asks("ann", "pilots", "grounded"))


def test_a_host_is_an_address_or_any() -> None:
    assert may([acl("flights", host="10.0.0.1")], "flights", context=asks(host="10.0.0.1"))
    assert not may([acl("flights", host="10.0.0.1")], "flights", context=asks(host="10.0.0.2"))
    denied = [acl("flights"), acl("flights", host="10.0.0.2", deny=True)]
    assert may(denied, "flights", context=asks(host="10.0.0.1"))
    assert not may(denied, "flights", context=asks(host="10.0.0.2"))


def test_a_host_may_be_a_network() -> None:
    acls = [acl("flights", host="10.0.0.0/8"), acl("flights", host="10.0.0.128/25", deny=True)]
    assert may(acls, "flights", context=asks(host="10.9.9.9"))
    assert may(acls, "flights", context=asks(host="::ffff:10.9.9.9"))
    assert not may(acls, "flights", context=asks(host="10.0.0.200"))
    assert not may(acls, "flights", context=asks(host="11.0.0.1"))
    assert not may(acls, "flights", context=asks(host=""))
    assert may_some(acls, host="10.9.9.9")
    assert not may_some(acls, host="11.0.0.1")


@pytest.mark.parametrize("network", ["0.0.0.0/0", "10.0.0.7/24", "10.0.0.1/32", "::ffff:10.0.0.0/120"])
def test_a_network_is_one_however_it_is_written(network: str) -> None:
    assert may([acl("flights", host=network)], "flights", context=asks(host="10.0.0.1"))
    assert not may([acl("flights", host=network)], "flights", context=asks(host="2001:db8::1"))


def test_a_network_of_ipv6_has_no_address_of_ipv4() -> None:
    assert may([acl("flights", host="::/0")], "flights", context=asks(host="fe80::1%eth0"))
    assert not may([acl("flights", host="::/0")], "flights", context=asks(host="10.0.0.1"))


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
def test_an_address_is_the_same_however_it_is_written(written: str) -> None:
    for seen in ("::1", "0:0:0:0:0:0:0:1"):
        assert may([acl("flights", host=written)], "flights", context=asks(host=seen))
        assert not may([acl("*"), acl("*", host=written, deny=True)], "flights", context=asks(host=seen))


def test_an_ipv4_address_within_ipv6_is_that_address() -> None:
    assert may([acl("flights", host="10.0.0.1")], "flights", context=asks(host="::ffff:10.0.0.1"))


def test_who_may_do_more_may_describe() -> None:
    for operation in Operation:
        implies = operation in {
            Operation.ALL,
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        }
        assert may([acl("flights", operation=operation)], "flights", Operation.DESCRIBE) == implies
        describes = operation in {Operation.ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
        assert may([acl("flights", operation=operation)], "flights", Operation.DESCRIBE_CONFIGS) == describes


def test_who_is_denied_to_read_may_still_describe() -> None:
    acls = [acl("flights", operation=Operation.WRITE), acl("flights", deny=True)]
    assert may(acls, "flights", Operation.DESCRIBE)
    assert not may([*acls, acl("flights", operation=Operation.ALL, deny=True)], "flights", Operation.DESCRIBE)


def test_all_is_every_operation() -> None:
    for operation in Operation:
        assert may([acl("flights", operation=Operation.ALL)], "flights", operation)
        denied = [acl("*", operation=Operation.ALL), acl("flights", operation=Operation.ALL, deny=True)]
        assert not may(denied, "flights", operation)


def test_super_users_may_do_all_whatever_is_denied() -> None:
    rules = Authorizer([acl("*", "User:*", Operation.ALL, deny=True)], ["User:ann"])
    assert rules.authorize(asks(), Operation.DELETE, TOPIC, "flights")
    assert rules.authorize(asks(), Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert rules.authorize_by_resource_type(asks(), Operation.WRITE, TOPIC)
    assert not rules.authorize(asks("bob"), Operation.DELETE, TOPIC, "flights")


def test_a_user_who_is_called_star_is_no_more_than_everybody() -> None:
    rules = Authorizer([acl("open", "User:*"), acl("flights")], ["User:root"])
    assert rules.authorize(asks("*"), Operation.READ, TOPIC, "open")
    assert not rules.authorize(asks("*"), Operation.READ, TOPIC, "flights")


def test_at_least_one_resource_is_what_an_acl_allows_and_no_denial_covers() -> None:
    assert not may_some([])
    assert may_some([acl("flights")])
    assert may_some([acl("fl", prefixed=True)])
    assert may_some([acl("*")])
    assert not may_some([acl("flights")], Operation.WRITE)
    assert not may_some([acl("flights"), acl("*", deny=True)])
    assert not may_some([acl("flights"), acl("fl", prefixed=True, deny=True)])
    assert not may_some([acl("flights"), acl("flights", deny=True)])
    assert may_some([acl("flights"), acl("trips"), acl("fl", prefixed=True, deny=True)])
    assert may_some([acl("fl", prefixed=True), acl("flights", prefixed=True, deny=True)])
    assert may_some([acl("flights", prefixed=True), acl("flights", deny=True)])
    assert may_some([acl("*"), acl("fl", prefixed=True, deny=True)])


def test_at_least_one_resource_counts_implied_operations_for_any_name_alone_as_kafka_does() -> None:
    assert may_some([acl("*")], Operation.DESCRIBE)
    assert not may_some([acl("flights")], Operation.DESCRIBE)


def test_other_acls_are_another_authorizer_with_no_decision_of_the_old_one() -> None:
    before = Authorizer([acl("flights")])
    assert before.authorize(asks(), Operation.READ, TOPIC, "flights")
    assert not Authorizer([]).authorize(asks(), Operation.READ, TOPIC, "flights")
    assert before.authorize(asks(), Operation.READ, TOPIC, "flights")


def test_names_and_groups_without_end_are_decided_too() -> None:
    name = "x" * (TOPIC_NAME_MAX_CHARS + 1)
    groups = [f"group-{number}" for number in range(1_000)]
    rules = Authorizer([acl(name), acl("flights", "Group:group-999")])
    assert rules.authorize(asks(), Operation.READ, TOPIC, name)
    assert rules.authorize(asks("bob", *groups), Operation.READ, TOPIC, "flights")
    assert rules.authorize_by_resource_type(asks("bob", *groups), Operation.READ, TOPIC)
    assert not rules.authorize_by_resource_type(asks("bob", *groups), Operation.WRITE, TOPIC)


def test_threads_share_an_authorizer() -> None:
    rules = Authorizer(acl(f"topic-{number}", f"User:{number % 7}") for number in range(500))

    def wrong(turn: int) -> list[int]:
        decided = (
            rules.authorize(asks(str((number + turn) % 7)), Operation.READ, TOPIC, f"topic-{number}")
            for number in range(500)
        )
        return [number for number, allowed in enumerate(decided) if allowed != (turn % 7 == 0)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, range(28))) == [[]] * 28


NAMES = ["a", "ab", "abc", "b", "*", "a*", "hardcode"]
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from(PatternType),
    st.sampled_from(["User:ann", "User:bob", "User:*", "Group:crew", "Group:pilots"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "10.0.0.2/31", "10.0.0.0/8"]),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
)
CONTEXTS = st.builds(
    lambda user, groups, host: asks(user, *groups, host=host),
    st.sampled_from(["ann", "bob", "eve"]),
    st.lists(st.sampled_from(["crew", "pilots", "other"]), max_size=2),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
)


@given(st.lists(ACLS, max_size=12), CONTEXTS, st.sampled_from(NAMES))
def test_every_decision_is_that_of_a_plain_scan(acls: list[Acl], context: RequestContext, name: str) -> None:
    rules = Authorizer(acls)
    for operation in Operation:
        decided = rules.authorize(context, operation, TOPIC, name)
        assert decided == scanned(acls, context, operation, TOPIC, name)
