"""ACLs found by an index as by a look at each; that these are Kafka's finds is in test_acls.py."""

from collections.abc import Sequence
from typing import TypeVar

from api.kafka.access.acl_index import FREQUENT, AclIndex
from coordinator.access.acl_argument import AclFilter, PatternTypeFilter
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from log_tables.limits import ACL_NAME_MAX_CHARS

NAMES = ["*", "orders", "order", "o", "orders-eu", "x" * ACL_NAME_MAX_CHARS]
HOSTS = ["*", "10.0.0.7", "::ffff:10.0.0.7", "10.0.0.0/8", "10.1.2.3/8", "2001:db8::1", "2001:DB8:0::1"]
OPERATIONS = [Operation.READ, Operation.ALL, Operation.WRITE]


Item = TypeVar("Item")


def one_of(chance: ManualClock, items: Sequence[Item]) -> Item:
    return items[int(chance.random() * len(items))]


def some_acls(chance: ManualClock, count: int) -> list[Acl]:
    return [
        Acl(
            one_of(chance, [ResourceType.TOPIC, ResourceType.GROUP]),
            one_of(chance, [*NAMES, f"name-{number}"]),
            one_of(chance, [*PatternType]),
            one_of(chance, ["User:*", f"User:{number % 300}"]),
            one_of(chance, HOSTS),
            one_of(chance, OPERATIONS),
            one_of(chance, [*Permission]),
        )
        for number in range(count)
    ]


def some_filter(chance: ManualClock) -> AclFilter:
    return AclFilter(
        one_of(chance, [None, None, ResourceType.TOPIC, ResourceType.CLUSTER]),
        one_of(chance, [None, *NAMES, "name-7", "", "x" * (2 * ACL_NAME_MAX_CHARS)]),
        one_of(chance, [*PatternTypeFilter]),
        one_of(chance, [None, None, "User:*", "User:7", "User:none"]),
        one_of(chance, [None, None, *HOSTS, "no host"]),
        one_of(chance, [None, *OPERATIONS, Operation.DELETE]),
        one_of(chance, [None, *Permission]),
    )


def test_it_finds_what_a_look_at_each_finds() -> None:
    chance, found_some = ManualClock(seed=7), 0
    acls = sorted({*some_acls(chance, 20 * FREQUENT)})
    index = AclIndex(sorted(acls, key=lambda _: chance.random()))
    for _ in range(1_000):
        wanted = some_filter(chance)
        found = index.find(wanted)
        expected = [acl for acl in acls if wanted.matches(acl)]
        assert index.acls(found) == expected, wanted
        assert found.bit_count() == len(expected)
        found_some += bool(expected)
    assert 200 < found_some < 900
    assert AclIndex(()).find(AclFilter()) == 0


def test_a_thousand_filters_of_ten_thousand_acls_take_no_long_time() -> None:
    """To compare each with each takes a minute where filters name hosts."""
    chance, used_s = ManualClock(seed=7), SystemClock().processor_s
    acls, before = [*{*some_acls(chance, 10_000)}], used_s()
    index = AclIndex(acls)
    for number in range(1_000):
        assert not index.find(AclFilter(host=f"172.16.{number % 250}.{number // 250}"))
        assert not index.find(AclFilter(operation=Operation.DELETE, pattern_type=PatternTypeFilter.LITERAL))
        name = f"{number}" + "x" * ACL_NAME_MAX_CHARS
        wanted = AclFilter(ResourceType.CLUSTER, name, PatternTypeFilter.MATCH, "User:*")
        assert not index.find(wanted)
    assert used_s() - before < 5
