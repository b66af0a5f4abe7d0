"""A classic group by the rules of Kafka's protocol: joining, electing, assigning, leaving, falling silent."""

from dataclasses import replace

from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.events import LeftMember
from log_tables.cluster.group_log import ClassicKey
from log_tables.errors import (
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from log_tables.limits import NEW_MEMBER_JOIN_MS
from tests.kit.driven_classic import LIMITS, REBALANCE_MS, SESSION_MS, DrivenClassic

EMPTY, PREPARING = ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE
COMPLETING, STABLE = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
SLOW = replace(LIMITS, initial_rebalance_delay_ms=3_000)


def both() -> tuple[tuple[str, bytes], ...]:
    return (("range", b"r"), ("sticky", b"s"))


def test_the_first_rebalance_waits_for_more_members_while_they_come() -> None:
    group = DrivenClassic(SLOW)
    first = group.join_new("a")
    group.pass_ms(2_000)
    second = group.join_new("b")
    group.pass_ms(1_000)  # its delay is over, but b has come: it gets another one
    assert group.held(first)
    assert group.held(second)
    group.pass_ms(3_000)
    assert group.joined(first).generation == group.joined(second).generation == 1
    assert len(group.joined(first).members) == 2
    assert group.joined(second).members == ()


def test_the_first_rebalance_never_waits_for_longer_than_the_rebalance_timeout() -> None:
    group = DrivenClassic(SLOW)
    requests = []
    for number in range(5):
        requests.append(group.join_new(f"m{number}", rebalance_timeout_ms=10_000))
        group.pass_ms(3_000)
    assert not any(map(group.held, requests[:4]))
    assert group.joined(requests[0]).generation == 1


def test_members_hear_their_assignments_when_the_leader_has_sent_them() -> None:
    group = DrivenClassic(SLOW)
    requests = [group.join_new(name) for name in "ab"]
    group.pass_ms(3_000)
    group.pass_ms(3_000)
    assert [group.joined(request).leader for request in requests] == ["a", "a"]
    follower = group.sync("b")
    assert group.held(follower)
    leader = group.sync("a", assignments={"a": b"one", "b": b"two", "stranger": b"three"})
    assert (group.synced(follower), group.synced(leader)) == (b"two", b"one")
    assert group.state is STABLE
    stored = group.stored()
    assert stored is not None
    assert {name: member.assignment for name, member in stored.members.items()} == {"a": b"one", "b": b"two"}


def test_a_member_that_the_leader_left_out_has_an_empty_assignment() -> None:
    group = DrivenClassic().stable("a")
    group.join_new("b")
    group.join("a")
    waiting = group.sync("b")
    group.sync("a", assignments={"a": b"all"})
    assert group.synced(waiting) == b""


def test_a_rebalance_in_order_writes_one_record() -> None:
    group = DrivenClassic().stable("a", "b")
    before = len(group.records)
    group.join_new("c")
    group.join("a")
    group.join("b")
    assert group.state is COMPLETING
    for name in "cab":
        group.sync(name)
        group.heartbeat(name)
    assert group.state is STABLE
    assert [key for key, _ in group.records[before:]] == [ClassicKey("g")]


def test_a_rebalance_waits_for_all_members_and_drops_those_that_are_late() -> None:
    group = DrivenClassic().stable("a", "b")
    generation = group.generation
    newcomer = group.join_new("c", session_timeout_ms=60_000)
    assert group.state is PREPARING
    again = group.join("a")
    for _ in range(3):
        group.pass_ms(REBALANCE_MS / 4)
        group.heartbeat("b")
    assert group.held(newcomer)
    assert group.held(again)
    group.pass_ms(REBALANCE_MS / 4)
    assert group.joined(newcomer).generation == generation + 1
    assert group.members == ["a", "c"]
    group.refuse(group.sync_request("b"), UnknownMember)


def test_a_lost_leader_is_followed_by_one_that_has_joined() -> None:
    group = DrivenClassic().stable("a", "b", "c")
    group.join_new("d")
    group.join("c")
    group.join("b")
    group.leave("a")
    assert group.leader == "b"
    assert group.state is COMPLETING


def test_a_leader_stays_while_it_joins_again() -> None:
    group = DrivenClassic().stable("a", "b")
    group.join("b", protocols=(("range", b"more"),))
    group.join("a")
    assert group.leader == "a"


def test_a_heartbeat_says_whether_the_member_has_to_join_again() -> None:
    group = DrivenClassic().stable("a")
    group.heartbeat("a")
    assert group.state is STABLE
    group.join_new("b")
    group.heartbeat("a")
    assert group.state is PREPARING  # by which the member hears of it
    group.refuse(group.sync_request("x"), UnknownMember)


def test_a_heartbeat_of_an_old_generation_is_refused() -> None:
    group = DrivenClassic().stable("a")
    for generation in (group.generation - 1, group.generation + 1):
        group.refuse(group.sync_request("a", generation), StaleGeneration)
        group.refuse(group.commit_request("a", generation), StaleGeneration)


def test_a_silent_member_is_removed_and_a_waiting_one_never() -> None:
    group = DrivenClassic().stable("a", "b")
    group.pass_ms(SESSION_MS - 1)
    group.heartbeat("a")
    assert group.members == ["a", "b"]
    group.pass_ms(1)
    assert group.members == ["a"]
    assert group.state is PREPARING
    request = group.join("a", session_timeout_ms=100)
    assert group.joined(request).generation == group.generation
    waiting = group.join_new("c", session_timeout_ms=100)
    group.heartbeat("a")
    group.pass_ms(99)
    group.heartbeat("a")
    group.pass_ms(99)
    assert group.held(waiting)


def test_a_new_member_whose_client_is_gone_is_given_up() -> None:
    group = DrivenClassic().stable("a", session_timeout_ms=60_000, rebalance_timeout_ms=1_000_000)
    waiting = group.join_new("b", rebalance_timeout_ms=1_000_000)
    for _ in range(6):
        group.heartbeat("a")
        group.pass_ms(NEW_MEMBER_JOIN_MS / 6)
    group.answered(waiting, UnknownMember)
    assert group.members == ["a"]


def test_a_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    group = DrivenClassic().stable("a")
    group.join_new("b")
    group.answered(group.sync("a", assignments={}), RebalanceInProgress)
    group.join("a")
    assert group.state is COMPLETING
    waiting = group.sync("b")
    group.join_new("c")  # interrupts it
    group.answered(waiting, RebalanceInProgress)
    assert group.state is PREPARING


def test_a_repeated_sync_replaces_the_one_that_is_held() -> None:
    group = DrivenClassic().stable("a", "b")
    group.join("a")
    group.join("b")
    first, second = group.sync("b"), group.sync("b")
    group.answered(first, RebalanceInProgress)
    assert group.held(second)


def test_members_that_never_ask_for_their_assignment_are_dropped() -> None:
    group = DrivenClassic().stable("a", "b", session_timeout_ms=60_000)
    group.join("a", session_timeout_ms=60_000)
    group.join("b", session_timeout_ms=60_000)
    group.sync("a")
    assert group.state is STABLE
    group.pass_ms(REBALANCE_MS)
    assert group.members == ["a"]
    assert group.state is PREPARING


def test_a_leader_that_never_assigns_is_dropped_and_those_that_wait_join_again() -> None:
    group = DrivenClassic().stable("a", "b", session_timeout_ms=60_000)
    group.join("a", session_timeout_ms=60_000)
    group.join("b", session_timeout_ms=60_000)
    waiting = group.sync("b")
    group.pass_ms(REBALANCE_MS)
    group.answered(waiting, RebalanceInProgress)
    assert (group.members, group.leader) == (["b"], "b")


def test_the_last_member_that_leaves_leaves_an_empty_group_with_a_higher_generation() -> None:
    group = DrivenClassic().stable("a")
    group.commit("a")
    generation = group.generation
    assert group.leave("a").errors == (None,)
    assert (group.state, group.generation) == (EMPTY, generation + 1)
    stored = group.stored()
    assert stored is not None
    assert (stored.generation, stored.members) == (generation + 1, {})
    assert group.group.idle
    group.stable("b")
    assert group.generation > generation + 1


def test_many_leave_in_one_request_and_each_has_its_own_answer() -> None:
    group = DrivenClassic().stable("a", "b", "c")
    group.join(new="given")
    answer = group.leave_as(
        LeftMember("a"), LeftMember("x"), LeftMember("given"), LeftMember("c"), LeftMember("", "i")
    )
    assert [type(error) for error in answer.errors] == [
        type(None),
        UnknownMember,
        type(None),
        type(None),
        UnknownMember,
    ]
    assert (group.members, group.state) == (["b"], PREPARING)


def test_an_id_that_is_given_back_before_anybody_joined_with_it_disturbs_no_member() -> None:
    group = DrivenClassic().stable("a")
    group.join(new="b")
    assert group.leave("b").errors == (None,)
    assert (group.state, group.members) == (STABLE, ["a"])
    assert not group.group.classic.pending


def test_a_member_that_leaves_during_the_rebalance_is_not_waited_for() -> None:
    group = DrivenClassic().stable("a", "b")
    waiting = group.join("a")
    group.leave("b")
    assert group.joined(waiting).generation == group.generation


def test_a_held_join_ends_when_its_member_leaves() -> None:
    group = DrivenClassic().stable("a")
    waiting = group.join_new("b")
    group.leave("b")
    group.answered(waiting, UnknownMember)


def test_a_rebalance_waits_for_members_that_were_given_an_id() -> None:
    group = DrivenClassic().stable("a")
    group.join(new="b")
    waiting = group.join("a")
    assert group.held(waiting)
    group.join("b")
    assert not group.held(waiting)
