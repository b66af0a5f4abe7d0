"""The offsets of a group before what an operator has done: they come again by an undo."""

import pytest

from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.classic.events import CommitOffsets, DeleteOffsets
from coordinator.groups.events import (
    Commit,
    Delete,
    Leave,
    OffsetAndMetadata,
    Reset,
    Tick,
    TopicsChanged,
    TopicState,
    Undo,
)
from coordinator.groups.state.acts import is_act
from coordinator.groups.state.classic_step import classic_step
from coordinator.groups.state.undo import undo_plan
from log_tables.cluster.group_log import SPARK_METADATA, OffsetKey, UndoKey, mirror_member
from log_tables.errors import Conflict, GroupNotEmpty, InvalidArgument, NotFound
from log_tables.limits import UNDO_ACTS_MAX, UNDO_OFFSETS_MAX
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_group import T0, T1, TWO, Driven

BOTH = frozenset({T0, T1})


def committed(*offsets: int) -> Driven:
    """A group whose member has committed these offsets and left."""
    driven = Driven().joined("a").stable()
    places = {
        TopicPartition("t", number): OffsetAndMetadata(offset, "n") for number, offset in enumerate(offsets)
    }
    driven.happen(Commit("a", places, 10), Leave("a"))
    return driven


def offsets(driven: Driven) -> dict[TopicPartition, int]:
    return {at: value.offset for at, value in driven.group.offsets.items()}


def reset(to: int, at_ms: int = 20) -> Reset:
    return Reset({T0: OffsetAndMetadata(to)}, at_ms, every=frozenset({T0}))


def undo(acts: int = 1, at_ms: int = 30, since_ms: int = 0) -> Undo:
    return Undo(acts, at_ms, since_ms)


def test_a_deleted_group_has_its_offsets_again_also_by_another_coordinator() -> None:
    driven = committed(7, 8)
    records = driven.happen(Delete(at_ms=20))
    assert UndoKey("g") in dict(records), "the append that deletes them says what they were"
    assert not driven.group.exists
    driven = driven.restored()
    assert not driven.group.exists
    driven.happen(undo())
    assert offsets(driven) == {T0: 7, T1: 8}
    assert driven.group.offsets[T0].metadata == "n"
    assert offsets(driven.restored()) == {T0: 7, T1: 8}


def test_an_undo_can_be_undone_and_what_a_reset_has_not_touched_stays() -> None:
    driven = committed(7, 8)
    driven.happen(reset(0))
    driven.joined("b").stable().happen(Commit("b", {T1: OffsetAndMetadata(9)}, 25), Leave("b"))
    driven.happen(undo())
    assert offsets(driven) == {T0: 7, T1: 9}
    driven.happen(undo())
    assert offsets(driven) == {T0: 0, T1: 9}


def test_an_undo_of_several_acts_goes_back_to_before_the_oldest() -> None:
    driven = committed(7, 8)
    driven.happen(reset(1), reset(2), Delete(at_ms=22))
    driven.happen(undo(3))
    assert offsets(driven) == {T0: 7, T1: 8}
    assert [act.done for act in driven.group.acts] == ["undo", "delete", "reset", "reset"]
    driven.refuse(undo(5), NotFound, "only 4 acts")
    driven.refuse(undo(0), InvalidArgument, "name 1")


def test_a_first_reset_is_undone_to_no_offset() -> None:
    driven = Driven().joined("a").stable()
    driven.happen(Leave("a"), reset(9))
    records = driven.happen(undo())
    assert (OffsetKey("g", "t", 0), None) in records
    assert not driven.restored().group.offsets


def test_an_undo_waits_until_nobody_is_there() -> None:
    driven = committed(7)
    driven.happen(reset(0))
    driven.joined("b").refuse(undo(), GroupNotEmpty, "stop them first")


def test_topics_that_are_gone_or_others_are_left_out_and_named() -> None:
    driven = committed(7, 8)
    driven.happen(Delete(at_ms=20), TopicsChanged({"t": TopicState("other", 2)}))
    plan = undo_plan(driven.group, 1, 0)
    assert not plan.changed
    assert plan.left == {T0: "the topic was re-created", T1: "the topic was re-created"}
    driven.happen(TopicsChanged({}))
    assert undo_plan(driven.group, 1, 0).left[T0] == "the topic is deleted"
    assert driven.happen(undo()) == []
    driven.happen(TopicsChanged(TWO))  # it was undeleted: the same topic
    driven.happen(undo())
    assert offsets(driven) == {T0: 7, T1: 8}


def test_acts_are_forgotten_after_a_while() -> None:
    driven = committed(7)
    driven.happen(reset(1, at_ms=20), reset(2, at_ms=40))
    driven.refuse(undo(2, since_ms=30), NotFound, "only 1 act")
    driven.happen(Tick(100, acts_before_ms=30))
    assert [act.at_ms for act in driven.restored().group.acts] == [40]
    driven.happen(Tick(100, acts_before_ms=50))
    assert (UndoKey("g"), None) in driven.records
    driven.refuse(undo(), NotFound, "has nothing")


def test_acts_are_few_and_an_act_on_too_many_offsets_ends_what_was_before() -> None:
    driven = committed(7)
    for number in range(UNDO_ACTS_MAX + 3):
        driven.happen(reset(number))
    assert len(driven.group.acts) == UNDO_ACTS_MAX
    every = frozenset(TopicPartition("t", number) for number in range(UNDO_OFFSETS_MAX + 1))
    driven.happen(Reset({T0: OffsetAndMetadata(0)}, 20, every=every))
    assert driven.group.acts == ()


def test_the_passing_of_time_is_no_act() -> None:
    driven = committed(7)
    driven.happen(Tick(20, 1), Tick(30, 1_000))
    assert not driven.group.exists
    assert driven.group.acts == ()


def test_a_mirror_goes_on_with_the_offsets_that_it_had_set() -> None:
    driven = Driven()
    driven.happen(Reset({T0: OffsetAndMetadata(5)}, 10, mirror="m"))
    driven.happen(reset(0), undo())
    assert driven.group.offsets[T0].member == mirror_member("m")


def test_offsets_that_a_kafka_client_deletes_come_again() -> None:
    driven = committed(7, 8)
    event = DeleteOffsets(frozenset({T0}), at_ms=20, every=frozenset({T0}))
    after, records, _ = classic_step(driven.group, event, 0, ClassicLimits())
    driven.group, driven.records = after, driven.records + records
    assert offsets(driven) == {T1: 8}
    driven = driven.restored()
    driven.happen(undo())
    assert offsets(driven) == {T0: 7, T1: 8}


def test_offsets_that_an_admin_commits_can_be_undone() -> None:
    driven = committed(7, 8)
    event = CommitOffsets(offsets={T0: OffsetAndMetadata(1)}, at_ms=20, every=frozenset({T0}))
    after, records, _ = classic_step(driven.group, event, 0, ClassicLimits())
    driven.group, driven.records = after, driven.records + records
    driven = driven.restored()
    driven.happen(undo())
    assert offsets(driven) == {T0: 7, T1: 8}


@pytest.mark.parametrize(("to", "counts"), [(9, False), (3, True)])
def test_programs_that_keep_their_own_positions_are_no_operators_while_they_go_on(
    to: int, counts: bool
) -> None:
    driven = Driven()
    driven.happen(Reset({T0: OffsetAndMetadata(5)}, 10))
    assert is_act(driven.group, {T0: OffsetAndMetadata(to)}) is counts
    assert not is_act(driven.group, {T0: OffsetAndMetadata(to, SPARK_METADATA)})
    assert is_act(committed(5).group, {T0: OffsetAndMetadata(to)}), "its members commit what they have done"


def test_a_repeat_does_not_undo_the_undo() -> None:
    driven = committed(7)
    driven.happen(reset(1), reset(2))
    newest = driven.group.acts[0].at_ms
    assert newest == 21, "no two acts have one time"
    named = Undo(1, 30, 0, newest_ms=newest)
    driven.happen(named)
    driven.refuse(named, Conflict, "another one by now")
    assert offsets(driven) == {T0: 1}
