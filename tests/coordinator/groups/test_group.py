"""A consumer group, event by event: what each does, what it is refused for, and what must be durable."""

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
    Tick,
    TopicsChanged,
    TopicState,
    Unsubscribe,
)
from coordinator.groups.group import Group, Member, Partitions
from coordinator.groups.group_records import restore
from coordinator.groups.step import step
from log_tables.cluster.group_log import (
    GroupKey,
    GroupValue,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Records,
)
from log_tables.errors import (
    GroupNotEmpty,
    InvalidConsumer,
    InvalidSubscription,
    LakelogError,
    MemberExists,
    MixedSubscription,
    NotAssigned,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.topic_partition import TopicPartition

TWO = {"t": TopicState("id-t", 2)}
T = frozenset({"t"})


def at(*partitions: int, topic: str = "t") -> Partitions:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Driven:
    """A group, the time in milliseconds, and all that was made durable."""

    def __init__(self, topics: dict[str, TopicState] = TWO) -> None:
        self.now_ms = 0
        self.records: Records = []
        self.group = Group("g")
        self.happen(TopicsChanged(topics))

    def happen(self, *events: Event) -> Records:
        """Apply `events`; returns the records of the last."""
        records: Records = []
        for event in events:
            self.group, records = step(self.group, event, self.now_ms)
            self.records += records
        return records

    def joined(self, *names: str, **config: object) -> "Driven":
        """Members that share topic t."""
        for name in names:
            self.happen(Join(name, MemberConfig(**config)), Subscribe(name, T))  # type: ignore[arg-type]
        return self

    def stable(self) -> "Driven":
        """After everybody has polled, until nothing changes."""
        while not self.group.is_stable:
            self.happen(*(Poll(name) for name in self.group.members))
        return self

    def refuse(self, event: Event, error: type[LakelogError], says: str) -> None:
        with pytest.raises(error, match=says):
            step(self.group, event, self.now_ms)

    def owned(self, name: str) -> Partitions:
        return self.member(name).owned

    def member(self, name: str) -> Member:
        return self.group.members[name]

    def restored(self, topics: dict[str, TopicState] = TWO) -> "Driven":
        """The group as another coordinator takes it over."""
        other = Driven(topics)
        other.now_ms, other.records = self.now_ms, [*self.records]
        other.group = restore(self.records, self.now_ms)["g"]
        other.happen(TopicsChanged(topics))
        return other


def test_nothing_is_known_of_a_group_that_never_was() -> None:
    group = Driven().group
    assert not group.exists
    assert group.empty
    assert group.deadline_ms is None


# Members.


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


# Choosing.


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


# Giving up and taking over.


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


# Time.


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


# Offsets.


def test_a_commit_is_kept_with_what_was_said_beside_it() -> None:
    driven = Driven().joined("a").stable()
    expected = OffsetValue(7, "id-t", "note", 123, "a")
    assert driven.happen(Commit("a", {T0: OffsetAndMetadata(7, "note")}, 123)) == [
        (OffsetKey("g", "t", 0), expected)
    ]
    assert driven.group.committed(T0) == expected
    assert driven.group.committed(T1) is None


def test_of_a_commit_of_what_is_owned_and_what_is_not_nothing_is_kept() -> None:
    driven = Driven().joined("a", "b").stable()
    own = next(iter(driven.owned("a")))
    driven.refuse(
        Commit("a", {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(1)}, 0), NotAssigned, "does not own"
    )
    driven.happen(Commit("a", {own: OffsetAndMetadata(1)}, 0))
    assert driven.group.offsets.keys() == {own}


def test_who_has_partitions_of_its_own_commits_only_where_nobody_shares() -> None:
    driven = Driven()
    driven.happen(Join("a", MemberConfig()), Assign("a", at(0)), Commit("a", {T0: OffsetAndMetadata(1)}, 0))
    driven.joined("b")
    driven.refuse(Commit("a", {T0: OffsetAndMetadata(2)}, 0), GroupNotEmpty, "use another group")
    driven.refuse(Commit("a", {T1: OffsetAndMetadata(2)}, 0), NotAssigned, "does not own")
    driven.happen(Leave("b"), Commit("a", {T0: OffsetAndMetadata(2)}, 0))


def test_offsets_stay_when_everybody_has_gone() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Commit("a", {T0: OffsetAndMetadata(7)}, 0), Leave("a"))
    assert driven.group.exists
    committed = driven.restored().group.committed(T0)
    assert committed is not None
    assert committed.offset == 7


def test_a_reset_waits_until_nobody_shares_or_is_forced() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Seek("a", {T0: 50, T1: 60}))
    driven.refuse(Reset({T0: OffsetAndMetadata(3)}, 9), GroupNotEmpty, "force it")
    driven.happen(Reset({T0: OffsetAndMetadata(3, "n")}, 9, force=True))
    assert driven.group.offsets == {T0: OffsetValue(3, "id-t", "n", 9, "")}
    assert driven.member("a").positions == {T1: 60}
    assert driven.restored().member("a").positions == {T1: 60}
    driven.happen(Leave("a"), Reset({T0: OffsetAndMetadata(1)}, 9))


def test_a_reset_of_what_there_is_not() -> None:
    driven = Driven()
    driven.refuse(
        Reset({T0: OffsetAndMetadata(1), TopicPartition("no", 0): OffsetAndMetadata(1)}, 0),
        UnknownTopic,
        "'no'",
    )
    driven.refuse(
        Reset({TopicPartition("t", 9): OffsetAndMetadata(1)}, 0, force=True),
        UnknownPartition,
        "no partition 9",
    )


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


# Positions that a member was set to.


def test_a_position_lasts_until_it_is_committed() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Seek("a", {T0: 5, T1: 6}))
    assert driven.restored().member("a").positions == {T0: 5, T1: 6}
    driven.happen(Commit("a", {T0: OffsetAndMetadata(9)}, 0))
    assert driven.member("a").positions == {T1: 6}
    assert driven.restored().member("a").positions == {T1: 6}


def test_a_position_goes_with_its_partition() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Seek("a", {T0: 5, T1: 6}))
    driven.joined("b").stable()
    assert driven.member("a").positions.keys() == driven.owned("a")
    driven.happen(Unsubscribe("a"))
    assert driven.member("a").positions == {}
    driven.happen(Assign("a", at(0, 1)), Seek("a", {T0: 5, T1: 6}), Assign("a", at(1)))
    assert driven.member("a").positions == {T1: 6}


def test_nobody_is_set_to_a_place_in_what_it_does_not_own() -> None:
    driven = Driven().joined("a")
    driven.refuse(Seek("a", {T0: 5}), NotAssigned, "go by the assignment")


def test_what_another_one_commits_is_not_the_place_that_a_member_was_set_to() -> None:
    driven = Driven()
    for name in "ab":
        driven.happen(Join(name, MemberConfig()), Assign(name, at(0)))
    driven.happen(Seek("a", {T0: 5}), Commit("b", {T0: OffsetAndMetadata(9)}, 0))
    assert driven.member("a").positions == {T0: 5}
    assert driven.restored().member("a").positions == {T0: 5}


# Topics.


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
    driven.happen(Join("a", MemberConfig()), Subscribe("a", frozenset({"t", "u"})), Poll("a"))
    driven.happen(
        Commit("a", {T0: OffsetAndMetadata(7), u0: OffsetAndMetadata(8)}, 0), Seek("a", {T1: 5, u0: 6})
    )
    known = driven.member("a").epoch
    records = driven.happen(TopicsChanged({"u": TopicState("id-u", 1), **then}))
    assert (OffsetKey("g", "t", 0), None) in records
    assert driven.owned("a") == {u0}, "there is nothing to give up in order"
    assert driven.member("a").epoch > known
    assert driven.member("a").positions == {u0: 6}
    assert driven.group.offsets.keys() == {u0}
    driven.stable()
    assert driven.owned("a") == {u0} | (at(0, 1) if then else at())


def test_what_was_committed_of_a_topic_made_again_meanwhile_does_not_count() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Commit("a", {T0: OffsetAndMetadata(7)}, 0))
    other = driven.restored({"t": TopicState("id-new", 2)})
    assert other.group.offsets == {}
    assert restore(other.records, 0)["g"].offsets == {}


def test_what_was_had_of_a_topic_made_again_while_nobody_looked_is_void() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Join("b", MemberConfig()), Assign("b", at(0, 1)))
    driven.happen(Seek("a", {T0: 7}), Seek("b", {T0: 8}))
    other = driven.restored({"t": TopicState("id-new", 1)})
    assert other.owned("a") == at()
    assert other.owned("b") == at(0, 1), "what it chose by hand it keeps"
    assert other.member("a").positions == other.member("b").positions == {}
    assert other.stable().owned("a") == at(0)


# Restarts.


def test_a_group_comes_back_as_it_was() -> None:
    driven = Driven({"t": TopicState("id-t", 5)}).joined("a", "b", session_timeout_ms=70).stable()
    driven.happen(Join("c", MemberConfig()), Assign("c", at(1)), Seek("c", {T1: 4}))
    driven.happen(
        Join("d", MemberConfig()),
        Subscribe("d", pattern="t.*"),
        Reset({T0: OffsetAndMetadata(1)}, 2, force=True),
    )
    driven.now_ms = 60
    found = restore(driven.records, driven.now_ms)["g"]
    assert (found.generation, found.offsets) == (driven.group.generation, driven.group.offsets)
    assert found.members.keys() == {"a", "b", "c", "d"}
    for name, member in found.members.items():
        was = driven.member(name)
        assert (member.config, member.topics, member.pattern) == (was.config, was.topics, was.pattern)
        assert (member.assigned, member.owned, member.epoch) == (was.assigned, was.owned, was.epoch)
        assert member.positions == was.positions
        assert (member.seen_ms, member.polled_ms) == (60, 60), "as if it were heard of now"


def test_after_a_restart_who_had_everything_it_should_is_told_nothing() -> None:
    driven = Driven().joined("a", "b").stable()
    other = driven.restored()
    assert other.records == driven.records
    assert other.group.is_stable
    assert other.group.generation == driven.group.generation


def test_after_a_restart_a_move_goes_on_where_it_was() -> None:
    driven = Driven().joined("a").stable().joined("b")
    told = driven.member("a").epoch
    other = driven.restored()
    assert other.member("a").epoch > told, "its target is computed again"
    other.happen(Poll("a", told))
    assert other.owned("a") == at(0, 1)
    other.stable()
    assert len(other.owned("b")) == 1


def test_after_a_restart_in_the_middle_of_a_move_everybody_is_told_anew() -> None:
    driven = Driven({"t": TopicState("id-t", 6)}).joined("a", "b").stable().joined("c")
    driven.happen(Poll("a"))
    told = driven.member("a").epoch
    other = driven.restored({"t": TopicState("id-t", 6)})
    assert other.member("a").epoch > told, "nobody knows what it was told before"


def test_groups_are_restored_each_for_itself() -> None:
    mine, theirs = Driven().joined("a"), Group("h", topics=TWO)
    theirs, records = step(theirs, Reset({T0: OffsetAndMetadata(1)}, 0), 0)
    found = restore([*records, *mine.records], 0)
    assert found.keys() == {"g", "h"}
    assert found["h"].offsets == theirs.offsets
    assert found["h"].members == {}


def test_the_last_sign_of_life_of_a_group_is_its_newest_commit_also_when_it_is_read_again() -> None:
    driven = Driven()
    for at_ms, place in ((5, T0), (9, T1), (7, T0)):
        driven.happen(Reset({place: OffsetAndMetadata(1)}, at_ms))
    assert driven.group.touched_ms == 9
    assert restore(driven.records, 0)["g"].touched_ms == 9
    driven.happen(Tick(20, forget_before_ms=9))
    driven.happen(Tick(30, forget_before_ms=9))
    assert driven.group.touched_ms == 20
    assert restore(driven.records, 0)["g"].touched_ms == 20
