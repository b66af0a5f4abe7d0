"""The heartbeats of Kafka clients whose partitions the coordinator assigns (KIP-848)."""

from dataclasses import replace

from coordinator.groups.events import LEAVES_FOR_A_WHILE, ConsumerHeartbeat
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import member_record
from coordinator.groups.state.member import NOTHING, Member, Partitions
from coordinator.groups.state.migration import upgraded
from coordinator.groups.state.ownership import reconciled, without
from coordinator.groups.state.target import rebalanced
from coordinator.groups.topic_filter import check_pattern, check_subscribed
from log_tables.cluster.group_log import MemberConfig, MemberKey, Records
from log_tables.errors import (
    FencedMemberEpoch,
    InvalidArgument,
    UnknownMember,
    UnreleasedInstanceId,
)


def heard_of_client(group: Group, event: ConsumerHeartbeat, now_ms: float) -> tuple[Group, Records]:
    """Apply a heartbeat. Raises UnknownMember, FencedMemberEpoch, FencedInstanceId, UnreleasedInstanceId,
    InvalidSubscription, InvalidTopicName; InconsistentGroupProtocol where classic members cannot stay.
    """
    if event.epoch < 0:
        return _left(group, event, now_ms)
    if event.topics is not None:
        check_subscribed(event.topics)
    if event.pattern:
        check_pattern(event.pattern)
    records: Records = []
    if event.epoch == 0:
        group, member, records = _joining(group, event, now_ms)
    else:
        member = _checked(group, event)
    after = _updated(member, event, now_ms)
    before, group = group, group.with_member(after).resolving(after)
    if _subscription(after) != _subscription(member):
        group, more = rebalanced(before, group, (), now_ms)
        records += [*more, member_record(group, after)]
    elif after.kafka != member.kafka:
        records.append(member_record(group, after))
    held = event.owned if event.epoch else NOTHING
    group, more = reconciled(group, after, held, now_ms, renews=event.epoch == 0)
    return group, [*dict(records + more).items()]


def told(before: Group, after: Group, event: ConsumerHeartbeat) -> Partitions | None:
    """The assignment that the client of `event` hears of, which made `after` of the group `before`; None
    where it is the one that it knows.
    """
    known, member = before.members.get(event.member_id), after.members[event.member_id]
    if known is None or event.is_full or event.epoch != known.epoch:  # it joins, or has lost an answer
        return member.assignment
    return member.assignment if known.has_news or known.assignment != member.assignment else None


def waits(group: Group, member: Member) -> bool:
    """Whether others are to let go of partitions that are to be the member's, or that is to be computed."""
    target = group.target.get(member.id, NOTHING)
    return not target <= member.owned or (group.due_ms is not None and not target)


def _subscription(member: Member) -> tuple[object, ...]:
    """All that its target depends on."""
    return member.topics, member.pattern, member.config.strategy, member.context if member.pattern else None


def _checked(group: Group, event: ConsumerHeartbeat) -> Member:
    """The member that sends `event`. Raises UnknownMember, FencedInstanceId, FencedMemberEpoch."""
    member = group.kafka_member(event.member_id, event.client.instance_id)
    if member.is_classic:
        raise UnknownMember(
            f"the member {member.id[:100]!r} of the group {group.id!r} speaks the classic protocol; join anew"
        )
    # The answer with the newest epoch may have been lost.
    is_behind = event.epoch == member.previous_epoch and event.owned is not None
    lost = is_behind and event.owned is not None and event.owned <= member.assignment
    if member.away or (event.epoch != member.epoch and not lost):
        raise FencedMemberEpoch(
            f"the member {member.id[:100]!r} of the group {group.id!r} has epoch {member.epoch}, not "
            f"{event.epoch}; give up its partitions, and join again",
            current=member.epoch,
        )
    return member


def _updated(member: Member, event: ConsumerHeartbeat, now_ms: float) -> Member:
    """`member` with what its client says of itself."""
    config = member.config
    rebalance_timeout_ms = config.max_poll_interval_ms
    if event.rebalance_timeout_ms >= 0:
        rebalance_timeout_ms = event.rebalance_timeout_ms
    strategy = config.strategy if event.assignor is None else event.assignor
    known = config.session_timeout_ms, config.max_poll_interval_ms, config.strategy
    if known != (event.session_timeout_ms, rebalance_timeout_ms, strategy):
        config = _config(event, rebalance_timeout_ms, strategy)
    after = replace(member, seen_ms=now_ms, config=config, has_news=False, away=False)
    if event.topics is None and event.pattern is None and event.epoch:
        return after
    return replace(
        after,
        topics=member.topics if event.topics is None else event.topics,
        pattern=member.pattern if event.pattern is None else event.pattern,
        kafka=event.client if event.epoch == 0 or event.is_full else member.kafka,
        context=event.context,
    )


def _config(event: ConsumerHeartbeat, rebalance_timeout_ms: int, strategy: str) -> MemberConfig:
    """Where the group has committed nothing, Kafka's clients choose themselves where they begin."""
    return MemberConfig(
        auto_offset_reset="earliest",
        auto_commit=False,
        session_timeout_ms=event.session_timeout_ms,
        max_poll_interval_ms=rebalance_timeout_ms,
        strategy=strategy,
    )


def _joining(group: Group, event: ConsumerHeartbeat, now_ms: float) -> tuple[Group, Member, Records]:
    """The member that joins, or joins again, in the group that it joins."""
    group, records = upgraded(group, now_ms)
    member = group.members.get(event.member_id)
    if member is not None and member.kafka is None:
        raise InvalidArgument(
            f"{member.id[:100]!r} is a consumer instance of the HTTP API; choose another member id"
        )
    static = None if event.client.instance_id is None else group.static_member(event.client.instance_id)
    if static is not None and static.id != event.member_id:
        if not static.is_classic and not static.away:
            raise UnreleasedInstanceId(
                f"the member {static.id[:100]!r} of the group {group.id!r} has the group.instance.id "
                f"{event.client.instance_id!r}; stop it first, or give each client one of its own"
            )
        group, replaced = taken_over(group, static, event.member_id)
        return group, group.members[event.member_id], records + replaced
    if member is None:
        config = _config(event, event.rebalance_timeout_ms, event.assignor or "")
        member = Member(event.member_id, config, now_ms, now_ms)
        group = replace(group, idle_ms=0)
    return group, member, records


def taken_over(group: Group, old: Member, new_id: str) -> tuple[Group, Records]:
    """Give a static member, whose client was started again, its new id; the old one is fenced."""
    new = replace(old, id=new_id, owned=old.assignment, revoking=NOTHING, asked_ms=None)
    members = {
        new_id if name == old.id else name: new if name == old.id else each
        for name, each in group.members.items()
    }
    target = {new_id if name == old.id else name: each for name, each in group.target.items()}
    return replace(group, members=members, target=target), [(MemberKey(group.id, old.id), None)]


def _left(group: Group, event: ConsumerHeartbeat, now_ms: float) -> tuple[Group, Records]:
    member = group.kafka_member(event.member_id, event.client.instance_id)
    if event.epoch != LEAVES_FOR_A_WHILE:
        return without(group, [member.id], now_ms)
    if member.instance_id is None:
        raise InvalidArgument(
            f"the member {member.id[:100]!r} has no group.instance.id, so it cannot leave for a while; send "
            "epoch -1"
        )
    # Its client is closed, and holds nothing.
    after = replace(
        member, seen_ms=now_ms, owned=member.assignment, revoking=NOTHING, asked_ms=None, away=True
    )
    return group.with_member(after), [member_record(group, after)]
