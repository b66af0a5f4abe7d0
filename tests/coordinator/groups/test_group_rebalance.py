"""Rebalances of a group: partitions are given up before they are taken over, and time counts."""

import pytest

from coordinator.groups.events import (
    Assign,
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    OffsetAndMetadata,
    Poll,
    Seek,
    Start,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
)
from log_tables.cluster.group_log import (
    GroupKey,
    GroupValue,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
)
from log_tables.errors import (
    NotAssigned,
    UnknownMember,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_group import T0, T1, TWO, Driven, T, at


def test_nothing_is_taken_over_before_it_is_given_up() -> None:
    driven = Driven().joined("a").stable().joined("b")
    driven.happen(Poll("b"))
    assert driven.owned("b") == at()
    driven.happen(Poll("a"))
    assert driven.owned("b") == at()
    assert len(driven.owned("a")) == 1
    driven.happen(Poll("b"))
    assert driven.owned("b") == at(0, 1) - driven.owned("a")


def test_who_asks_for_generations_is_told_before_it_gives_up() -> None:
    driven = Driven().joined("a").stable()
    known = driven.member("a").epoch
    driven.joined("b")
    assert driven.member("a").epoch > known
    (lost,) = driven.group.to_revoke(driven.member("a"))
    assert driven.happen(Poll("a", known)) == []
    assert driven.owned("a") == at(0, 1)
    driven.happen(Commit("a", {lost: OffsetAndMetadata(5)}, 0))
    told = driven.member("a").epoch
    driven.happen(Poll("a", told))
    assert driven.owned("a") == at(0, 1) - {lost}
    driven.refuse(Commit("a", {lost: OffsetAndMetadata(6)}, 0), NotAssigned, "does not own partition")
    assert driven.member("a").epoch > told


def test_who_was_told_of_one_loss_must_be_told_of_another() -> None:
    driven = Driven({"t": TopicState("id", 6)}).joined("a").stable().joined("b")
    told = driven.member("a").epoch
    assert len(driven.group.to_revoke(driven.member("a"))) == 3
    driven.joined("c")
    assert len(driven.group.to_revoke(driven.member("a"))) == 4
    driven.happen(Poll("a", told))
    assert len(driven.owned("a")) == 6
    driven.happen(Poll("a", driven.member("a").epoch))
    assert len(driven.owned("a")) == 2


def test_who_was_told_of_a_loss_is_told_when_it_keeps_all_after_all() -> None:
    driven = Driven().joined("a").stable().joined("b")
    told = driven.member("a").epoch
    driven.happen(Poll("a", told - 1), Leave("b"))
    assert driven.group.to_revoke(driven.member("a")) == at()
    assert driven.member("a").epoch > told
    assert driven.owned("a") == at(0, 1)


def test_who_keeps_everything_is_told_nothing() -> None:
    driven = Driven({"t": TopicState("id", 6)}).joined("a", "b", "c").stable()
    epochs = [driven.member(name).epoch for name in "ab"]
    driven.happen(Leave("c"))
    assert [driven.member(name).epoch for name in "ab"] == epochs
    assert not any(driven.group.to_revoke(driven.member(name)) for name in "ab")


def test_a_poll_that_changes_nothing_writes_nothing() -> None:
    driven = Driven().joined("a", "b").stable()
    before = driven.group.generation
    assert driven.happen(Poll("a"), Poll("b"), Heartbeat("a")) == []
    assert driven.happen(Poll("a")) == []
    assert driven.group.generation == before


def test_every_change_of_who_owns_what_has_a_generation() -> None:
    driven = Driven().joined("a")
    before = driven.group.generation
    records = driven.happen(Poll("a"))
    assert driven.group.generation == before + 1
    assert records[0] == (GroupKey("g"), GroupValue(before + 1))
    (_, value) = records[1]
    assert isinstance(value, MemberValue)
    assert (value.owned, value.epoch) == ({"t": [0, 1]}, before + 1)


def test_a_session_ends_by_silence_alone() -> None:
    driven = Driven().joined("a", "b", session_timeout_ms=100).stable()
    driven.now_ms = 99
    driven.happen(Heartbeat("a"), Tick(0))
    assert driven.group.members.keys() == {"a", "b"}
    driven.now_ms = 100
    assert driven.group.deadline_ms == 100
    assert (MemberKey("g", "b"), None) in driven.happen(Tick(0))
    assert driven.group.members.keys() == {"a"}
    assert driven.group.deadline_ms == 199
    driven.refuse(Commit("b", {T0: OffsetAndMetadata(1)}, 0), UnknownMember, "silent")


@pytest.mark.parametrize(
    "event",
    [
        Poll("a"),
        Heartbeat("a"),
        Subscribe("a", T),
        Commit("a", {T0: OffsetAndMetadata(0)}, 0),
        Seek("a", {T0: 0}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_whatever_a_member_does_it_is_alive(event: Event) -> None:
    driven = Driven().joined("a", session_timeout_ms=100).stable()
    driven.now_ms = 50
    driven.happen(event)
    driven.now_ms = 149
    driven.happen(Tick(0))
    assert "a" in driven.group.members


def test_who_does_not_poll_for_long_keeps_its_place_and_loses_its_partitions() -> None:
    driven = Driven().joined("a", "b", max_poll_interval_ms=50, session_timeout_ms=1_000).stable()
    lost = driven.owned("a")
    known = driven.member("a").epoch
    driven.now_ms = 30
    driven.happen(Poll("b"))
    driven.now_ms = 50
    driven.happen(Heartbeat("a"), Tick(0))
    assert driven.member("a").dormant
    assert driven.owned("a") == at()
    driven.happen(Poll("b"))
    assert driven.owned("b") == at(0, 1)
    driven.refuse(Commit("a", {next(iter(lost)): OffsetAndMetadata(1)}, 0), NotAssigned, "does not own")
    assert driven.group.deadline_ms == 100
    driven.happen(Heartbeat("a"))
    assert driven.member("a").dormant, "a heartbeat is no poll"
    driven.happen(Poll("a", known))
    assert not driven.member("a").dormant
    assert driven.member("a").epoch > known
    assert len(driven.group.to_revoke(driven.member("b"))) == 1
    assert len(driven.stable().owned("a")) == 1


def test_who_shares_nothing_need_not_poll() -> None:
    driven = Driven()
    config = MemberConfig(max_poll_interval_ms=50, session_timeout_ms=1_000)
    driven.happen(Join("a", config), Assign("a", at(0)), Join("b", config))
    driven.now_ms = 999
    driven.happen(Tick(0))
    assert driven.owned("a") == at(0)
    assert not driven.member("b").dormant


def test_the_slow_and_the_dead_of_one_moment_are_both_seen_to() -> None:
    driven = Driven().joined("a", session_timeout_ms=50).joined("b", max_poll_interval_ms=50).joined("c")
    driven.stable()
    driven.now_ms = 50
    driven.happen(Tick(0), Poll("c"))
    assert driven.group.members.keys() == {"b", "c"}
    assert driven.member("b").dormant
    assert driven.owned("c") == at(0, 1)


def test_new_partitions_are_shared_and_move_nothing() -> None:
    driven = Driven().joined("a", "b").stable()
    before = {name: driven.owned(name) for name in "ab"}
    driven.happen(TopicsChanged({"t": TopicState("id-t", 4)}))
    driven.stable()
    assert all(driven.owned(name) > before[name] for name in "ab")
    assert driven.owned("a") | driven.owned("b") == at(0, 1, 2, 3)


@pytest.mark.parametrize("then", [{}, {"t": TopicState("id-new", 2)}], ids=["deleted", "made-again"])
def test_of_a_topic_that_is_gone_nothing_stays(then: dict[str, TopicState]) -> None:
    driven = Driven({**TWO, "u": TopicState("id-u", 1)})
    u0 = TopicPartition("u", 0)
    start = Start("a", dict.fromkeys((T0, T1, u0)), driven.group.topics, 0)
    driven.happen(Join("a", MemberConfig()), Subscribe("a", frozenset({"t", "u"})), start)
    driven.happen(
        Poll("a"),
        Commit("a", {T0: OffsetAndMetadata(7), u0: OffsetAndMetadata(8)}, 0),
        Seek("a", {T1: 5, u0: 6}),
    )
    known = driven.member("a").epoch
    records = driven.happen(TopicsChanged({"u": TopicState("id-u", 1), **then}))
    assert (OffsetKey("g", "t", 0), None) in records
    assert driven.owned("a") == {u0}, "there is nothing to give up in order"
    assert driven.member("a").epoch > known
    assert driven.member("a").positions == {u0: 6}
    begun = {place: 0 for place in (T0, T1) if then}
    assert {place: found.offset for place, found in driven.group.offsets.items()} == {u0: 8, **begun}
    driven.stable()
    assert driven.owned("a") == {u0} | (at(0, 1) if then else at())
