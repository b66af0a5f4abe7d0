"""The requests of classic members in a group whose partitions the coordinator assigns.

They hear in their heartbeats that they are to join again. JoinGroup is answered at once, with the member's
epoch as its generation, and SyncGroup with its partitions: nobody leads, and nobody waits for the others.
"""

from collections import Counter
from dataclasses import replace

from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.classic.consumer_protocol import (
    CONSUMER,
    encode_assignment,
    held_partitions,
    subscribed_topics,
)
from coordinator.groups.classic.events import (
    Answers,
    ClassicTick,
    GroupHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeftMember,
    MembershipEvent,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.classic.rebalance import rebalancing
from coordinator.groups.classic.step import check_session
from coordinator.groups.state.consumer_step import taken_over
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import member_record
from coordinator.groups.state.member import Member
from coordinator.groups.state.migration import ASSIGNORS, classic_config
from coordinator.groups.state.ownership import may_go_on, reconciled, without
from coordinator.groups.state.target import rebalanced
from log_tables.cluster.group_log import KafkaClient, Records
from log_tables.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    LakelogError,
    MemberIdRequired,
    StaleGeneration,
    UnknownMember,
)
from log_tables.limits import CLASSIC_GROUP_MAX_BYTES, CLASSIC_MEMBER_MAX_BYTES


def mixed_step(
    group: Group, event: MembershipEvent, now_ms: float, limits: ClassicLimits
) -> tuple[Group, Records, Answers]:
    """Apply `event` at `now_ms`. Raises what `classic.step` raises: then nothing has changed."""
    match event:
        case JoinGroup():
            return _join(group, event, now_ms, limits)
        case SyncGroup():
            return _sync(group, event, now_ms)
        case GroupHeartbeat():
            return _heard(group, event, now_ms), [], []
        case LeaveGroup():
            return _leave(group, event, now_ms)
        case ClassicTick():
            return group, [], []


def classic_member(group: Group, event: SyncGroup | GroupHeartbeat) -> Member:
    """The classic member that sends `event`. Raises UnknownMember, FencedInstanceId, StaleGeneration."""
    member = _classic(group, event.member_id, event.instance_id)
    if event.generation != member.epoch:
        raise StaleGeneration(
            f"generation {event.generation} of the member {member.id[:100]!r} is not the current one; join "
            "the group again",
            current=member.epoch,
        )
    return member


def _classic(group: Group, member_id: str, instance_id: str | None) -> Member:
    member = group.kafka_member(member_id, instance_id)
    if not member.is_classic:
        raise UnknownMember(
            f"the member {member.id[:100]!r} of the group {group.id!r} speaks the protocol consumer; join "
            "anew"
        )
    return member


def _join(
    group: Group, event: JoinGroup, now_ms: float, limits: ClassicLimits
) -> tuple[Group, Records, Answers]:
    check_session(event, limits)
    static = None if event.instance_id is None else group.static_member(event.instance_id)
    member = _joining(group, event, static)
    others = [m for m in group.members.values() if m is not member and m.is_classic]
    protocol = _protocol(group, event, others)
    topics = subscribed_topics(dict(event.protocols)[protocol])
    if topics is None:
        raise InconsistentGroupProtocol(f"the subscription of {event.member_id[:100]!r} cannot be read")
    held = held_partitions(dict(event.protocols)[protocol])
    if member is None and event.member_id and held:
        # One that was given up while it reads on: it lets go of them, and joins anew.
        raise UnknownMember(f"the group {group.id!r} has no member {event.member_id[:100]!r}; join anew")
    _check_room(group, event, others, member, limits)
    if not event.member_id and event.requires_known_member_id and event.instance_id is None:
        error = MemberIdRequired("join again with the member id given here", member_id=event.new_member_id)
        return group, [], [(event.request, error)]
    name, records = event.member_id or event.new_member_id, Records()
    is_new = name not in group.members
    if static is not None and static.id != name:
        group, records = taken_over(group, static, name)
        member = group.members[name]
    after = _joined(member, name, event, topics, now_ms)
    before, group = group, replace(group.with_member(after), idle_ms=0)
    asked = None if member is None else (member.topics, member.config.strategy)
    if asked != (after.topics, after.config.strategy):
        group, more = rebalanced(before, group, (), now_ms)
        records += more
    records.append(member_record(group, after))
    group, more = reconciled(group, after, held & after.owned, now_ms, renews=is_new)
    answer = JoinAnswer(
        member_id=name,
        generation=group.members[name].epoch,
        protocol_type=CONSUMER,
        protocol=protocol,
        leader="",
    )
    return group, [*dict(records + more).items()], [(event.request, answer)]


def _joining(group: Group, event: JoinGroup, static: Member | None) -> Member | None:
    """The member that joins again; None for a new one. Raises UnknownMember, FencedInstanceId."""
    if not event.member_id:
        return static
    if event.instance_id is not None or event.member_id in group.members:
        return group.kafka_member(event.member_id, event.instance_id)
    return None


def _protocol(group: Group, event: JoinGroup, others: list[Member]) -> str:
    """The first protocol that the other classic members know, too. Raises InconsistentGroupProtocol."""
    known = Counter(name for each in others if each.kafka is not None for name in dict(each.kafka.protocols))
    for name, _ in event.protocols:
        if event.protocol_type == CONSUMER and name in ASSIGNORS and known[name] == len(others):
            return name
    raise InconsistentGroupProtocol(
        f"none of the protocols {[name[:40] for name, _ in event.protocols[:5]]} of type "
        f"{event.protocol_type[:40]!r} is one that the coordinator of the group {group.id!r} can stand in "
        "for and that all its classic members know; set one of Kafka's assignors"
    )


def _check_room(
    group: Group, event: JoinGroup, others: list[Member], member: Member | None, limits: ClassicLimits
) -> None:
    size = sum(len(name) + len(data) for name, data in event.protocols)
    all_of_them = size + sum(each.kafka.size_bytes for each in others if each.kafka is not None)
    if size > CLASSIC_MEMBER_MAX_BYTES or all_of_them > CLASSIC_GROUP_MAX_BYTES:
        raise GroupMaxSizeReached(
            f"the member sends {size} bytes of metadata; a member may have {CLASSIC_MEMBER_MAX_BYTES}, and "
            f"all of a group together {CLASSIC_GROUP_MAX_BYTES}; subscribe to fewer topics"
        )
    if member is None and len(group.members) >= limits.max_size:
        raise GroupMaxSizeReached(
            f"the group has {len(group.members)} members, as many as group_max_size allows; stop some, or "
            "use another group"
        )


def _joined(
    member: Member | None, name: str, event: JoinGroup, topics: frozenset[str], now_ms: float
) -> Member:
    timeout_ms = event.rebalance_timeout_ms if event.rebalance_timeout_ms >= 0 else event.session_timeout_ms
    config = classic_config(event.session_timeout_ms, timeout_ms)
    client = KafkaClient(event.client_id, event.client_host, event.instance_id, protocols=event.protocols)
    before = member or Member(name, config, now_ms, now_ms)
    return replace(
        before,
        config=config,
        seen_ms=now_ms,
        topics=topics,
        pattern="",
        kafka=client,
        away=False,
        context=event.context,
    )


def _sync(group: Group, event: SyncGroup, now_ms: float) -> tuple[Group, Records, Answers]:
    member = classic_member(group, event)
    assert member.kafka is not None
    known = dict(member.kafka.protocols)
    if event.protocol_type not in (None, CONSUMER) or (event.protocol and event.protocol not in known):
        raise InconsistentGroupProtocol(
            f"the member speaks {[*known]} of type {CONSUMER!r}; join the group again"
        )
    group = group.with_member(replace(member, seen_ms=now_ms))
    # One that is to let go of something has to hear of it first.
    if not member.revoking and not may_go_on(group, member):
        return group, [], [(event.request, rebalancing())]
    protocol = event.protocol or next(iter(known))
    answer = SyncAnswer(CONSUMER, protocol, encode_assignment(member.assignment))
    return group, [], [(event.request, answer)]


def _heard(group: Group, event: GroupHeartbeat, now_ms: float) -> Group:
    """The member is alive. It is noted since when it is to join again."""
    member = replace(classic_member(group, event), seen_ms=now_ms)
    must_join = bool(member.revoking) or not may_go_on(group, member)
    asked_ms = (member.asked_ms or now_ms) if must_join else None
    return group.with_member(replace(member, asked_ms=asked_ms))


def _leave(group: Group, event: LeaveGroup, now_ms: float) -> tuple[Group, Records, Answers]:
    errors: list[LakelogError | None] = []
    gone: dict[str, None] = {}
    for left in event.members:
        try:
            gone[_leaving(group, left, gone)] = None
            errors.append(None)
        except LakelogError as error:
            errors.append(error)
    answers: Answers = [(event.request, LeaveAnswer(tuple(errors)))]
    if not gone:
        return group, [], answers
    group, records = without(group, gone, now_ms)
    return group, records, answers


def _leaving(group: Group, left: LeftMember, gone: dict[str, None]) -> str:
    """The id of a member that leaves. Raises UnknownMember, FencedInstanceId."""
    static = None if left.instance_id is None else group.static_member(left.instance_id)
    name = static.id if static is not None and not left.member_id else left.member_id
    member = group.kafka_member(name, left.instance_id)
    if member.id in gone:
        raise UnknownMember(f"the member {member.id[:100]!r} has left already")
    return member.id
