"""The strategies, against Kafka's documented examples and against what must hold of every assignment."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.groups.state.assignment import (
    STRATEGIES,
    Assignment,
    Subscriptions,
    range_,
    round_robin,
    sticky,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.group_rules import fewest_moves, is_fair, moves, spread

Strategy = Callable[[Subscriptions, Mapping[str, int], Assignment], Assignment]

NOTHING_OWNED: Assignment = {}


def at(*names: str) -> frozenset[TopicPartition]:
    """`t0-1` is partition 1 of topic t0."""
    split = [name.rsplit("-", 1) for name in names]
    return frozenset(TopicPartition(topic, int(partition)) for topic, partition in split)


def everyone(*members: str, topics: str) -> dict[str, list[str]]:
    return {member: topics.split() for member in members}


# Range: the examples of the Javadoc of Kafka's RangeAssignor.


def test_range_gives_each_of_two_members_a_run_of_every_topic() -> None:
    assert range_(everyone("C0", "C1", topics="t0 t1"), {"t0": 3, "t1": 3}, NOTHING_OWNED) == {
        "C0": at("t0-0", "t0-1", "t1-0", "t1-1"),
        "C1": at("t0-2", "t1-2"),
    }


def test_range_numbers_of_topics_that_are_alike_go_together() -> None:
    given = range_(everyone("C0", "C1", "C2", topics="t0 t1"), {"t0": 6, "t1": 6}, NOTHING_OWNED)
    assert given["C1"] == at("t0-2", "t0-3", "t1-2", "t1-3")


def test_range_with_more_members_than_partitions_leaves_the_last_without() -> None:
    given = range_(everyone("C0", "C1", "C2", topics="t0"), {"t0": 2}, NOTHING_OWNED)
    assert given == {"C0": at("t0-0"), "C1": at("t0-1"), "C2": frozenset()}


# Round robin: the examples of the Javadoc of Kafka's RoundRobinAssignor.


def test_round_robin_deals_out_all_topics_in_turn() -> None:
    assert round_robin(everyone("C0", "C1", topics="t0 t1"), {"t0": 3, "t1": 3}, NOTHING_OWNED) == {
        "C0": at("t0-0", "t0-2", "t1-1"),
        "C1": at("t0-1", "t1-0", "t1-2"),
    }


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    subscriptions = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert round_robin(subscriptions, {"t0": 1, "t1": 2, "t2": 3}, NOTHING_OWNED) == {
        "C0": at("t0-0"),
        "C1": at("t1-0"),
        "C2": at("t1-1", "t2-0", "t2-1", "t2-2"),
    }


# Sticky: the examples of KIP-54 and of the Javadoc of Kafka's StickyAssignor.


def test_sticky_keeps_what_the_others_had_when_one_of_three_dies() -> None:
    owned = {
        "C0": at("t0-0", "t1-1", "t3-0"),
        "C1": at("t0-1", "t2-0", "t3-1"),
        "C2": at("t1-0", "t2-1"),
    }
    topics = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    kept = sticky(everyone("C0", "C2", topics="t0 t1 t2 t3"), topics, owned)
    assert kept["C0"] > owned["C0"]
    assert kept["C2"] > owned["C2"]
    assert spread(kept) == [4, 4]


def test_sticky_gives_what_few_can_take_to_them() -> None:
    owned = {"C0": at("t0-0"), "C1": at("t1-0", "t1-1"), "C2": at("t2-0", "t2-1", "t2-2")}
    subscriptions = {"C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert sticky(subscriptions, {"t0": 1, "t1": 2, "t2": 3}, owned) == {
        "C1": at("t0-0", "t1-0", "t1-1"),
        "C2": at("t2-0", "t2-1", "t2-2"),
    }


def test_sticky_takes_one_from_each_for_a_new_member() -> None:
    owned = {"C0": at("t-0", "t-1", "t-2"), "C1": at("t-3", "t-4", "t-5")}
    given = sticky(everyone("C0", "C1", "C2", topics="t"), {"t": 6}, owned)
    assert spread(given) == [2, 2, 2]
    assert moves(owned, given) == 2


def test_sticky_gives_new_partitions_to_those_with_few_and_moves_none() -> None:
    owned = {"C0": at("t-0", "t-1"), "C1": at("t-2")}
    given = sticky(everyone("C0", "C1", topics="t"), {"t": 4}, owned)
    assert given == {"C0": owned["C0"], "C1": at("t-2", "t-3")}


def test_sticky_moves_what_nobody_owns_yet_before_what_somebody_owns() -> None:
    owned = {"C0": at("t0-0", "t0-1"), "C1": frozenset[TopicPartition]()}
    given = sticky({"C0": ["t0", "t1"], "C1": ["t1"]}, {"t0": 2, "t1": 2}, owned)
    assert given == {"C0": at("t0-0", "t0-1"), "C1": at("t1-0", "t1-1")}


def test_sticky_moves_exactly_what_it_must_of_900_partitions_when_the_eleventh_member_comes() -> None:
    topics = {f"t{number}": 90 for number in range(10)}
    names = [f"C{number:02}" for number in range(11)]
    before = sticky(everyone(*names[:10], topics=" ".join(topics)), topics, NOTHING_OWNED)
    assert spread(before) == [90] * 10
    after = sticky(everyone(*names, topics=" ".join(topics)), topics, before)
    assert spread(after) == [81] * 2 + [82] * 9
    assert moves(before, after) == 81
    again = sticky(everyone(*names[1:], topics=" ".join(topics)), topics, after)
    assert spread(again) == [90] * 10
    assert moves(after, again) == 0


@pytest.mark.parametrize(("few", "many", "moving"), [(1, 2, 5_000), (2, 100, 9_800), (100, 101, 99)])
def test_sticky_moves_exactly_what_it_must_of_10_000_partitions(few: int, many: int, moving: int) -> None:
    """The coordinator serves nobody meanwhile, so what a move costs must not grow with what is held."""
    topics = {f"t{number}": 100 for number in range(100)}
    names = [f"C{number:03}" for number in range(many)]
    before = sticky(everyone(*names[:few], topics=" ".join(topics)), topics, NOTHING_OWNED)
    after = sticky(everyone(*names, topics=" ".join(topics)), topics, before)
    share, larger = divmod(10_000, many)
    assert spread(after) == [share] * (many - larger) + [share + 1] * larger
    assert moves(before, after) == moving
    assert sticky(everyone(*names, topics=" ".join(topics)), topics, after) == after


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_what_there_is_not_is_given_to_nobody(strategy: Strategy) -> None:
    assert strategy({}, {"t": 3}, {}) == {}
    assert strategy({"C0": ["gone"], "C1": []}, {"t": 3}, {"C0": at("gone-0")}) == {
        "C0": frozenset(),
        "C1": frozenset(),
    }


# The rules of any group.

members = st.sampled_from(["m0", "m1", "m2", "m3", "m4", "m5"])
topics = st.sampled_from(["a", "b", "c", "d"])
partition_counts = st.dictionaries(topics, st.integers(1, 7))
heterogeneous = st.dictionaries(members, st.frozensets(topics))
homogeneous = st.builds(
    dict.fromkeys,
    st.frozensets(members, min_size=1),
    st.frozensets(topics),
)


@st.composite
def owners(draw: st.DrawFn, most: int = 7) -> Assignment:
    """An ownership, valid or not: it may have deleted topics, and members that have left."""
    every = [TopicPartition(topic, partition) for topic in "abcd" for partition in range(most)]
    chosen = draw(st.dictionaries(st.sampled_from(every), members))
    found: dict[str, set[TopicPartition]] = {}
    for partition, member in chosen.items():
        found.setdefault(member, set()).add(partition)
    return {member: frozenset(partitions) for member, partitions in found.items()}


@pytest.mark.parametrize("name", STRATEGIES)
@given(subscriptions=heterogeneous | homogeneous, counts=partition_counts, owned=owners())
def test_every_partition_has_one_owner_who_subscribes_to_it(
    name: str, subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment
) -> None:
    given = STRATEGIES[name](subscriptions, counts, owned)
    assert given.keys() == subscriptions.keys()
    wanted = {topic for chosen in subscriptions.values() for topic in chosen} & counts.keys()
    held = sorted(partition for partitions in given.values() for partition in partitions)
    assert held == sorted(TopicPartition(topic, p) for topic in wanted for p in range(counts[topic]))
    for member, partitions in given.items():
        assert {partition.topic for partition in partitions} <= set(subscriptions[member])


@pytest.mark.parametrize("strategy", [sticky, round_robin])
@given(subscriptions=homogeneous, counts=partition_counts, owned=owners())
def test_who_subscribes_to_the_same_gets_as_many_or_one_more(
    strategy: Strategy, subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment
) -> None:
    sizes = spread(strategy(subscriptions, counts, owned))
    assert sizes[-1] - sizes[0] <= 1


@given(subscriptions=heterogeneous, counts=partition_counts)
def test_range_shares_each_topic_evenly_and_in_order(
    subscriptions: Subscriptions, counts: Mapping[str, int]
) -> None:
    given = range_(subscriptions, counts, NOTHING_OWNED)
    for topic in counts:
        takers = [member for member in sorted(subscriptions) if topic in subscriptions[member]]
        runs = [sorted(p.partition for p in given[member] if p.topic == topic) for member in takers]
        assert [p for run in runs for p in run] == list(range(counts[topic]) if takers else [])
        assert sorted(map(len, runs), reverse=True) == list(map(len, runs))
        assert not runs or len(runs[0]) - len(runs[-1]) <= 1


@given(subscriptions=heterogeneous | homogeneous, counts=partition_counts, owned=owners())
def test_sticky_lets_nobody_take_from_somebody_who_has_two_more(
    subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment
) -> None:
    assert is_fair(sticky(subscriptions, counts, owned), subscriptions)


@given(subscriptions=heterogeneous | homogeneous, counts=partition_counts, owned=owners())
def test_sticky_moves_nothing_when_nothing_changed(
    subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment
) -> None:
    given = sticky(subscriptions, counts, owned)
    assert sticky(subscriptions, counts, given) == given


@given(subscriptions=homogeneous, counts=partition_counts, owned=owners())
def test_sticky_moves_as_few_as_can_be_among_members_that_subscribe_to_the_same(
    subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment
) -> None:
    given = sticky(subscriptions, counts, owned)
    assert moves(owned, given) == fewest_moves(subscriptions, counts, owned)


def _assignments(subscriptions: Subscriptions, counts: Mapping[str, int]) -> Iterator[Assignment]:
    """Every assignment that there can be."""
    wanted = [TopicPartition(t, p) for t in sorted(counts) for p in range(counts[t])]
    takers = [
        [m for m in sorted(subscriptions) if partition.topic in subscriptions[m]] for partition in wanted
    ]
    for chosen in product(*takers):
        found: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
        for partition, member in zip(wanted, chosen, strict=True):
            found[member].add(partition)
        yield {member: frozenset(partitions) for member, partitions in found.items()}


@given(
    subscriptions=st.builds(dict.fromkeys, st.sampled_from(["xy", "xyz"]), st.just("ab")),
    counts=st.fixed_dictionaries({"a": st.integers(1, 3), "b": st.integers(0, 3)}),
    owned=st.dictionaries(
        st.sampled_from(sorted(at("a-0", "a-1", "a-2", "b-0", "b-1", "b-2"))), st.sampled_from("wxyz")
    ),
)
def test_the_fewest_moves_are_what_trying_every_assignment_gives(
    subscriptions: Subscriptions, counts: Mapping[str, int], owned: dict[TopicPartition, str]
) -> None:
    before = {member: frozenset(p for p, owner in owned.items() if owner == member) for member in "wxyz"}
    even = [a for a in _assignments(subscriptions, counts) if spread(a)[-1] - spread(a)[0] <= 1]
    assert min(moves(before, given) for given in even) == fewest_moves(subscriptions, counts, before)
