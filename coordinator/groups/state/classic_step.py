"""The requests of Kafka's clients to a group: its classic members, and the offsets, which all doors share."""

from collections.abc import Set
from dataclasses import replace

import msgspec

from coordinator.groups.classic import step as classic
from coordinator.groups.classic.classic_group import ClassicGroup, ClassicLimits
from coordinator.groups.classic.events import (
    Answers,
    ClassicEvent,
    CommitOffsets,
    DeleteOffsets,
    EndPending,
    JoinGroup,
    MembershipEvent,
    PendOffsets,
)
from coordinator.groups.state.acts import Done, with_act
from coordinator.groups.state.group import Group, held_place, newest_commit_ms
from coordinator.groups.state.group_records import group_record
from coordinator.groups.state.member import Member
from coordinator.groups.state.migration import downgraded
from coordinator.groups.state.mixed_step import mixed_step
from coordinator.groups.state.offset_step import with_offsets
from coordinator.groups.state.step import made_by
from log_tables.cluster.group_log import OffsetKey, OffsetValue, PendingKey, PendingValue, Records
from log_tables.errors import (
    ConcurrentTransactions,
    GroupNotEmpty,
    StaleGeneration,
    StaleMemberEpoch,
    UnknownGroup,
)
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.topic_partition import TopicPartition


def classic_step(
    group: Group, event: ClassicEvent, now_ms: float, limits: ClassicLimits
) -> tuple[Group, Records, Answers]:
    """Apply `event` at `now_ms`: the next group, its records, and the answers to requests.

    Raises what `classic.step` raises; UnknownTopic, UnknownPartition for offsets, GroupSubscribedToTopic,
    GroupNotEmpty and UnknownGroup when they are deleted: then `event` has changed nothing. One request may be
    more than one event: those that are `checked` come after the one that may be refused.
    """
    match event:
        case CommitOffsets():
            kept = {at: place for at, place in event.offsets.items() if place.offset >= 0}
            after, records = _committed(group, replace(event, offsets=kept), now_ms)
            after, noted = _noted(group, after, event)
            after, gone = _without_offsets(after, event.offsets.keys() - kept.keys())
            return *made_by(group, after, [*records, *gone, *noted], event.context), []
        case PendOffsets():
            return *_pended(group, event, now_ms), []
        case EndPending():
            return *_ended(group, event), []
        case DeleteOffsets():
            return *_offsets_deleted(group, event), []
        case _:
            return _of_members(group, event, now_ms, limits)


def _of_members(
    group: Group, event: MembershipEvent, now_ms: float, limits: ClassicLimits
) -> tuple[Group, Records, Answers]:
    if group.members:
        return _of_ours(group, event, now_ms, limits)
    before = group.classic
    if not before.exists and group.generation:
        before = ClassicGroup(generation=group.generation, newest=group.generation)  # one count of all
    members, records, answers = classic.step(group.id, before, event, now_ms, limits)
    after = replace(group, classic=members if members.exists else ClassicGroup())
    if members.active and group.idle_ms:
        after = replace(after, idle_ms=0)
        records = [group_record(after), *records]
    if isinstance(event, JoinGroup):
        after, records = made_by(group, after, records, event.context)
    return after, records, answers


def _of_ours(
    group: Group, event: MembershipEvent, now_ms: float, limits: ClassicLimits
) -> tuple[Group, Records, Answers]:
    after, records, answers = mixed_step(group, event, now_ms, limits)
    after, more = downgraded(after, now_ms)
    return after, records + more, answers


def _committed(group: Group, event: CommitOffsets, now_ms: float) -> tuple[Group, Records]:
    if event.checked or (event.generation < 0 and (group.empty or group.classic.only_awaits)):
        return with_offsets(group, group.members.values(), event.offsets, event.at_ms, event.member_id)
    if not group.exists:
        raise StaleGeneration(
            f"the group {group.id!r} has no generation {event.generation}; join it again", current=0
        )
    if group.members:
        member = check_epoch(group, event.member_id, event.instance_id, event.generation)
        after = group.with_member(replace(member, seen_ms=now_ms))
        return with_offsets(after, [], event.offsets, event.at_ms, event.member_id)
    after = replace(group, classic=classic.committed(group.classic, event, now_ms))
    return with_offsets(after, [], event.offsets, event.at_ms, event.member_id)


def _noted(before: Group, after: Group, event: CommitOffsets) -> tuple[Group, Records]:
    """`after`, which keeps the offsets from `before` a commit by an operator."""
    if event.checked:
        return after, []
    kept, records = with_act(before, Done.RESET, event.at_ms, event.context, event.every)
    return replace(after, acts=kept.acts), records


def _pended(group: Group, event: PendOffsets, now_ms: float) -> tuple[Group, Records]:
    """The offsets wait for the end of their transaction: the right to commit them is looked at now, as in
    Kafka (KIP-447). A client that says nothing of a member may commit beside members, as there, too.

    Raises ConcurrentTransactions if the group has not heard of the end of the one before.
    """
    commit, known = event.commit, group.unstable.get(event.id)
    if known is not None and known.number != event.number:
        raise ConcurrentTransactions(
            f"the last transaction of the transactional id {event.id[:100]!r} is being applied; repeat the "
            "request"
        )
    checked, records = group, Records()
    if commit.generation >= 0 or commit.member_id or commit.instance_id is not None:
        checked, records = _committed(group, replace(commit, offsets={}), now_ms)
    if not event.waiting:
        return checked, records
    offsets = event.waiting
    if known is not None and known.offsets:
        offsets = tuple(({each[:2]: each for each in known.offsets} | {o[:2]: o for o in offsets}).values())
    pending = PendingValue(event.number, offsets)
    after = replace(checked, unstable={**group.unstable, event.id: pending})
    made, records = made_by(group, after, records, commit.context)
    return made, [*records, (PendingKey(group.id, event.id), pending)]


def _ended(group: Group, event: EndPending) -> tuple[Group, Records]:
    """Some of the offsets are committed; with the last of them the transaction is over here. Until then they
    all wait in the log: whoever goes on commits them again.
    """
    pending = group.unstable.get(event.id)
    if pending is None or pending.number > event.number:
        return group, []
    commits = event.committed and pending.number == event.number
    end = event.start + OFFSETS_AT_ONCE if commits else event.start
    made, forgotten = dict[TopicPartition, OffsetValue](), set[TopicPartition]()
    kept = dict[TopicPartition, OffsetValue]()
    for topic, partition, value in pending.offsets[event.start : end]:
        at, known = TopicPartition(topic, partition), group.topics.get(topic)
        committed = msgspec.structs.replace(value, committed_ms=event.at_ms)
        if known is None or known.topic_id != value.topic_id or partition >= known.partitions:
            place = held_place(value.topic_id, partition)
            if value.topic_id in group.held and not _is_older(value, group.kept.get(place)):
                kept[place] = committed
            continue
        if _is_older(value, group.offsets.get(at)):
            continue
        if value.offset < 0:
            forgotten.add(at)
        else:
            made[at] = committed
    after, records = _without_offsets(group, forgotten)
    records += [(OffsetKey(group.id, *at), value) for at, value in (made | kept).items()]
    newest = event.at_ms if made else after.committed_ms
    offsets = {**after.offsets, **made}
    after = replace(after, offsets=offsets, kept={**after.kept, **kept}, committed_ms=newest)
    if commits and end < len(pending.offsets):
        return after, records
    left = {name: value for name, value in group.unstable.items() if name != event.id}
    return replace(after, unstable=left), [*records, (PendingKey(group.id, event.id), None)]


def _is_older(pending: OffsetValue, committed: OffsetValue | None) -> bool:
    """Whether an offset that waited is older than the one that is committed: that was given after it, as in
    Kafka; or its transaction had ended before it came, as the next coordinator of an id tells of the end once
    more, and does not know that the group has heard.
    """
    if committed is None or committed.topic_id != pending.topic_id:
        return False
    if committed.order > pending.order:
        return True
    if committed.transaction is None or pending.transaction is None:
        return False
    (producer_id, number), (its_producer_id, its_number) = committed.transaction, pending.transaction
    return producer_id == its_producer_id and number >= its_number


def check_epoch(group: Group, member_id: str, instance_id: str | None, epoch: int) -> Member:
    """The Kafka client that asks with `epoch`. Raises UnknownMember, FencedInstanceId; StaleMemberEpoch, or
    StaleGeneration for a classic one.
    """
    member = group.kafka_member(member_id, instance_id)
    if epoch == member.epoch and not member.away:
        return member
    error = StaleGeneration if member.is_classic else StaleMemberEpoch
    raise error(
        f"the member {member.id[:100]!r} of the group {group.id!r} has epoch {member.epoch}, not {epoch}; go "
        "by the newest assignment",
        current=member.epoch,
    )


def _offsets_deleted(group: Group, event: DeleteOffsets) -> tuple[Group, Records]:
    if event.checked:
        return _without_offsets(group, event.partitions)
    if not group.exists:
        raise UnknownGroup(f"there is no consumer group {group.id!r}; list them with `lakelog group list`")
    if group.subscribed_topics is None:
        raise GroupNotEmpty(f"the group {group.id!r} has members, which do not say what they read; stop them")
    for at in event.partitions:
        group.check_not_subscribed(at.topic)
    group, noted = with_act(group, Done.DELETE_OFFSETS, event.at_ms, event.context, event.every)
    after, records = _without_offsets(group, event.partitions)
    return after, records + noted


def _without_offsets(group: Group, partitions: Set[TopicPartition]) -> tuple[Group, Records]:
    gone = sorted(partitions & group.offsets.keys())
    if not gone:
        return group, []
    left = {at: offset for at, offset in group.offsets.items() if at not in partitions}
    after = replace(group, offsets=left, committed_ms=newest_commit_ms(left))
    return after, [(OffsetKey(group.id, *at), None) for at in gone]
