"""A classic group, as a pure state machine: `step(group, event, now) → (group, records, answers)`.

The records must be durable before any client hears an answer of the same step, or of a later one. A request
that is held is answered in a later step: JoinGroup when all members have joined or their time is over,
SyncGroup when the leader has assigned.
"""

from dataclasses import replace

from coordinator.groups.classic.classic_group import (
    ClassicGroup,
    ClassicLimits,
    ClassicMember,
    ClassicState,
    value_of,
)
from coordinator.groups.classic.events import (
    Answers,
    ClassicTick,
    CommitOffsets,
    GroupHeartbeat,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeftMember,
    MembershipEvent,
    SyncGroup,
)
from coordinator.groups.classic.rebalance import Rebalance, rebalancing
from log_tables.cluster.group_log import Records
from log_tables.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    LakelogError,
    MemberIdRequired,
    RecordTooLarge,
    StaleGeneration,
    UnknownMember,
)
from log_tables.limits import CLASSIC_GROUP_MAX_BYTES, CLASSIC_MEMBER_MAX_BYTES


def step(
    group_id: str, group: ClassicGroup, event: MembershipEvent, now_ms: float, limits: ClassicLimits
) -> tuple[ClassicGroup, Records, Answers]:
    """Apply `event` at `now_ms`: the next group, its records, and the answers to requests.

    Raises InvalidSessionTimeout, InconsistentGroupProtocol, GroupMaxSizeReached, UnknownMember,
    FencedInstanceId, StaleGeneration, RecordTooLarge: then nothing has changed.
    """
    work = Rebalance(group_id, group, now_ms, limits)
    match event:
        case JoinGroup():
            _join(work, event, now_ms, limits)
        case SyncGroup():
            _sync(work, event)
        case GroupHeartbeat():
            work.touch(_checked(group, event))
        case LeaveGroup():
            _leave(work, event)
        case ClassicTick():
            _tick(work, now_ms)
    return work.group, work.records, work.answers


def committed(group: ClassicGroup, event: CommitOffsets, now_ms: float) -> ClassicGroup:
    """The group after a commit of one of its members, who is alive.

    Raises UnknownMember, FencedInstanceId, StaleGeneration; RebalanceInProgress while the member has no
    assignment of its generation.
    """
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        raise UnknownMember("the group has members, and only they commit its offsets; stop them first")
    member = replace(_checked(group, event), seen_ms=now_ms)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        raise rebalancing()
    return replace(group, members={**group.members, member.id: member})


def _checked(group: ClassicGroup, event: SyncGroup | GroupHeartbeat | CommitOffsets) -> ClassicMember:
    """The member that sends `event`. Raises UnknownMember, FencedInstanceId, StaleGeneration."""
    member = group.member(event.member_id, event.instance_id)
    if event.generation != (group.generation if member.generation is None else member.generation):
        raise StaleGeneration(
            f"generation {event.generation} of the group is not the current one; join it again",
            current=group.generation,
        )
    return member


# Joining.


def _join(work: Rebalance, event: JoinGroup, now_ms: float, limits: ClassicLimits) -> None:
    _check_join(work.group, event, limits)
    if event.member_id:
        _join_known(work, event, now_ms)
        return
    static = None if event.instance_id is None else work.group.static_member(event.instance_id)
    if static is not None:
        _replace_static(work, static, event)
    elif event.requires_known_member_id and event.instance_id is None:
        pending = {**work.group.pending, event.new_member_id: now_ms + event.session_timeout_ms}
        work.group = replace(work.group, pending=pending)
        work.answer(
            event.request,
            MemberIdRequired("join again with the member id given here", member_id=event.new_member_id),
        )
    else:
        _add(work, event.new_member_id, event, now_ms)


def check_session(event: JoinGroup, limits: ClassicLimits) -> None:
    """Raise InvalidSessionTimeout for a session timeout outside the bounds."""
    low, high = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if not low <= event.session_timeout_ms <= high:
        raise InvalidSessionTimeout(
            f"session.timeout.ms={event.session_timeout_ms} is not from {low} to {high} "
            "(group_min_session_timeout_ms, group_max_session_timeout_ms); choose a value in this range"
        )


def _check_join(group: ClassicGroup, event: JoinGroup, limits: ClassicLimits) -> None:
    check_session(event, limits)
    if not group.supports(event.protocol_type, event.protocols):
        raise InconsistentGroupProtocol(
            f"the members of the group speak {group.protocol_type or 'no protocol'!r}, and none of the "
            f"protocols {[name[:40] for name, _ in event.protocols[:5]]} of type "
            f"{event.protocol_type[:40]!r} is known to all; give all members the same"
        )
    _check_room(group, event, limits)


def _check_room(group: ClassicGroup, event: JoinGroup, limits: ClassicLimits) -> None:
    """Raise GroupMaxSizeReached, if the member is one too many or says too much."""
    before = group.members.get(event.member_id)
    size = sum(len(name) + len(data) for name, data in event.protocols)
    others = sum(m.size_bytes for m in group.members.values() if m is not before)
    if size > CLASSIC_MEMBER_MAX_BYTES or others + size > CLASSIC_GROUP_MAX_BYTES:
        raise GroupMaxSizeReached(
            f"the member sends {size} bytes of metadata; a member may have {CLASSIC_MEMBER_MAX_BYTES}, and "
            f"all of a group together {CLASSIC_GROUP_MAX_BYTES}; subscribe to fewer topics"
        )
    if group.state is ClassicState.PREPARING_REBALANCE:
        # Those that have joined count: the last ones to come again are left out if there are too many.
        if before is not None and before.joining is not None:
            return
        count = sum(member.joining is not None for member in group.members.values())
    else:
        count = 0 if before is not None else len(group.members)
    if count >= limits.max_size:
        raise GroupMaxSizeReached(
            f"the group has {count} members, as many as group_max_size allows; stop some, or use another "
            "group"
        )


def _join_known(work: Rebalance, event: JoinGroup, now_ms: float) -> None:
    group = work.group
    if event.member_id in group.pending and event.instance_id is None:
        _add(work, event.member_id, event, now_ms)
        return
    member = work.touch(group.member(event.member_id, event.instance_id))
    same = member.protocols == event.protocols
    if group.state is ClassicState.COMPLETING_REBALANCE and same:
        # The answer was lost on its way.
        work.answer(event.request, work.join_answer(member.id))
    elif group.state is ClassicState.STABLE and same and member.id != group.leader:
        work.answer(event.request, work.join_answer(member.id))
    else:
        _update(work, member, event)
        work.rebalance(f"{member.id} joins again: {event.reason}")


def _add(work: Rebalance, member_id: str, event: JoinGroup, now_ms: float) -> None:
    if not work.group.members:
        work.group = replace(work.group, protocol_type=event.protocol_type)
    if work.group.initial:
        work.group = replace(work.group, growing=True)
    member = ClassicMember(
        id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        protocols=event.protocols,
        seen_ms=now_ms,
        joining=event.request,
        is_new=True,
        is_named=bool(event.member_id or event.instance_id),
        context=event.context,
    )
    work.put(member)
    work.note_static(member)
    work.rebalance(f"{member_id} joins: {event.reason}")


def _update(work: Rebalance, member: ClassicMember, event: JoinGroup) -> ClassicMember:
    if member.joining is not None:
        work.answer(member.joining, rebalancing())  # its client has sent another request since
    updated = replace(
        member,
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        joining=event.request,
        context=event.context,
    )
    work.put(updated)
    return updated


def _replace_static(work: Rebalance, old: ClassicMember, event: JoinGroup) -> None:
    """The client of a static member was started again. The others go on, unless the protocol changes."""
    leader, state = work.group.leader, work.group.state
    new = _update(work, work.replace_static(old, event.new_member_id), event)
    if state is not ClassicState.STABLE:
        work.rebalance(f"the static member {new.id} joins again: {event.reason}")
    elif work.group.selected_protocol() != work.group.protocol:
        work.rebalance(f"the static member {new.id} joins with another protocol: {event.reason}")
    else:
        work.put(replace(new, joining=None))
        work.store(value_of(work.group))
        answer = work.join_answer(new.id)
        if event.skips_assignment:
            answer = replace(answer, skip_assignment=answer.leader == new.id)
        else:
            # A leader of an older version would assign, and nobody would hear of it: it is not told.
            answer = replace(answer, leader=leader, members=())
        work.answer(event.request, answer)


def _rebalance_timeout_ms(event: JoinGroup) -> int:
    return event.session_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms


# Assigning.


def _sync(work: Rebalance, event: SyncGroup) -> None:
    group = work.group
    member = work.touch(_checked(group, event))
    named = (event.protocol_type, group.protocol_type), (event.protocol, group.protocol)
    if any(asked is not None and asked != known for asked, known in named):
        raise InconsistentGroupProtocol(
            f"the group speaks {group.protocol!r} of type {group.protocol_type!r}; join it again"
        )
    if group.state is ClassicState.PREPARING_REBALANCE:
        work.answer(event.request, rebalancing())
    elif group.state is ClassicState.STABLE:
        work.put(replace(member, synced=True))
        work.end_sync_if_all_synced()
        work.answer(event.request, work.sync_answer(member))
    else:
        if member.syncing is not None:
            work.answer(member.syncing, rebalancing())
        work.put(replace(member, syncing=event.request, synced=True))
        if member.id == group.leader:
            _assign(work, event)


def _assign(work: Rebalance, event: SyncGroup) -> None:
    members = {
        name: replace(member, assignment=event.assignments.get(name, b""))
        for name, member in work.group.members.items()
    }
    size = sum(member.size_bytes for member in members.values())
    if size > CLASSIC_GROUP_MAX_BYTES:
        raise RecordTooLarge(
            f"the members and their assignments are {size} bytes, {CLASSIC_GROUP_MAX_BYTES} are allowed; use "
            "fewer members, or several groups"
        )
    work.group = replace(work.group, members=members)
    work.complete_sync()


# Leaving.


def _leave(work: Rebalance, event: LeaveGroup) -> None:
    errors: list[LakelogError | None] = []
    reasons = set[str]()
    before = work.group.members
    for left in event.members:
        try:
            name = _leaving(work.group, left)
        except LakelogError as error:
            errors.append(error)
            continue
        work.remove([name], UnknownMember("the member has left; join again"))
        errors.append(None)
        reasons.add(left.reason)
    count = len(before) - len(work.group.members)
    if count:
        _after_loss(work, f"{count} members left: {', '.join(sorted(reasons))}")
    elif None in errors:
        work.complete_if_joined()  # ids that nobody had joined with
    work.answer(event.request, LeaveAnswer(tuple(errors)))


def _leaving(group: ClassicGroup, left: LeftMember) -> str:
    """The id of a member that leaves. Raises UnknownMember, FencedInstanceId."""
    if not left.member_id and left.instance_id is not None:
        static = group.static_member(left.instance_id)
        return group.member("" if static is None else static.id, left.instance_id).id
    if left.member_id in group.pending:
        return left.member_id
    return group.member(left.member_id, left.instance_id).id


def _after_loss(work: Rebalance, reason: str) -> None:
    if work.group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        work.rebalance(reason)
    else:
        work.complete_if_joined()


# Time.


def _tick(work: Rebalance, now_ms: float) -> None:
    late = [name for name, until in work.group.pending.items() if now_ms >= until]
    dead = [
        m.id for m in work.group.members.values() if m.deadline_ms is not None and now_ms >= m.deadline_ms
    ]
    if late or dead:
        work.remove([*late, *dead], UnknownMember("the member was silent for too long; join again"))
    if dead:
        _after_loss(work, f"{len(dead)} members were silent for too long")
    elif late:
        work.complete_if_joined()
    group = work.group
    if group.join_deadline_ms is not None and now_ms >= group.join_deadline_ms:
        work.pass_join_deadline()
    elif group.sync_deadline_ms is not None and now_ms >= group.sync_deadline_ms:
        work.pass_sync_deadline()
