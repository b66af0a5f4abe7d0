"""Whose a member and a group are, and which topics a member that subscribes by pattern may read."""

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.events import (
    Join,
    OffsetAndMetadata,
    Poll,
    Reset,
    Subscribe,
    TopicsChanged,
    TopicState,
    Unsubscribe,
)
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from coordinator.groups.topic_filter import KEPT_MAX, TopicFilter
from log_tables.cluster.group_log import MemberConfig
from tests.kit.driven_group import T0, Driven, at

BOTH = {"t": TopicState("id-t", 1), "u": TopicState("id-u", 1)}
ANN = RequestContext(Principal("User:ann", ("Group:readers",)), "10.0.0.1")
BOB = RequestContext(Principal("User:bob"), "10.0.0.2")


def reading(*pairs: tuple[RequestContext, str]) -> TopicsChanged:
    """The topics, of which each of these may read those that are named with it."""
    return TopicsChanged(BOTH, TopicFilter(lambda context, name: (context, name) in pairs))


def subscribed(driven: Driven, name: str, context: RequestContext | None) -> None:
    driven.happen(Join(name, MemberConfig(), context), Subscribe(name, pattern=".*", context=context))


def test_a_pattern_takes_what_its_principal_may_read() -> None:
    driven = Driven(BOTH)
    driven.happen(reading((ANN, "t"), (BOB, "t"), (BOB, "u")))
    subscribed(driven, "a", ANN)
    driven.happen(Poll("a"))
    assert driven.owned("a") == at(0)
    assert driven.group.subscription(driven.member("a")) == {"t"}
    subscribed(driven, "b", BOB)
    driven.stable()
    assert (driven.owned("a"), driven.owned("b")) == (at(0), at(0, topic="u"))


def test_when_acls_change_the_partitions_go_to_who_may_read_them() -> None:
    driven = Driven(BOTH)
    driven.happen(reading((ANN, "t"), (ANN, "u")))
    subscribed(driven, "a", ANN)
    subscribed(driven, "b", BOB)
    driven.stable()
    assert (driven.owned("a"), driven.owned("b")) == (at(0) | at(0, topic="u"), at())
    before = driven.group.generation
    driven.happen(reading((ANN, "t"), (BOB, "u")))
    assert driven.group.generation > before, "a poll that waits wakes"
    driven.stable()
    assert (driven.owned("a"), driven.owned("b")) == (at(0), at(0, topic="u"))
    assert driven.happen(reading((ANN, "t"), (BOB, "u"))) == [], "nothing has changed"


def test_the_next_coordinator_goes_by_the_same_principals() -> None:
    driven = Driven(BOTH)
    subscribed(driven, "a", ANN)
    driven.happen(Poll("a"))
    assert driven.owned("a") == at(0) | at(0, topic="u"), "nothing was authenticated"
    found = restore(driven.records, 0)["g"]
    assert found.member("a").context == ANN
    found, _ = step(found, reading((ANN, "u")), 0)
    found, _ = step(found, Poll("a"), 0)
    assert found.member("a").owned == at(0, topic="u")


def test_who_subscribes_anew_counts() -> None:
    driven = Driven(BOTH)
    driven.happen(reading((BOB, "u")))
    subscribed(driven, "a", ANN)
    driven.happen(Unsubscribe("a"), Subscribe("a", pattern=".*", context=BOB), Poll("a"))
    assert driven.owned("a") == at(0, topic="u")
    assert restore(driven.records, 0)["g"].member("a").context == BOB


def test_a_subscription_of_nobody_takes_all() -> None:
    """The subscription was made while nobody was authenticated; a poll then gives only topics that its caller
    may read.
    """
    driven = Driven(BOTH)
    driven.happen(reading())
    subscribed(driven, "a", None)
    driven.happen(Poll("a"))
    assert driven.owned("a") == at(0) | at(0, topic="u")


def test_a_group_is_of_who_made_it() -> None:
    first, second = Driven(BOTH), Driven(BOTH)
    first.happen(Join("a", MemberConfig(), ANN), Join("b", MemberConfig(), BOB))
    second.happen(Reset({T0: OffsetAndMetadata(1)}, 0, context=ANN), Join("b", MemberConfig(), BOB))
    for driven in (first, second):
        assert driven.group.principal == "User:ann"
        assert restore(driven.records, 0)["g"].principal == "User:ann"
        contexts = [member.context for member in driven.group.members.values()]
        assert contexts[-1] == BOB
    third = Driven(BOTH)
    third.happen(Join("a", MemberConfig()), Join("b", MemberConfig(), BOB))
    assert third.group.principal == "", "it was there before"


def test_a_filter_asks_once_and_keeps_a_bounded_number_of_answers() -> None:
    asked = []

    def reads(context: RequestContext, name: str) -> bool:
        asked.append((context, name))
        return name == "t"

    found = TopicFilter(reads)
    for _ in range(2):
        assert found.of(ANN, frozenset({"t", "u"})) == {"t"}
    assert len(asked) == 2
    for number in range(KEPT_MAX + 1):
        found.of(ANN, frozenset({f"t{number}"}))
    assert found.of(ANN, frozenset({"t", "u"})) == {"t"}
    assert len(asked) == 2 + KEPT_MAX + 1 + 2
