"""Who may join a classic group, and as whom: ids, protocols, bounds."""

from dataclasses import replace

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.events import JoinAnswer
from coordinator.groups.events import Delete, TopicsChanged
from coordinator.groups.state.step import step
from log_tables.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    RecordTooLarge,
    UnknownMember,
)
from log_tables.limits import CLASSIC_GROUP_MAX_BYTES, CLASSIC_MEMBER_MAX_BYTES
from tests.kit.driven_classic import LIMITS, SESSION_MS, SUBSCRIBED, DrivenClassic

EMPTY, PREPARING = ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE
COMPLETING, STABLE = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
SLOW = replace(LIMITS, initial_rebalance_delay_ms=3_000)


def both() -> tuple[tuple[str, bytes], ...]:
    return (("range", b"r"), ("sticky", b"s"))


def test_a_new_member_is_given_an_id_and_comes_again_with_it() -> None:
    group = DrivenClassic()
    first = group.join(new="c-1")
    assert group.answered(first, MemberIdRequired).details == {"member_id": "c-1"}
    assert (group.state, group.members, group.records) == (EMPTY, [], [])
    second = group.join("c-1")
    answer = group.joined(second)
    assert (answer.member_id, answer.leader, answer.generation) == ("c-1", "c-1", 1)
    assert (answer.protocol_type, answer.protocol) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in answer.members] == [("c-1", SUBSCRIBED)]
    assert group.state is COMPLETING


def test_an_older_client_joins_at_once() -> None:
    group = DrivenClassic()
    request = group.join(new="c-1", requires_known_member_id=False)
    assert group.joined(request).generation == 1


def test_an_id_that_nobody_was_given_is_unknown() -> None:
    group = DrivenClassic()
    group.refuse(group.request("stranger"), UnknownMember)
    group.stable("a")
    group.refuse(group.request("stranger"), UnknownMember)


def test_a_given_id_is_forgotten_after_the_session_timeout_and_then_nothing_is_left() -> None:
    group = DrivenClassic()
    group.join(new="c-1")
    assert group.state is EMPTY
    group.pass_ms(SESSION_MS)
    assert not group.group.exists
    group.refuse(group.request("c-1"), UnknownMember)


def test_a_repeated_join_replaces_the_one_that_is_held() -> None:
    group = DrivenClassic().stable("a")
    first = group.join_new("b")
    second = group.join("b")
    group.answered(first, RebalanceInProgress)
    assert group.held(second)


def test_a_lost_join_answer_is_given_again() -> None:
    group = DrivenClassic()
    group.join_new("a")
    again = group.joined(group.join("a"))
    assert (again.generation, again.leader, len(again.members)) == (1, "a", 1)
    group.stable()
    group.join_new("b")
    group.join("a")
    follower = group.joined(group.join("b"))
    assert (group.state, follower.members) == (COMPLETING, ())


def test_a_follower_that_joins_again_unchanged_hears_the_generation_and_a_leader_begins_another() -> None:
    group = DrivenClassic().stable("a", "b")
    generation = group.generation
    assert group.joined(group.join("b")).generation == generation
    assert group.state is STABLE
    assert group.held(group.join("a"))
    assert group.state is PREPARING


def test_new_metadata_of_a_follower_begins_a_rebalance() -> None:
    group = DrivenClassic().stable("a", "b")
    assert group.held(group.join("b", protocols=(("range", b"other"),)))
    assert group.state is PREPARING


def test_the_protocol_is_the_one_that_most_members_prefer_of_those_that_all_know() -> None:
    group = DrivenClassic(SLOW)
    group.join_new("a", protocols=(("x", b""), ("range", b"r"), ("sticky", b"s")))
    group.join_new("b", protocols=(("sticky", b"s"), ("range", b"r")))
    group.join_new("c", protocols=(("sticky", b"s"), ("range", b"r"), ("x", b"")))
    group.refuse(group.request(new="d", protocols=(("x", b""),)), InconsistentGroupProtocol)
    group.pass_ms(3_000)
    group.pass_ms(3_000)
    assert group.group.classic.protocol == "sticky"


def test_members_of_another_type_or_without_a_protocol_are_refused() -> None:
    group = DrivenClassic()
    group.refuse(group.request(new="a", protocols=()), InconsistentGroupProtocol)
    group.refuse(group.request(new="a", protocol_type=""), InconsistentGroupProtocol)
    group.stable("a", protocol_type="connect", protocols=(("default", b"?"),))
    group.refuse(group.request(new="b"), InconsistentGroupProtocol)
    group.refuse(group.sync_request("a", protocol="other"), InconsistentGroupProtocol)
    group.refuse(group.sync_request("a", protocol_type="consumer"), InconsistentGroupProtocol)
    group.leave("a")
    group.stable("b")  # an empty group takes any
    assert group.group.protocol_type == "consumer"


def test_a_session_timeout_has_bounds() -> None:
    group = DrivenClassic()
    for wrong in (99, 60_001, -1):
        group.refuse(group.request(new="a", session_timeout_ms=wrong), InvalidSessionTimeout)


def test_a_member_without_a_rebalance_timeout_has_its_session_timeout() -> None:
    group = DrivenClassic().stable("a", rebalance_timeout_ms=-1)
    assert group.member("a").rebalance_timeout_ms == SESSION_MS


def test_a_group_has_room_for_so_many_members() -> None:
    group = DrivenClassic(replace(LIMITS, max_size=2)).stable("a", "b")
    group.refuse(group.request(new="c"), GroupMaxSizeReached)
    assert group.held(group.join("a"))  # a member that is there is not refused
    group.join("b")


def test_members_that_come_last_are_refused_where_the_bound_was_lowered() -> None:
    group = DrivenClassic().stable("a", "b", "c")
    group.limits = replace(LIMITS, max_size=2)
    group.join("a")
    group.join("b")
    group.refuse(group.request("c"), GroupMaxSizeReached)


def test_metadata_and_assignments_have_bounds() -> None:
    group = DrivenClassic()
    large = b"x" * CLASSIC_MEMBER_MAX_BYTES
    group.refuse(group.request(new="a", protocols=(("range", large),)), GroupMaxSizeReached)
    group.join_new("a")
    assigned = {"a": b"x" * CLASSIC_GROUP_MAX_BYTES}
    group.refuse(group.sync_request("a", assignments=assigned), RecordTooLarge)


def test_a_new_group_whose_only_member_leaves_before_it_began_is_gone() -> None:
    group = DrivenClassic(SLOW)
    group.join_new("a")
    group.leave("a")
    assert not group.group.exists
    assert group.records == []


def test_the_group_says_who_has_made_it() -> None:
    group = DrivenClassic()
    bob = RequestContext(Principal("User:bob"), "10.0.0.1")
    group.stable("a", context=bob)
    assert group.group.principal == "User:bob"
    again = group.restored()
    assert again.group.principal == "User:bob"
    assert again.member("a").context == RequestContext(Principal("User:bob"), "")


def test_a_deleted_group_leaves_no_record() -> None:
    group = DrivenClassic().stable("a")
    group.leave("a")
    after, records = step(group.group, Delete(), 0)
    group.records += records
    assert not after.exists
    assert not group.restored().group.exists


def test_topics_that_change_leave_classic_members_alone() -> None:
    group = DrivenClassic(SLOW)
    group.join_new("a", protocols=(("of its own", b""),))
    for milliseconds in (0, 3_000, 3_000):  # also before it has a protocol
        group.pass_ms(milliseconds)
        assert step(group.group, TopicsChanged({}), 0)[0].classic == group.group.classic
    group.sync("a")
    group.commit("a")
    after, records = step(group.group, TopicsChanged({}), 0)
    assert (after.classic, after.offsets, len(records)) == (group.group.classic, {}, 1)


def test_a_member_of_a_join_answer_is_told_its_own_id() -> None:
    group = DrivenClassic().stable("a", "b")
    requests = {name: group.join(name, protocols=both()[:1]) for name in "ab"}
    answers = {name: group.answered(request, JoinAnswer).member_id for name, request in requests.items()}
    assert answers == {"a": "a", "b": "b"}
