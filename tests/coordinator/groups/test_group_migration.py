"""A group changes its protocol with its members, and they go on meanwhile (KIP-848)."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.consumer_protocol import assigned_partitions, encode_assignment
from coordinator.groups.classic.events import (
    CommitOffsets,
    GroupHeartbeat,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    SyncAnswer,
)
from coordinator.groups.events import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerHeartbeat,
    Join,
    Leave,
    OffsetAndMetadata,
)
from coordinator.groups.state.group import GroupType
from coordinator.groups.state.member import Partitions
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import KafkaClient, MemberConfig
from log_tables.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    LakelogError,
    MemberIdRequired,
    RebalanceInProgress,
    StaleGeneration,
    StaleMemberEpoch,
    UnknownMember,
)
from tests.kit.consumer_bytes import subscription
from tests.kit.driven_classic import LIMITS, REBALANCE_MS, SESSION_MS, DrivenClassic
from tests.kit.driven_consumers import SESSION_MS as CONSUMER_SESSION_MS
from tests.kit.driven_group import T0, T, at


def protocols(*held: int, name: str = "cooperative-sticky") -> tuple[tuple[str, bytes], ...]:
    return ((name, subscription(["t"], at(*held))),)


def two(*names: str, protocol: str = "cooperative-sticky") -> DrivenClassic:
    """A stable group, in which each of these has one partition; it says what it holds when it joins again."""
    group = DrivenClassic()
    for name in names:
        group.join_new(name, protocols=protocols(name=protocol))
    while group.state is not ClassicState.STABLE:
        for name in group.members:
            if group.member(name).joining is None and group.state is ClassicState.PREPARING_REBALANCE:
                group.join(name, protocols=protocols(name=protocol))
        shares = {name: encode_assignment(at(number)) for number, name in enumerate(names)}
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for name in sorted(group.members, key=lambda name: name == group.leader):
                group.sync(name, **({"assignments": shares} if name == group.leader else {}))
    return group


def beat(
    group: DrivenClassic, name: str, epoch: int, owned: Partitions | None = None, **said: object
) -> None:
    instance = said.pop("instance", None)
    event = ConsumerHeartbeat(
        member_id=name,
        epoch=epoch,
        session_timeout_ms=CONSUMER_SESSION_MS,
        client=KafkaClient(name, "h", instance),  # type: ignore[arg-type]
        rebalance_timeout_ms=REBALANCE_MS if epoch == 0 else -1,
        topics=T if epoch == 0 else None,
        owned=frozenset() if epoch == 0 else owned,
    )
    group.group, records = step(group.group, event, group.now_ms)
    group.records += records


def epoch(group: DrivenClassic, name: str) -> int:
    return group.group.members[name].epoch


def rejoin(group: DrivenClassic, name: str, *held: int) -> Partitions:
    """Join again, and ask for the assignment."""
    generation = group.joined(group.join(name, protocols=protocols(*held))).generation
    return synced(group, name, generation)


def synced(group: DrivenClassic, name: str, generation: int) -> Partitions:
    event = group.sync_request(name, generation)
    group.happen(event)
    return assigned_partitions(group.answered(event.request, SyncAnswer).assignment) or frozenset()


def must_rejoin(group: DrivenClassic, name: str) -> bool:
    group.heartbeat(name, epoch(group, name))
    return group.group.members[name].asked_ms is not None


def test_classic_members_stay_and_go_on_in_their_generation() -> None:
    group = two("a", "b")
    generation = group.generation
    beat(group, "n", 0)
    assert group.group.type is GroupType.CONSUMER
    assert not group.group.classic.exists
    assert (epoch(group, "a"), epoch(group, "b")) == (generation, generation)
    assert epoch(group, "n") > generation
    assert [group.group.members[name].owned for name in ("a", "b", "n")] == [at(0), at(1), at()]
    again = group.restored()
    assert again.group.members.keys() == {"a", "b", "n"}
    assert again.group.type is GroupType.CONSUMER
    again.heartbeat("a", generation)


def test_a_cooperative_member_lets_go_before_a_newcomer_takes_over() -> None:
    group = two("a")
    assert group.group.classic.members["a"].assignment == encode_assignment(at(0))
    beat(group, "n", 0)
    beat(group, "n", epoch(group, "n"))
    assert group.group.members["n"].owned == at(1), "which nobody had"
    group = two("a", "b")
    group.happen(LeaveGroup((LeftMember("b"),)))
    assert group.held(group.join("a", protocols=protocols(0))) is False
    group.sync("a", assignments={"a": encode_assignment(at(0, 1))})
    beat(group, "n", 0)
    assert must_rejoin(group, "a")
    assert rejoin(group, "a", 0, 1) == at(0)
    assert group.group.members["a"].revoking == at(1)
    beat(group, "n", epoch(group, "n"))
    assert group.group.members["n"].owned == at()
    before = epoch(group, "a")
    assert rejoin(group, "a", 0) == at(0)
    assert epoch(group, "a") > before
    beat(group, "n", epoch(group, "n"))
    assert group.group.members["n"].owned == at(1)
    assert not must_rejoin(group, "a")


def test_what_a_member_may_not_have_let_go_of_yet_is_not_free() -> None:
    """The leader has assigned less than the member had, and the member has not asked for it yet."""
    group = two("a")
    group.join("a", protocols=protocols(0, 1))
    group.sync("a", assignments={"a": encode_assignment(at(0))})
    beat(group, "n", 0)
    assert (group.group.members["a"].owned, group.group.members["a"].revoking) == (at(0, 1), at(1))
    assert group.group.members["n"].owned == at()
    rejoin(group, "a", 0)
    beat(group, "n", epoch(group, "n"))
    assert group.group.members["n"].owned == at(1)


def test_requests_that_were_held_end_and_members_join_again() -> None:
    group = two("a", "b")
    waiting = group.join("a", protocols=protocols(0))
    assert group.held(waiting)
    beat(group, "n", 0)
    assert [*group.group.classic.held] == []
    assert rejoin(group, "a", 0) == at(0)


def test_when_the_last_of_the_new_protocol_leaves_the_others_go_on_as_classic() -> None:
    group = two("a", "b")
    beat(group, "n", 0)
    epochs = {name: epoch(group, name) for name in ("a", "b")}
    newest = group.group.generation
    beat(group, "n", LEAVES)
    assert (group.group.type, group.state) == (GroupType.CLASSIC, ClassicState.PREPARING_REBALANCE)
    assert group.generation > newest
    for name, known in epochs.items():
        group.heartbeat(name, known)
        group.commit(name, known)
    first, second = (group.join(name, protocols=protocols(n)) for n, name in enumerate(("a", "b")))
    assert group.joined(first).generation == group.joined(second).generation > newest
    group.refuse(GroupHeartbeat("a", epochs["a"]), StaleGeneration)
    assert group.restored().group.type is GroupType.CLASSIC


def test_when_its_session_is_over_too() -> None:
    group = two("a", "b")
    beat(group, "n", 0)
    for _ in range(CONSUMER_SESSION_MS // SESSION_MS * 2 + 1):
        group.now_ms += SESSION_MS / 2
        for name in ("a", "b"):
            if name in group.group.members:
                group.heartbeat(name, epoch(group, name))
        group.expire()
    assert group.group.type is GroupType.CLASSIC
    assert group.members == ["a", "b"]


def test_an_instance_migrates_a_group_as_a_client_does() -> None:
    group = two("a", "b")
    group.group, records = step(group.group, Join("i", MemberConfig()), group.now_ms)
    group.records += records
    assert group.group.members.keys() == {"a", "b", "i"}
    assert group.restored().group.members.keys() == {"a", "b", "i"}
    group.group, records = step(group.group, Leave("i"), group.now_ms)
    assert group.group.classic.members.keys() == {"a", "b"}


@pytest.mark.parametrize("asked", [{"protocol_type": "connect"}, {"protocols": (("stream", b""),)}])
def test_a_group_whose_assignor_does_more_than_assign_stays_classic(asked: dict[str, object]) -> None:
    group = DrivenClassic().stable("a", **asked)
    with pytest.raises(InconsistentGroupProtocol, match="set group"):
        beat(group, "n", 0)
    group.heartbeat("a")


@pytest.mark.parametrize(
    ("names", "stays"), [(("stream",), True), (("stream", "range"), False), (("range",), False)]
)
def test_such_a_group_stays_classic_before_it_has_chosen_an_assignor(
    names: tuple[str, ...], stays: bool
) -> None:
    group = DrivenClassic(replace(LIMITS, initial_rebalance_delay_ms=1_000))
    waiting = group.join_new("a", protocols=tuple((name, subscription(["t"], at())) for name in names))
    if stays:
        with pytest.raises(InconsistentGroupProtocol, match="'stream' of type 'consumer'"):
            beat(group, "n", 0)
        assert group.held(waiting)
    else:
        beat(group, "n", 0)
        assert group.group.members.keys() == {"a", "n"}


def test_members_that_have_not_joined_again_keep_their_epoch_there_and_back() -> None:
    group = two("a", "b")
    beat(group, "n", 0)
    known = epoch(group, "a")
    beat(group, "n", LEAVES)
    group.join("b", protocols=protocols(1))
    beat(group, "m", 0)
    assert epoch(group, "a") == known
    group.commit("a", known)
    assert rejoin(group, "a", 0) == at(0)


def test_a_classic_member_joins_a_group_of_the_new_protocol() -> None:
    group = DrivenClassic()
    beat(group, "n", 0)
    first = group.join(new="c", protocols=protocols())
    assert group.answered(first, MemberIdRequired).details["member_id"] == "c"
    assert rejoin(group, "c") == at()
    beat(group, "n", epoch(group, "n"))
    group.heartbeat("c", epoch(group, "c"))
    beat(group, "n", epoch(group, "n"), group.group.members["n"].assignment)
    assert must_rejoin(group, "c")
    event = group.sync_request("c", epoch(group, "c"))
    group.happen(event)
    assert isinstance(group.answers[event.request], RebalanceInProgress)
    assert len(rejoin(group, "c")) == 1
    assert group.group.is_stable
    group.happen(LeaveGroup((LeftMember("c"), LeftMember("x")), 99))
    assert group.group.members.keys() == {"n"}


def test_classic_members_are_refused_as_in_a_classic_group() -> None:
    group = two("a", "b")
    beat(group, "n", 0)
    refused: list[tuple[type[LakelogError], dict[str, Any]]] = [
        (InvalidSessionTimeout, {"session_timeout_ms": 1}),
        (InconsistentGroupProtocol, {"protocol_type": "connect"}),
        (InconsistentGroupProtocol, {"protocols": protocols(name="range")}),
        (InconsistentGroupProtocol, {"protocols": (("cooperative-sticky", b""),)}),
        (
            GroupMaxSizeReached,
            {"protocols": (("cooperative-sticky", subscription(["t"], []) + bytes(2**21)),)},
        ),
    ]
    for error, asked in refused:
        wrong: dict[str, Any] = {"protocols": protocols(), **asked}
        group.refuse(group.request(new="c", **wrong), error)
    group.refuse(group.request("x", protocols=protocols(0)), UnknownMember)
    group.refuse(group.sync_request("n", epoch(group, "n")), UnknownMember)
    group.refuse(group.sync_request("a", 99), StaleGeneration)
    group.refuse(group.sync_request("a", epoch(group, "a"), protocol="range"), InconsistentGroupProtocol)
    group.refuse(GroupHeartbeat("a", 99), StaleGeneration)
    group.refuse(commit_of("a", 99), StaleGeneration)
    group.refuse(commit_of("n", 99), StaleMemberEpoch)


def commit_of(name: str, generation: int) -> CommitOffsets:
    offsets = {T0: OffsetAndMetadata(1)}
    return CommitOffsets(offsets=offsets, at_ms=1, member_id=name, generation=generation)


def test_who_was_never_told_its_id_is_no_member_any_longer() -> None:
    """Clients before version 4 of JoinGroup hear of their ids with their generation, and join anew."""
    group = two("a")
    group.join(new="old", protocols=protocols(), requires_known_member_id=False)
    group.join(new="static", instance_id="i", protocols=protocols())
    assert group.members == ["a", "old", "static"]
    beat(group, "n", 0)
    assert group.group.members.keys() == {"a", "static", "n"}
    group.join(new="old", protocols=protocols(), requires_known_member_id=False)
    assert group.group.members.keys() == {"a", "static", "n", "old"}


def test_who_joins_without_an_id_and_is_not_heard_of_again_is_given_up() -> None:
    group = two("a")
    beat(group, "n", 0)
    group.join(new="old", protocols=protocols(), requires_known_member_id=False)
    group.now_ms += SESSION_MS - 1
    group.happen(GroupHeartbeat("a", epoch(group, "a")))
    group.expire()
    assert group.group.members.keys() == {"a", "n", "old"}
    group.now_ms += 1
    group.expire()
    assert group.group.members.keys() == {"a", "n"}


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    group = DrivenClassic()
    group.join_new("a", instance_id="i", protocols=protocols())
    group.sync("a", assignments={"a": encode_assignment(at(0, 1))})
    beat(group, "n", 0, instance="i")
    assert [*group.group.members] == ["n"]
    assert group.group.members["n"].owned == at(0, 1)
    group.refuse(GroupHeartbeat("a", 1, "i"), FencedInstanceId)
    beat(group, "n", LEAVES_FOR_A_WHILE, instance="i")
    back: JoinGroup = group.request(new="b", instance_id="i", protocols=protocols())
    group.happen(back)
    assert group.joined(back.request).member_id == "b"
    assert group.group.type is GroupType.CLASSIC
    assert group.restored().members == ["b"]


def test_no_number_is_given_twice() -> None:
    group, seen = two("a"), set[int]()
    for _ in range(3):
        assert group.generation not in seen
        seen.add(group.generation)
        group = group.restored()
        beat(group, "n", 0)
        assert epoch(group, "n") not in seen
        seen.add(epoch(group, "n"))
        group.happen(LeaveGroup((LeftMember("a"),)))
        beat(group, "n", LEAVES)
        group = group.restored()
        group.join_new("a", protocols=protocols())
        group.sync("a", assignments={"a": encode_assignment(at(0))})
