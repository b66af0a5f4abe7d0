"""Members by KIP-848: they join, let go before others take over, are fenced, and leave."""

from typing import Any

import pytest

from coordinator.groups.classic.events import CommitOffsets
from coordinator.groups.events import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    OffsetAndMetadata,
    Poll,
    Tick,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.classic_step import classic_step
from coordinator.groups.state.group import GroupType
from log_tables.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidArgument,
    InvalidSubscription,
    InvalidTopicName,
    LakelogError,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
)
from tests.kit.driven_classic import LIMITS
from tests.kit.driven_consumers import REBALANCE_MS, SESSION_MS, DrivenConsumers
from tests.kit.driven_group import T0, at


def test_the_first_member_is_given_everything_and_an_epoch() -> None:
    group = DrivenConsumers()
    assert group.join_client("a") == at(0, 1)
    assert group.member("a").epoch == 1
    assert (group.group.type, group.group.consumer_state) == (GroupType.CONSUMER, "Stable")
    assert group.beat("a") is None, "it knows"


def test_a_partition_is_given_to_the_next_owner_when_the_last_one_has_let_go() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    assert group.join_client("b") == at()
    assert group.group.consumer_state == "Reconciling"
    epoch = group.member("a").epoch
    told = group.beat("a")
    assert told is not None
    assert len(told) == 1
    assert group.member("a").epoch == epoch, "it may commit until it has let go"
    assert group.beat("b") is None
    group.beat("a", owned=at(0, 1))
    assert group.beat("b") is None, "it still holds both"
    group.beat("a", owned=told)
    assert group.member("a").epoch > epoch
    assert group.beat("b") == at(0, 1) - told
    assert group.group.is_stable


def test_a_member_that_keeps_its_partitions_keeps_its_epoch() -> None:
    group = DrivenConsumers({"t": TopicState("id-t", 4)})
    group.join_client("a", assignor="range")
    group.join_client("b", assignor="range")
    group.follow()
    epoch = group.member("a").epoch
    group.beat("b", LEAVES)
    group.join_client("c", assignor="range")
    group.follow()
    assert (group.member("a").epoch, group.told["a"]) == (epoch, at(0, 1))


def test_an_instance_and_a_client_share_one_group() -> None:
    group = DrivenConsumers()
    group.joined("i").happen(Poll("i"))
    assert group.join_client("a") == at()
    group.happen(Poll("i"))
    given = group.beat("a")
    assert given is not None
    assert group.owned("i") | given == at(0, 1)
    group.refuse(Poll("a"), UnknownMember, "no consumer instance")
    group.refuse_beat("i", InvalidArgument, 0)


def test_a_static_member_does_not_come_back_by_the_name_of_an_instance() -> None:
    group = DrivenConsumers()
    group.join_client("a", instance="s")
    group.joined("i")
    group.beat("a", LEAVES_FOR_A_WHILE, instance="s")
    group.refuse_beat("i", InvalidArgument, 0, instance="s")
    assert group.join_client("b", instance="s") is not None


def test_an_epoch_that_was_not_given_last_is_fenced() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    group.join_client("b")
    told = group.beat("a")
    group.beat("a", owned=told)
    before, now = group.member("a").previous_epoch, group.member("a").epoch
    group.refuse_beat("a", FencedMemberEpoch, now + 1)
    group.refuse_beat("a", FencedMemberEpoch, before)
    group.refuse_beat("a", FencedMemberEpoch, before, owned=at(0, 1))
    group.refuse_beat("x", UnknownMember, 1)
    assert group.beat("a", before, owned=told) == told, "the answer with its newest epoch was lost"


def test_a_member_that_lost_an_answer_hears_its_assignment_again() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    full: dict[str, Any] = {"topics": frozenset({"t"}), "rebalance_timeout_ms": REBALANCE_MS}
    assert group.beat("a", owned=at(), **full) == at(0, 1)
    assert group.join_client("a") == at(0, 1)
    assert group.member("a").epoch == 2, "one that joins again gets another epoch"


def test_a_silent_member_is_fenced_and_its_partitions_are_free() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    group.join_client("b")
    group.now_ms += SESSION_MS - 1
    group.beat("b")
    group.happen(Tick(0))
    assert group.beat("b") is None
    group.now_ms += 1
    group.happen(Tick(0))
    assert group.beat("b") == at(0, 1)
    group.refuse_beat("a", UnknownMember, 1)


def test_a_member_that_does_not_let_go_in_time_is_fenced() -> None:
    group = DrivenConsumers()
    group.join_client("a", rebalance_timeout_ms=1_000)
    group.join_client("b")
    group.beat("a")
    group.now_ms += 999
    group.beat("a")
    group.happen(Tick(0))
    assert "a" in group.group.members
    group.now_ms += 1
    group.happen(Tick(0))
    assert "a" not in group.group.members


def test_another_coordinator_knows_who_is_to_let_go_of_what() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    group.join_client("b")
    told = group.beat("a")
    again = group.again()
    assert again.member("a").revoking == at(0, 1) - (told or at())
    assert again.beat("a") == told, "the answer may have been lost"
    assert again.beat("b") == at(), "nothing is free"
    again.beat("a", owned=told)
    assert again.beat("b") == at(0, 1) - (told or at())
    assert again.member("b").epoch > again.member("a").epoch > group.member("b").epoch


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    group = DrivenConsumers()
    group.join_client("a", instance="i")
    group.refuse_beat("b", UnreleasedInstanceId, 0, instance="i")
    epoch = group.member("a").epoch
    group.beat("a", LEAVES_FOR_A_WHILE, instance="i")
    group.refuse_beat("a", FencedMemberEpoch, epoch, instance="i")
    group = group.again()
    assert group.join_client("b", instance="i") == at(0, 1)
    assert [*group.group.members] == ["b"]
    assert group.member("b").epoch > epoch
    group.refuse_beat("a", FencedInstanceId, epoch, instance="i")
    group.beat("b", LEAVES_FOR_A_WHILE, instance="i")
    group.now_ms += SESSION_MS
    group.happen(Tick(0))
    assert not group.group.members


def test_only_static_members_leave_for_a_while() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    group.refuse_beat("a", InvalidArgument, LEAVES_FOR_A_WHILE)


def test_topics_are_named_or_matched() -> None:
    group = DrivenConsumers({"t": TopicState("id-t", 1), "u": TopicState("id-u", 1)})
    assert group.join_client("a", topics=frozenset(), pattern="[a-t]") == at(0)
    both = group.beat("a", topics=frozenset({"u"}))
    assert both == at(0) | at(0, topic="u")
    assert group.beat("a", pattern="") is not None
    assert group.told["a"] == at(0, topic="u"), "an empty expression is none"
    group.refuse_beat("a", InvalidSubscription, pattern="(")
    group.refuse_beat("a", InvalidTopicName, topics=frozenset({"__consumer_offsets"}))


@pytest.mark.parametrize("topics", [{}, {"t": TopicState("other", 2)}])
def test_a_deleted_topic_is_taken_away_and_a_new_one_given(topics: dict[str, TopicState]) -> None:
    group = DrivenConsumers()
    group.join_client("a")
    epoch = group.member("a").epoch
    group.happen(TopicsChanged(topics))
    assert group.beat("a") == (at(0, 1) if topics else at())
    assert group.again(topics).member("a").owned == (at(0, 1) if topics else at())
    assert group.member("a").epoch == (epoch + 1 if topics else epoch)


def test_members_have_the_assignor_that_most_ask_for() -> None:
    group = DrivenConsumers()
    for name, assignor in (("a", "range"), ("b", "sticky"), ("c", "sticky"), ("d", None)):
        group.join_client(name, assignor=assignor)
    assert group.group.strategy == "sticky"
    group.beat("b", assignor="range")
    assert group.again().group.strategy == "range"


def commit(group: DrivenConsumers, name: str, epoch: int, instance: str | None = None) -> None:
    offsets = {T0: OffsetAndMetadata(1)}
    event = CommitOffsets(offsets=offsets, at_ms=1, member_id=name, generation=epoch, instance_id=instance)
    group.group, records, _ = classic_step(group.group, event, group.now_ms, LIMITS)
    group.records += records


def refuse_commit(group: DrivenConsumers, error: type[LakelogError], name: str, epoch: int) -> None:
    with pytest.raises(error):
        commit(group, name, epoch)


def test_only_a_member_commits_with_its_epoch() -> None:
    group = DrivenConsumers()
    group.join_client("a", instance="i")
    epoch = group.member("a").epoch
    commit(group, "a", epoch)
    commit(group, "a", epoch, "i")
    refuse_commit(group, StaleMemberEpoch, "a", epoch - 1)
    refuse_commit(group, StaleMemberEpoch, "a", epoch + 1)
    refuse_commit(group, UnknownMember, "b", epoch)
    refuse_commit(group, UnknownMember, "", -1)
    group.beat("a", LEAVES_FOR_A_WHILE, instance="i")
    refuse_commit(group, StaleMemberEpoch, "a", epoch)
    group.beat("a", LEAVES, instance="i")
    commit(group, "", -1)
    assert group.group.offsets.keys() == {T0}


def test_a_member_that_subscribes_to_nothing_any_longer_is_a_member() -> None:
    group = DrivenConsumers()
    group.join_client("a")
    assert group.beat("a", topics=frozenset()) == at()
    assert group.owned("a") == at(0, 1), "until it has let go"
    refuse_commit(group, UnknownMember, "", -1)
