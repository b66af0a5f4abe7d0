"""When the target of a group is computed, and what holds while it is due (KIP-1263)."""

from dataclasses import replace

from coordinator.groups.events import (
    LEAVES,
    Configure,
    Delete,
    Join,
    Leave,
    Subscribe,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.group import ASSIGNMENT_INTERVAL_MS
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from coordinator.groups.state.target import aim, is_wide
from log_tables.cluster.group_log import MemberConfig
from log_tables.limits import TARGET_AT_ONCE
from tests.kit.driven_consumers import DrivenConsumers
from tests.kit.driven_group import at

INTERVAL_MS = 100
FOUR = {"t": TopicState("id-t", 4)}
MANY = {"t": TopicState("id-t", TARGET_AT_ONCE)}


def driven(topics: dict[str, TopicState] = FOUR) -> DrivenConsumers:
    group = DrivenConsumers(topics)
    group.group = replace(group.group, default_interval_ms=INTERVAL_MS)
    return group


def test_members_that_come_soon_after_another_are_given_partitions_together() -> None:
    group = driven()
    assert group.join_client("a") == at(0, 1, 2, 3)
    for name in ("b", "c", "d"):
        assert group.join_client(name) == at()
        assert group.member(name).epoch == group.group.generation, "it is a member"
    assert group.group.due_ms == INTERVAL_MS
    assert group.group.target == {"a": at(0, 1, 2, 3), "b": at(), "c": at(), "d": at()}
    assert (group.group.consumer_state, group.group.is_stable) == ("Assigning", False)
    assert group.group.assignment_epoch < group.group.generation
    assert group.beat("a") is None
    group.now_ms = INTERVAL_MS
    computed = aim(group.group)
    group.happen(computed)
    assert group.group.consumer_state == "Reconciling"
    assert group.group.assignment_epoch == group.group.generation
    group.follow()
    assert [len(group.owned(name)) for name in "abcd"] == [1, 1, 1, 1]
    assert group.happen(computed) == [], "nothing is due"


def test_a_change_some_time_after_the_last_is_followed_at_once() -> None:
    group = driven()
    group.join_client("a")
    group.now_ms = INTERVAL_MS
    group.join_client("b")
    assert group.group.due_ms is None
    group.happen(Configure({ASSIGNMENT_INTERVAL_MS: "0"}))
    group.join_client("c")
    assert group.group.due_ms is None, "the group has a setting of its own"


def test_what_a_member_gives_up_is_not_its_own_while_a_target_is_due() -> None:
    group = driven({**FOUR, "u": TopicState("id-u", 1)})
    group.join_client("a", topics=frozenset({"t", "u"}))
    group.beat("a", topics=frozenset({"u"}))
    assert group.group.target["a"] == at(0, topic="u")
    group.happen(TopicsChanged({"t": TopicState("id-t", 2)}))
    assert group.group.target["a"] == at()
    group.beat("a", LEAVES)
    assert (group.group.target, group.group.due_ms) == ({}, None)


def test_another_coordinator_computes_the_target_that_was_due() -> None:
    group = driven()
    group.join_client("a")
    group.join_client("b")
    found = replace(restore(group.records, 0)["g"], default_interval_ms=INTERVAL_MS)
    found, _ = step(found, TopicsChanged(FOUR), 0)
    assert found.due_ms is None
    assert [len(found.target[name]) for name in "ab"] == [2, 2]


def test_the_target_of_a_large_group_is_never_computed_in_a_step() -> None:
    group = driven(MANY)
    assert group.join_client("a") == at()
    assert is_wide(group.group)
    assert group.group.due_ms == 0
    group.happen(aim(group.group))
    assert len(group.beat("a") or ()) == TARGET_AT_ONCE
    found, _ = step(restore(group.records, 0)["g"], TopicsChanged(MANY), 0)
    assert found.due_ms is not None
    assert found.target["a"] == group.owned("a"), "until it is computed members keep what they have"


def test_a_target_that_comes_late_holds_as_far_as_it_can() -> None:
    group = driven(MANY)
    group.join_client("a")
    group.happen(aim(group.group))
    group.beat("a")
    group.now_ms = INTERVAL_MS
    group.join_client("b")
    late = aim(group.group)
    group.join_client("c")
    group.beat("b", LEAVES)
    group.happen(late)
    assert group.group.target.keys() == {"a", "c"}
    assert group.group.target["a"] == late.target["a"]
    assert group.group.due_ms == 2 * INTERVAL_MS
    group.happen(aim(group.group))
    assert [len(group.group.target[name]) for name in "ac"] == [TARGET_AT_ONCE // 2] * 2


def test_a_topic_that_is_none_of_the_groups_changes_nothing() -> None:
    group = driven()
    group.join_client("a")
    target = group.group.target
    assert group.happen(TopicsChanged({**FOUR, "u": TopicState("id-u", 9)})) == []
    assert group.group.target is target
    group.happen(TopicsChanged({"t": TopicState("id-t", 5)}))
    assert group.group.due_ms == INTERVAL_MS


def test_an_instance_of_http_never_waits_for_a_target() -> None:
    group = driven()
    group.join_client("a")
    group.happen(Join("i", MemberConfig()))
    group.happen(Subscribe("i", frozenset({"t"})))
    assert group.group.due_ms is None
    assert len(group.group.target["i"]) == 2
    group.happen(Leave("i"))
    assert (group.group.target, group.group.due_ms) == ({"a": at(0, 1, 2, 3)}, None)


def test_a_target_of_a_group_that_is_deleted_meanwhile_is_not_that_of_the_next_one() -> None:
    group = driven(MANY)
    group.join_client("a")
    late = aim(group.group)
    group.now_ms = 1
    group.happen(Delete(force=True))
    group.happen(TopicsChanged(MANY))
    group.join_client("b")
    assert group.group.changes == late.changes
    group.happen(late)
    assert group.group.due_ms is not None, "its own is still to be computed"
    group.happen(aim(group.group))
    assert len(group.group.target["b"]) == TARGET_AT_ONCE
