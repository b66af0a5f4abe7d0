"""Offsets that Kafka's clients commit: by members of a classic group, or to a group without members."""

import pytest

from coordinator.groups.classic.events import CommitOffsets, DeleteOffsets, EndPending, PendOffsets
from coordinator.groups.events import (
    Join,
    OffsetAndMetadata,
    Poll,
    Reset,
    Subscribe,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import MemberConfig, OffsetValue
from log_tables.errors import (
    GroupNotEmpty,
    GroupSubscribedToTopic,
    RebalanceInProgress,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_classic import SESSION_MS, DrivenClassic
from tests.kit.driven_group import T0, TWO, T

SIMPLE = CommitOffsets(offsets={T0: OffsetAndMetadata(5, "note")}, at_ms=1)


def test_a_member_of_the_current_generation_commits() -> None:
    group = DrivenClassic().stable("a")
    group.commit("a", offset=7)
    found = group.group.offsets[T0]
    assert (found.offset, found.member) == (7, "a")
    assert group.restored().group.offsets[T0] == found


def test_nobody_else_commits() -> None:
    group = DrivenClassic().stable("a")
    group.refuse(group.commit_request("a", group.generation - 1), StaleGeneration)
    group.refuse(group.commit_request("b"), UnknownMember)
    group.refuse(SIMPLE, UnknownMember)
    group.refuse(group.commit_request("a", -1), StaleGeneration)


def test_a_member_commits_before_it_joins_again_and_not_before_it_has_its_assignment() -> None:
    group = DrivenClassic().stable("a")
    group.join_new("b")
    group.commit("a", offset=3)
    group.join("a")
    group.refuse(group.commit_request("a"), RebalanceInProgress)


def test_a_commit_is_a_sign_of_life() -> None:
    group = DrivenClassic().stable("a")
    group.pass_ms(SESSION_MS - 1)
    group.commit("a")
    group.pass_ms(SESSION_MS - 1)
    assert group.members == ["a"]


def test_a_group_without_members_takes_the_offsets_of_anybody() -> None:
    group = DrivenClassic()
    group.happen(SIMPLE)
    assert (group.group.offsets[T0].offset, group.group.offsets[T0].metadata) == (5, "note")
    group.stable("a")
    group.leave("a")
    group.happen(CommitOffsets(offsets={T0: OffsetAndMetadata(6)}, at_ms=2))
    assert group.group.offsets[T0].offset == 6


def test_a_group_whose_member_ids_nobody_has_joined_with_yet_takes_the_offsets_of_anybody() -> None:
    group = DrivenClassic()
    group.join(new="a", requires_known_member_id=True)
    group.happen(SIMPLE)
    assert group.group.offsets[T0].offset == 5


def test_a_generation_of_a_group_that_does_not_exist_is_stale() -> None:
    group = DrivenClassic()
    group.refuse(group.commit_request("a", 3), StaleGeneration)


def test_an_unknown_topic_is_refused() -> None:
    group = DrivenClassic()
    offsets = {TopicPartition("x", 0): OffsetAndMetadata(1)}
    group.refuse(CommitOffsets(offsets=offsets, at_ms=1), UnknownTopic)


def test_offsets_pass_from_one_kind_of_group_to_the_other() -> None:
    group = DrivenClassic().stable("a")
    group.commit("a", offset=9)
    with pytest.raises(GroupNotEmpty):
        step(group.group, Reset({T0: OffsetAndMetadata(1)}, 1), 0)
    group.leave("a")
    for event in (Join("i", MemberConfig()), Subscribe("i", T), Poll("i")):
        group.group, _ = step(group.group, event, 0)
    assert group.group.committed(T0) is not None
    group.refuse(SIMPLE, UnknownMember)
    group.refuse(group.commit_request("i", 1), UnknownMember)


def test_offsets_of_a_subscribed_topic_are_not_deleted() -> None:
    group = DrivenClassic().stable("a")
    group.commit("a")
    group.refuse(DeleteOffsets(frozenset({T0})), GroupSubscribedToTopic)
    group.leave("a")
    group.happen(DeleteOffsets(frozenset({T0, TopicPartition("t", 1)})))
    assert group.group.offsets == {}
    assert group.restored().group.offsets == {}


def test_offsets_of_a_group_that_does_not_say_what_it_reads_are_not_deleted() -> None:
    group = DrivenClassic()
    group.refuse(DeleteOffsets(frozenset({T0})), UnknownGroup)
    group.stable("a", protocol_type="connect")
    group.refuse(DeleteOffsets(frozenset({T0})), GroupNotEmpty)
    group = DrivenClassic().stable("a", protocols=(("range", b"garbage"),))
    group.refuse(DeleteOffsets(frozenset({T0})), GroupNotEmpty)


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_topic_that_comes_or_goes_is_nothing_to_a_classic_group(protocol: str) -> None:
    group = DrivenClassic()
    group.join("", new="a", protocols=((protocol, b""),))
    for _ in range(2):
        before = group.group
        for topics in ({**TWO, "more": TopicState("id-more", 3)}, TWO):
            found, records = step(before, TopicsChanged(topics), group.now_ms)
            assert records == []
            assert (found.classic, found.offsets) == (before.classic, before.offsets)
        group.join("a", protocols=((protocol, b""),))


def test_a_negative_offset_in_a_transaction_is_none() -> None:
    group = DrivenClassic()
    group.happen(SIMPLE)
    topic_id = group.group.topics[T0.topic].topic_id
    for number, at, left in ((1, T0._replace(partition=1), {T0}), (2, T0, set())):
        waiting = ((*at, OffsetValue(-1, topic_id, "", 2)),)
        group.happen(PendOffsets("x", 0, number, CommitOffsets(offsets={}, at_ms=2), waiting))
        assert group.group.unstable_partitions == {at}
        group.happen(EndPending("x", number, True, 3))
        assert group.group.offsets.keys() == left
        assert group.restored().group.offsets.keys() == left
