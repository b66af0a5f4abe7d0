"""A classic group as another coordinator finds it: nobody joins again, and no generation is begun twice."""

from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.state.group_records import restore
from log_tables.cluster.group_log import ClassicKey, ClassicMemberValue, ClassicValue, decode, encode
from log_tables.errors import StaleGeneration, UnknownMember
from tests.kit.driven_classic import SESSION_MS, DrivenClassic


def test_the_record_is_read_as_it_was_written() -> None:
    member = ClassicMemberValue(
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        metadata=b"\x00\xff",
        assignment=b"\xfe",
        instance_id="i",
        client_id="c",
        host="h",
        principal="User:p",
        principal_groups=["Group:g"],
    )
    value = ClassicValue(
        generation=3, begun=4, protocol_type="consumer", protocol="range", leader="m", members={"m": member}
    )
    assert decode(encode(ClassicKey("g"), value), "here") == (ClassicKey("g"), value)


def test_a_stable_group_goes_on_at_another_coordinator() -> None:
    group = DrivenClassic().stable("a", "b")
    generation = group.generation
    again = group.restored()
    assert (again.state, again.generation, again.leader) == (ClassicState.STABLE, generation, "a")
    again.heartbeat("a")
    again.commit("b")
    assert again.synced(again.sync("b")) == b"b"
    assert again.joined(again.join("b")).generation == generation
    again.pass_ms(SESSION_MS - 1)
    assert again.members == ["a", "b"]


def test_a_generation_that_was_begun_and_not_written_down_is_left_out() -> None:
    group = DrivenClassic().stable("a")
    assert group.joined(group.join("a")).generation == 2
    again = group.restored()
    assert again.generation == 1
    again.join("a")
    assert again.generation > 2
    again.refuse(again.sync_request("a", 2), StaleGeneration)


def test_generations_that_never_have_an_assignment_are_not_begun_twice() -> None:
    group = DrivenClassic().stable("a")
    begun = [group.generation]
    for _ in range(3):
        group = group.restored()
        for _ in range(3):
            group.join("a", protocols=(("range", b"%d" % len(begun)),))
            begun.append(group.generation)
    assert begun == sorted({*begun})


def test_members_that_had_left_before_the_rebalance_was_complete_come_back_and_time_out() -> None:
    group = DrivenClassic().stable("a", "b")
    group.leave("b")
    again = group.restored()
    assert again.members == ["a", "b"]
    again.pass_ms(SESSION_MS)
    assert again.members == []
    assert again.state is ClassicState.EMPTY


def test_a_group_that_became_empty_is_empty_at_another_coordinator() -> None:
    group = DrivenClassic().stable("a")
    group.leave("a")
    again = group.restored()
    assert (again.state, again.generation) == (ClassicState.EMPTY, group.generation)
    again.refuse(again.commit_request("a"), UnknownMember)
    again.stable("b")
    assert again.generation > group.generation


def test_a_deleted_record_is_no_group() -> None:
    assert restore([(ClassicKey("g"), ClassicValue(generation=1)), (ClassicKey("g"), None)], 0) == {}
