"""The members of a group: joining, leaving, subscribing, and what they are refused for."""

import pytest

from coordinator.groups.events import (
    Assign,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Join,
    Leave,
    OffsetAndMetadata,
    Poll,
    Reset,
    Seek,
    Subscribe,
    TopicsChanged,
    TopicState,
    Unsubscribe,
)
from coordinator.groups.state.group_records import restore
from log_tables.cluster.group_log import (
    GroupKey,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
)
from log_tables.errors import (
    GroupNotEmpty,
    InvalidConsumer,
    InvalidSubscription,
    LakelogError,
    MemberExists,
    MixedSubscription,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from tests.kit.driven_group import T0, TWO, Driven, T, at


def test_nothing_is_known_of_a_group_that_never_was() -> None:
    group = Driven().group
    assert not group.exists
    assert group.empty
    assert group.deadline_ms is None


def test_who_joins_owns_nothing_and_chooses_nothing_yet() -> None:
    driven = Driven()
    config = MemberConfig(format="json")
    assert driven.happen(Join("a", config)) == [(MemberKey("g", "a"), MemberValue(config))]
    assert driven.group.exists
    assert driven.group.empty
    assert driven.owned("a") == at()


def test_a_name_is_taken_once() -> None:
    driven = Driven().joined("a")
    driven.refuse(Join("a", MemberConfig()), MemberExists, "'a' already; choose another")


def test_a_strategy_must_be_known() -> None:
    Driven().refuse(Join("a", MemberConfig(strategy="fair")), InvalidConsumer, "'fair' .* sticky, range")


@pytest.mark.parametrize("others", ["", "sticky"])
def test_members_share_in_one_way(others: str) -> None:
    driven = Driven().joined("a", strategy=others).joined("b", strategy="sticky").joined("c")
    driven.refuse(Join("d", MemberConfig(strategy="range")), InvalidConsumer, "by sticky, not by range")


def test_the_first_who_asks_for_a_strategy_chooses_it() -> None:
    driven = Driven({"t": TopicState("id", 4)}).joined("a", "b", strategy="range").stable()
    assert (driven.owned("a"), driven.owned("b")) == (at(0, 1), at(2, 3))
    driven.happen(Leave("a"), Leave("b"))
    assert driven.joined("c", strategy="roundrobin").group.strategy == "roundrobin"


@pytest.mark.parametrize(
    "event",
    [
        Leave("x"),
        Heartbeat("x"),
        Subscribe("x", T),
        Unsubscribe("x"),
        Assign("x", at(0)),
        Poll("x"),
        Commit("x", {T0: OffsetAndMetadata(0)}, 0),
        Seek("x", {T0: 0}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_happens_to_a_member_that_is_not_there(event: Event) -> None:
    Driven().joined("a").refuse(event, UnknownMember, "no consumer instance 'x'.*create it again")


def test_what_a_member_leaves_the_others_take() -> None:
    driven = Driven().joined("a", "b").stable()
    left = driven.owned("b")
    records = driven.happen(Leave("b"))
    assert (MemberKey("g", "b"), None) in records
    assert driven.owned("a").isdisjoint(left), "not before it polls"
    driven.happen(Poll("a"))
    assert driven.owned("a") == at(0, 1)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Subscribe("a", T), Subscribe("a", pattern="t")),
        (Subscribe("a", T), Assign("a", at(0))),
        (Subscribe("a", pattern="t"), Subscribe("a", T)),
        (Subscribe("a", pattern="t"), Assign("a", at(0))),
        (Assign("a", at(0)), Subscribe("a", T)),
        (Assign("a", at(0)), Subscribe("a", pattern="t")),
    ],
)
def test_topics_a_pattern_and_partitions_exclude_one_another(first: Event, then: Event) -> None:
    driven = Driven()
    driven.happen(Join("a", MemberConfig()), first)
    driven.refuse(then, MixedSubscription, "delete its subscription first")
    driven.happen(Unsubscribe("a"), then)


@pytest.mark.parametrize(
    ("event", "error", "says"),
    [
        (Subscribe("a"), InvalidSubscription, "name one"),
        (Subscribe("a", T, "t"), MixedSubscription, "not both"),
        (Subscribe("a", pattern="("), InvalidSubscription, "'\\('"),
        (Assign("a", at(0, topic="no")), UnknownTopic, "no topic 'no'"),
        (Assign("a", at(2)), UnknownPartition, "no partition 2; it has 0 to 1"),
        (Assign("a", at(-1)), UnknownPartition, "no partition -1"),
    ],
)
def test_what_cannot_be_chosen(event: Event, error: type[LakelogError], says: str) -> None:
    driven = Driven()
    driven.happen(Join("a", MemberConfig()))
    driven.refuse(event, error, says)


def test_a_malformed_pattern_is_refused_where_there_are_no_topics() -> None:
    driven = Driven({})
    driven.happen(Join("a", MemberConfig()))
    driven.refuse(Subscribe("a", pattern="a)|(b"), InvalidSubscription, "use RE2's syntax")


def test_another_subscription_replaces_the_one_before() -> None:
    driven = Driven({**TWO, "u": TopicState("id-u", 1)}).joined("a").stable()
    driven.happen(Subscribe("a", frozenset({"u"})))
    assert driven.owned("a") == at(0, 1), "it has not polled yet"
    driven.happen(Poll("a"))
    assert driven.owned("a") == at(0, topic="u")


def test_a_pattern_takes_what_comes_but_nothing_internal() -> None:
    driven = Driven({})
    driven.happen(Join("a", MemberConfig()), Subscribe("a", pattern=".*"))
    driven.happen(TopicsChanged({**TWO, "__consumer_offsets": TopicState("id-c", 1)}), Poll("a"))
    assert driven.owned("a") == at(0, 1)


def test_who_ends_its_subscription_owns_nothing_at_once() -> None:
    driven = Driven().joined("a", "b").stable()
    driven.happen(Unsubscribe("a"))
    assert driven.owned("a") == at()
    driven.happen(Poll("b"))
    assert driven.owned("b") == at(0, 1)
    assert driven.member("a").epoch < driven.group.generation


def test_partitions_that_a_member_chose_itself_take_nothing_from_the_others() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Join("b", MemberConfig()), Assign("b", at(0)), Poll("b"))
    assert driven.owned("b") == at(0)
    assert driven.owned("a") == at(0, 1)
    driven.happen(Assign("b", at(1)))
    assert driven.owned("b") == at(1)
    driven.happen(Assign("b", at()), Subscribe("b", T))


def test_a_group_with_members_is_deleted_by_force_alone() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Commit("a", {T0: OffsetAndMetadata(7)}, 0))
    driven.refuse(Delete(), GroupNotEmpty, "force it")
    records = driven.happen(Delete(force=True))
    assert {key for key, value in records if value is None} == {
        GroupKey("g"),
        MemberKey("g", "a"),
        OffsetKey("g", "t", 0),
    }
    assert not driven.group.exists
    assert restore(driven.records, 0) == {}
    assert driven.joined("a").stable().owned("a") == at(0, 1), "its topics are still known"


def test_a_group_without_members_is_deleted() -> None:
    driven = Driven()
    driven.happen(Reset({T0: OffsetAndMetadata(1)}, 0), Delete())
    assert not driven.group.exists
