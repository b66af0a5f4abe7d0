"""The offsets of a group: committed, reset, and the positions that members were set to."""

from msgspec.structs import replace

from coordinator.groups.events import (
    Assign,
    Commit,
    Delete,
    Join,
    Leave,
    LogEnd,
    OffsetAndMetadata,
    Reset,
    Seek,
    Start,
    Subscribe,
    TopicsChanged,
    TopicState,
    Unsubscribe,
)
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import (
    MemberConfig,
    MemberValue,
    OffsetKey,
    OffsetValue,
)
from log_tables.errors import (
    GroupNotEmpty,
    NotAssigned,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_group import T0, T1, TWO, Driven, T, at


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


def test_a_member_of_an_earlier_version_begins_at_the_log_ends_of_its_next_poll() -> None:
    driven = Driven().joined("a", auto_offset_reset="latest").stable()
    members = [(key, value) for key, value in driven.records if isinstance(value, MemberValue)]
    driven.records += [(key, replace(value, starting=None)) for key, value in members]
    other = driven.restored({**TWO, "t": TopicState("id-t", 3)})
    assert other.group.offsets == {}, "nobody knows which partition came later"
    assert other.group.starting(other.member("a")) == T
    ends = {place: LogEnd("id-t", 5) for place in at(0, 1, 2)}
    other.happen(Start("a", ends, other.group.topics, 9))
    assert {place: found.offset for place, found in other.group.offsets.items()} == dict.fromkeys(ends, 5)
    assert other.group.starting(other.member("a")) == frozenset()


def test_where_no_end_is_known_a_member_begins_at_the_beginning() -> None:
    """The partition is damaged, or its topic was made again after its end was read."""
    driven = Driven().joined("a", auto_offset_reset="latest")
    driven.happen(Start("a", {T0: None, T1: LogEnd("id-before", 5)}, TWO, 9))
    assert {place: found.offset for place, found in driven.group.offsets.items()} == {T0: 0, T1: 0}


def test_a_member_that_subscribes_again_while_its_ends_are_read_begins_everywhere_at_ends() -> None:
    topics = {**TWO, "u": TopicState("id-u", 1)}
    driven = Driven(topics).joined("a", auto_offset_reset="latest")
    ends = dict.fromkeys((T0, T1), LogEnd("id-t", 5))
    driven.happen(Subscribe("a", frozenset({"t", "u"})), Start("a", ends, TWO, 9))
    assert {place: found.offset for place, found in driven.group.offsets.items()} == {T0: 5, T1: 5}
    assert driven.group.starting(driven.member("a")) == {"u"}
    u0 = TopicPartition("u", 0)
    driven.happen(Start("a", {u0: LogEnd("id-u", 7)}, {"u": topics["u"]}, 9))
    assert driven.group.offsets[u0].offset == 7
    assert not driven.group.starting(driven.member("a"))


def test_ends_may_be_noted_some_at_a_time() -> None:
    driven = Driven().joined("a", auto_offset_reset="latest")
    driven.happen(Start("a", {T0: LogEnd("id-t", 5)}, {}, 9))
    assert driven.group.starting(driven.restored().member("a")) == T
    driven.happen(TopicsChanged({"t": TopicState("id-t", 3)}))
    assert {place: found.offset for place, found in driven.group.offsets.items()} == {T0: 5}
    driven.happen(Start("a", {T1: LogEnd("id-t", 6)}, TWO, 9))
    noted = {place.partition: found.offset for place, found in driven.group.offsets.items()}
    assert noted == {0: 5, 1: 6, 2: 0}, "the third came after the topic was looked at"


def test_a_partition_whose_end_was_not_read_waits_for_it() -> None:
    driven = Driven().joined("a", auto_offset_reset="latest")
    driven.happen(Start("a", {T0: LogEnd("id-t", 5)}, TWO, 9))
    assert driven.group.offsets.keys() == {T0}
    assert driven.group.starting(driven.member("a")) == T


def test_of_what_nobody_has_noted_its_own_partitions_begin_at_their_ends() -> None:
    driven = Driven()
    driven.happen(Join("a", MemberConfig()), Assign("a", at(0, 1)), Seek("a", {T1: 7}))
    driven.happen(Start("a", dict.fromkeys((T0, T1), LogEnd("id-t", 5)), TWO, 9))
    assert driven.member("a").positions == {T0: 5, T1: 7}
    driven.happen(TopicsChanged({"t": TopicState("id-new", 2)}))
    assert driven.member("a").positions == {T0: 0, T1: 0}
    assert driven.group.offsets == {}


def test_offsets_come_back_with_a_deleted_topic_under_whichever_name() -> None:
    """Also those that a re-created topic of its name has got meanwhile stay its own."""
    driven = Driven()
    driven.happen(Reset({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)}, 9))
    driven.happen(TopicsChanged({}, held=frozenset({"id-t"})))
    assert driven.group.offsets == {}
    again = driven.restored({})
    assert (again.group.offsets, again.group.kept) == ({}, {}), "its files are gone"
    new = {"t": TopicState("id-new", 2)}
    driven.happen(TopicsChanged(new, held=frozenset({"id-t"})))
    driven.happen(Reset({T0: OffsetAndMetadata(1)}, 9))
    found = restore(driven.records, 0)["g"]
    both = TopicsChanged({**new, "other": TopicState("id-t", 2)})
    for group in (step(found, both, 0)[0], step(driven.group, both, 0)[0]):
        assert {(*place, value.offset) for place, value in group.offsets.items()} == {
            ("t", 0, 1),
            ("other", 0, 5),
            ("other", 1, 6),
        }
        assert group.kept == {}


def test_a_deleted_group_comes_not_back_with_a_topic() -> None:
    driven = Driven()
    driven.happen(Reset({T0: OffsetAndMetadata(5)}, 9))
    driven.happen(TopicsChanged({}, held=frozenset({"id-t"})), Delete())
    assert not driven.group.kept
    assert dict(driven.records)[OffsetKey("g", "~id-t", 0)] is None
