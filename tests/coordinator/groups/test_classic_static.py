"""Static members of a classic group (KIP-345): clients that are started again, and their twins."""

from typing import Any

from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.events import GroupHeartbeat, LeftMember
from log_tables.errors import FencedInstanceId, UnknownMember
from tests.kit.driven_classic import REBALANCE_MS, SESSION_MS, DrivenClassic

PREPARING, STABLE = ClassicState.PREPARING_REBALANCE, ClassicState.STABLE


def static(*names: str, **asked: Any) -> DrivenClassic:
    """A stable group; the group instance id of member a-1 is a."""
    group = DrivenClassic()
    for name in names:
        group.join(new=name, instance_id=name[0], **asked)
    for name in names:
        if group.state is PREPARING and group.member(name).joining is None:
            group.join(name, instance_id=name[0], **asked)
    for name in names:
        group.sync(name, instance_id=name[0])
    assert group.state is STABLE
    return group


def test_a_static_member_needs_no_second_request_to_join() -> None:
    group = DrivenClassic()
    answer = group.joined(group.join(new="a-1", instance_id="a"))
    assert answer.members[0].instance_id == "a"


def test_a_follower_that_is_started_again_gets_its_assignment_without_a_rebalance() -> None:
    group = static("a-1", "b-1")
    generation = group.generation
    answer = group.joined(group.join(new="b-2", instance_id="b"))
    assert (answer.member_id, answer.generation, answer.leader) == ("b-2", generation, "a-1")
    assert group.state is STABLE
    assert group.synced(group.sync("b-2", instance_id="b")) == b"b-1"
    group.refuse(GroupHeartbeat("b-1", generation, "b"), FencedInstanceId)
    group.refuse(group.request("b-1", instance_id="b"), FencedInstanceId)
    group.refuse(group.commit_request("b-1"), UnknownMember)
    group.commit("b-2")


def test_a_leader_that_is_started_again_is_not_told_that_it_leads_unless_it_may_skip_the_assignment() -> None:
    group = static("a-1", "b-1")
    old = group.joined(group.join(new="a-2", instance_id="a"))
    assert (old.leader, old.members, old.skip_assignment) == ("a-1", (), False)
    new = group.joined(group.join(new="a-3", instance_id="a", skips_assignment=True))
    assert (new.leader, new.skip_assignment, len(new.members)) == ("a-3", True, 2)
    assert group.synced(group.sync("a-3", instance_id="a", assignments={})) == b"a-1"


def test_another_protocol_of_a_member_that_is_started_again_begins_a_rebalance() -> None:
    group = static("a-1", "b-1", protocols=(("range", b""), ("sticky", b"")))
    request = group.join(new="b-2", instance_id="b", protocols=(("sticky", b""),))
    assert group.held(request)
    assert group.state is PREPARING


def test_a_twin_fences_the_one_whose_request_is_held() -> None:
    group = static("a-1", "b-1")
    group.join(new="c-1", instance_id="c")
    waiting = group.join("a-1", instance_id="a")
    twin = group.join(new="a-2", instance_id="a")
    group.answered(waiting, FencedInstanceId)
    assert group.held(twin)
    group.join("b-1", instance_id="b")
    assert group.leader == "a-2"
    waiting = group.sync("b-1", instance_id="b")
    twin = group.join(new="b-2", instance_id="b")  # the leader knows of b-1, so all join again
    group.answered(waiting, FencedInstanceId)
    assert group.state is PREPARING
    assert group.held(twin)


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_times_out() -> None:
    group = static("a-1", "b-1", session_timeout_ms=60_000)
    request = group.join(new="c-1", instance_id="c")
    group.join("b-1", instance_id="b")
    group.pass_ms(REBALANCE_MS)
    assert group.members == ["a-1", "b-1", "c-1"]
    assert group.leader == "b-1"
    assert group.joined(request).leader == "b-1"


def test_a_rebalance_without_any_member_that_joins_goes_on() -> None:
    group = static("a-1", "b-1", session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    group.leave_as(LeftMember("", "b"))
    assert group.members == ["a-1"]
    for _ in range(11):
        group.pass_ms(5_000)
        assert group.state is PREPARING
    group.pass_ms(5_000)
    assert group.state is ClassicState.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    group = static("a-1", "b-1")
    assert group.leave_as(LeftMember("", "b"), LeftMember("b-1", "b")).errors[0] is None
    assert group.members == ["a-1"]
    (fenced,) = group.leave_as(LeftMember("stranger", "a")).errors
    assert isinstance(fenced, FencedInstanceId)


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    group = static("a-1")
    group.refuse(group.sync_request("a-1", instance_id="z"), UnknownMember)


def test_another_coordinator_knows_the_new_id_of_a_static_member() -> None:
    group = static("a-1", "b-1").restored()
    group.join(new="c-1", instance_id="c")
    group.join(new="a-2", instance_id="a")  # during a rebalance, of which nothing else is durable
    again = group.restored()
    assert (again.members, again.leader, again.state) == (["a-2", "b-1"], "a-2", STABLE)
    again.heartbeat("a-2", instance="a")
    again.refuse(again.request("a-1", instance_id="a"), FencedInstanceId)
    again.pass_ms(SESSION_MS - 1)
    assert again.state is STABLE


def test_an_id_that_was_given_to_a_dynamic_member_is_none_of_a_static_one() -> None:
    group = static("a-1", "b-1")
    group.join(new="c", requires_known_member_id=True)
    for instance_id, error in (("a", FencedInstanceId), ("x", UnknownMember)):
        group.refuse(group.request("c", instance_id=instance_id), error)
