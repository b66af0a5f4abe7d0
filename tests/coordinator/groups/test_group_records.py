"""A group restored from its records, by another coordinator or after a restart."""

from coordinator.groups.events import (
    Assign,
    Commit,
    Join,
    OffsetAndMetadata,
    Poll,
    Reset,
    Seek,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import (
    MemberConfig,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_group import T0, T1, TWO, Driven, at


def test_what_was_committed_of_a_recreated_topic_meanwhile_does_not_count() -> None:
    driven = Driven().joined("a", auto_offset_reset="earliest").stable()
    driven.happen(Commit("a", {T0: OffsetAndMetadata(7)}, 0))
    other = driven.restored({"t": TopicState("id-new", 2)})
    assert other.group.offsets == {}
    assert restore(other.records, 0)["g"].offsets == {}


def test_what_was_had_of_a_recreated_topic_while_nobody_looked_is_void() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Join("b", MemberConfig()), Assign("b", at(0, 1)))
    driven.happen(Seek("a", {T0: 7}), Seek("b", {T0: 8}))
    other = driven.restored({"t": TopicState("id-new", 1)})
    assert other.owned("a") == at()
    assert other.owned("b") == at(0, 1), "what it chose by hand it keeps"
    assert other.member("a").positions == other.member("b").positions == {}
    assert other.stable().owned("a") == at(0)


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


def test_a_commit_to_a_deleted_topic_is_no_sign_of_life() -> None:
    driven = Driven({**TWO, "other": TopicState("id-o", 1)})
    driven.happen(Reset({T0: OffsetAndMetadata(1)}, 5))
    driven.happen(Reset({TopicPartition("other", 0): OffsetAndMetadata(1)}, 9))
    driven.happen(TopicsChanged(TWO))
    assert driven.group.touched_ms == 5
    assert restore(driven.records, 0)["g"].touched_ms == 5
