"""A consumer group, as a pure state machine: `step(group, event, now) → (group, records)`.

The records must be durable before any client hears of the new group. The target assignment of all members is
set at once (`target`). Ownership follows member by member, as in KIP-848: a member gives up and takes
over partitions only in its own poll, when it has processed its records, and takes over only partitions that
no other member still owns. So partitions that stay with their owner are never interrupted, and no partition
ever has two owners. A member may commit the partitions that it owns, and no others.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

from coordinator.access.principal import RequestContext
from coordinator.groups.events import (
    Aimed,
    Applied,
    Assign,
    Commit,
    Configure,
    ConsumerHeartbeat,
    Delete,
    Event,
    Heartbeat,
    Join,
    Leave,
    MemberEvent,
    Poll,
    Reset,
    Seek,
    Start,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
    Transact,
    Undo,
    Unsubscribe,
)
from coordinator.groups.state import transaction_state
from coordinator.groups.state.acts import Done, with_act, without_acts
from coordinator.groups.state.assignment import STRATEGIES
from coordinator.groups.state.consumer_step import heard_of_client
from coordinator.groups.state.group import Group, held_place, newest_commit_ms
from coordinator.groups.state.group_records import group_record, member_record
from coordinator.groups.state.member import NOTHING, Member
from coordinator.groups.state.migration import downgraded, upgraded
from coordinator.groups.state.offset_step import commit, finish, place_in_new, reset, seek, start, transact
from coordinator.groups.state.ownership import without
from coordinator.groups.state.target import aimed, rebalanced, sharing
from coordinator.groups.state.undo import undo
from coordinator.groups.topic_filter import check_pattern, check_subscribed
from log_tables.cluster.group_log import (
    ClassicKey,
    GroupKey,
    Key,
    MemberKey,
    OffsetKey,
    OffsetValue,
    PendingKey,
    Records,
    SettingsKey,
    SettingsValue,
)
from log_tables.errors import (
    GroupNotEmpty,
    InvalidConsumer,
    InvalidSubscription,
    MemberExists,
    MixedSubscription,
    Retriable,
)
from log_tables.topic_partition import TopicPartition


def step(group: Group, event: Event, now_ms: float) -> tuple[Group, Records]:
    """Apply `event` at `now_ms`: the next group, and the records of the change.

    Raises the errors of the kind Conflict, NotFound or InvalidRequest for an event that cannot be: then
    nothing has changed.
    """
    if isinstance(event, MemberEvent):
        if isinstance(event, Commit | Seek) and event.checked and event.member_id not in group.members:
            return finish(group, event)
        group = group.with_member(replace(group.member(event.member_id), seen_ms=now_ms))
    after, records = _STEPS[type(event)](group, event, now_ms)
    if after.members is not group.members:
        after, more = downgraded(after, now_ms)
        records = records + more
    if isinstance(event, Join | Reset | Undo | Transact | ConsumerHeartbeat):
        return made_by(group, after, records, event.context)
    return after, records


def made_by(
    before: Group, after: Group, records: Records, context: RequestContext | None
) -> tuple[Group, Records]:
    """`after`, which says who has made it if there was no such group `before`."""
    if context is None or before.exists or not after.exists:
        return after, records
    after = replace(after, principal=context.principal.name)
    own = GroupKey(after.id)
    return after, [*((key, value) for key, value in records if key != own), group_record(after)]


def _joined(group: Group, event: Join, now_ms: float) -> tuple[Group, Records]:
    if event.member_id in group.members:
        raise MemberExists(
            f"the group {group.id!r} has a consumer instance {event.member_id!r} already; choose another "
            "name, or delete that one first"
        )
    strategy = event.config.strategy
    if strategy and strategy not in STRATEGIES:
        raise InvalidConsumer(
            f"partition.assignment.strategy={strategy!r} is not known; use one of {', '.join(STRATEGIES)}"
        )
    group, records = upgraded(group, now_ms)
    if strategy and group.members and strategy != group.strategy:
        raise InvalidConsumer(
            f"the group {group.id!r} shares its partitions by {group.strategy}, not by {strategy}; use "
            "the same"
        )
    member = Member(
        event.member_id, event.config, now_ms, now_ms, epoch=group.generation, context=event.context
    )
    joined = replace(group.with_member(member), idle_ms=0)
    if group.idle_ms or records:
        records.append(group_record(joined))
    return joined, [*records, member_record(group, member)]


def _subscribed(group: Group, event: Subscribe, now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    if not event.topics and not event.pattern:
        raise InvalidSubscription("a subscription names topics or a topic_pattern; name one, or delete it")
    check_subscribed(event.topics)
    if event.topics and event.pattern:
        raise MixedSubscription("a subscription has topics or a topic_pattern, not both; choose one")
    if member.assigned or (member.topics and event.pattern) or (member.pattern and event.topics):
        raise _mixed(member)
    if event.pattern:
        check_pattern(event.pattern)
    changed = replace(
        member,
        topics=event.topics,
        pattern=event.pattern,
        polled_ms=now_ms,
        dormant=False,
        context=event.context,
    )
    before, group = group, group.resolving(changed)
    if member.latest:
        new = group.subscription(changed) & group.topics.keys()
        changed = replace(changed, starting=frozenset(new - group.started([member])))
    return rebalanced(before, group.with_member(changed), [member.id], now_ms)


def _assigned(group: Group, event: Assign, _now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    if member.subscribed:
        raise _mixed(member)
    for at in event.partitions:
        group.check(at)
    kept = {at: offset for at, offset in member.positions.items() if at in event.partitions}
    changed = replace(member, assigned=bool(event.partitions), owned=event.partitions, positions=kept)
    if member.latest:
        changed = replace(changed, starting=frozenset(at.topic for at in event.partitions))
    return group.with_member(changed), [member_record(group, changed)]


def _unsubscribed(group: Group, event: Unsubscribe, now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    freed = replace(member, topics=frozenset(), pattern="", assigned=False, owned=NOTHING, positions={})
    freed = replace(freed, starting=frozenset[str]() if freed.latest else None)
    return rebalanced(group, group.with_member(freed), [member.id], now_ms)


def _mixed(member: Member) -> MixedSubscription:
    way = "a list of partitions" if member.assigned else "a pattern" if member.pattern else "topics"
    return MixedSubscription(
        f"the consumer instance {member.id!r} has {way}: topics, a pattern and partitions exclude one "
        "another; delete its subscription first"
    )


def _polled(group: Group, event: Poll, now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    woken = replace(member, polled_ms=now_ms, dormant=False)
    before, group, records = group, group.with_member(woken), Records()
    if member.dormant:
        group, records = rebalanced(before, group, [], now_ms)
        woken = group.members[member.id]
    if not woken.subscribed or (event.generation is not None and event.generation < woken.epoch):
        return group, records
    target = group.target.get(member.id, NOTHING)
    if woken.owned == target:
        return group, records
    owned = group.free(target, member.id)
    if owned == woken.owned:
        return group, records
    generation = group.generation + 1
    kept = {at: offset for at, offset in woken.positions.items() if at in owned}
    given = replace(woken, owned=owned, epoch=generation, positions=kept)
    group = replace(group.with_member(given), generation=generation)
    return group, [*records, group_record(group), member_record(group, given)]


def _heard_of(group: Group, _event: Heartbeat, _now_ms: float) -> tuple[Group, Records]:
    return group, []


def _left(group: Group, event: Leave, now_ms: float) -> tuple[Group, Records]:
    return without(group, [event.member_id], now_ms)


def _configured(group: Group, event: Configure, _now_ms: float) -> tuple[Group, Records]:
    merged = {**group.configs, **event.configs}
    configs = {name: value for name, value in merged.items() if value is not None}
    value = SettingsValue(configs) if configs else None
    return replace(group, configs=configs), [(SettingsKey(group.id), value)]


def _applied(group: Group, event: Applied, _now_ms: float) -> tuple[Group, Records]:
    transactions, records = transaction_state.apply(group.transactions, group.id, event)
    return replace(group, transactions=transactions), records


def _deleted(group: Group, event: Delete, _now_ms: float) -> tuple[Group, Records]:
    if (group.members or group.classic.active) and not event.force:
        raise GroupNotEmpty(f"the group {group.id!r} has members; stop them first, or force it")
    if group.transactions.pending:
        raise Retriable(f"transactions of the group {group.id!r} are being applied; repeat the request")
    keys: list[Key] = [MemberKey(group.id, name) for name in group.members]
    keys += [OffsetKey(group.id, *at) for at in (*group.offsets, *group.kept)]
    kept, noted = group, Records()
    if event.at_ms:
        kept, noted = with_act(group, Done.DELETE, event.at_ms, event.context, group.offsets)
    keys += [PendingKey(group.id, name) for name in group.unstable]
    gone = Group(
        group.id,
        topics=group.topics,
        readable=group.readable,
        held=group.held,
        configs=group.configs,
        default_interval_ms=group.default_interval_ms,
        acts=kept.acts,
    )
    forgotten = transaction_state.forget(group.transactions, group.id)
    if group.classic.stored is not None:
        keys.append(ClassicKey(group.id))
    return gone, [*((key, None) for key in keys), *forgotten, (GroupKey(group.id), None), *noted]


def _topics_changed(group: Group, event: TopicsChanged, now_ms: float) -> tuple[Group, Records]:
    before = group
    group = replace(group, topics=event.topics, readable=event.readable, held=event.held)
    group = group.following(event.matches)
    others = _differing(before.topics, group.topics)
    group, losers, records = _without(group, before, others)
    group, placed = place_in_new(group, before, others, event.at_ms)
    records += placed
    # Most topics that come and go are none of this group's.
    named = {group.subscription(member) for member in sharing(group).values()}
    follows_others = group.matches is not before.matches or not all(map(others.isdisjoint, named))
    if losers or follows_others or before.due_ms is not None or before.aimed_ms < 0:
        group, more = rebalanced(before, group, losers, now_ms)
        records += more
    return group, records


def _differing(before: Mapping[str, TopicState], now: Mapping[str, TopicState]) -> set[str]:
    """The topics that have come, gone or changed."""
    if now is before:
        return set()
    found = {name for name, topic in now.items() if before.get(name) != topic}
    return found | (before.keys() - now.keys())


def _without(group: Group, before: Group, others: Set[str]) -> tuple[Group, list[str], Records]:
    """`group` without what it had in the topics that are `others` than `before`; the members that have lost
    partitions by that, which they could not give up in order.
    """

    def stays(at: TopicPartition) -> bool:
        topic, earlier = group.topics.get(at.topic), before.topics.get(at.topic)
        if topic is None or at.partition >= topic.partitions:
            return False
        return earlier is None or earlier.topic_id == topic.topic_id

    def left(member: Member) -> Member:
        """`member` without partitions of topics that changed; partitions that it assigned itself stay."""
        owned = member.owned if member.assigned else frozenset(filter(stays, member.owned))
        kept = {at: offset for at, offset in member.positions.items() if stays(at)}
        has_news = member.has_news or (member.kafka is not None and owned != member.owned)
        return replace(
            member, owned=owned, positions=kept, revoking=member.revoking & owned, has_news=has_news
        )

    # Nothing is known of topics that the group, restored, has only offsets in.
    dead = {
        at
        for at in group.offsets
        if (at.topic in others or at.topic not in before.topics) and group.committed(at) is None
    }
    group, records = _with_moved(group, dead) if dead or group.kept else (group, [])
    if others.isdisjoint(before.topics):
        return group, [], records
    losers, members = [], dict(group.members)
    for member in group.members.values():
        changed = members[member.id] = left(member)
        if changed.owned != member.owned:
            losers.append(member.id)
        elif changed.positions != member.positions:
            records.append(member_record(group, changed))
    return replace(group, members=members), losers, records


def _with_moved(group: Group, dead: Set[TopicPartition]) -> tuple[Group, Records]:
    """`group` with the offsets in deleted topics where they belong now. The `dead` ones are in topics that
    were just deleted: they are kept while these may come back. Those that were kept are the group's again
    where the topic is back, under whichever name, and end with its files.
    """
    offsets = {at: value for at, value in group.offsets.items() if at not in dead}
    moving = {at: value for at, value in group.offsets.items() if at in dead} | dict(group.kept)
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    kept, records = dict[TopicPartition, OffsetValue](), Records()
    for at, value in moving.items():
        name, place = names.get(value.topic_id), held_place(value.topic_id, at.partition)
        into = kept if value.topic_id in group.held else None
        if name is not None and at.partition < group.topics[name].partitions:
            into, place = offsets, TopicPartition(name, at.partition)
        if into is not None:
            into[place] = value
        if into is None or place != at:
            records.append((OffsetKey(group.id, *at), None))
        if into is not None and place != at:
            records.append((OffsetKey(group.id, *place), value))
    return replace(group, offsets=offsets, kept=kept, committed_ms=newest_commit_ms(offsets)), records


def _ticked(group: Group, event: Tick, now_ms: float) -> tuple[Group, Records]:
    if event.forget_before_ms and group.idle:
        return _idle(group, event)
    transactions, forgotten = transaction_state.expire(group.transactions, group.id, event.at_ms)
    group, old = without_acts(group, event.acts_before_ms)
    group, records = _looked_after(replace(group, transactions=transactions), now_ms)
    return group, records + forgotten + old


def _idle(group: Group, event: Tick) -> tuple[Group, Records]:
    """The time since when it is idle must be durable: another process would begin to count again."""
    if not group.idle_ms:
        group = replace(group, idle_ms=event.at_ms)
        return group, [group_record(group)]
    if group.touched_ms >= event.forget_before_ms:
        return group, []
    return _deleted(group, Delete(), 0)


def _looked_after(group: Group, now_ms: float) -> tuple[Group, Records]:
    late = [member for member in group.members.values() if now_ms >= member.deadline_ms]
    dead = [m.id for m in late if m.kafka or now_ms >= m.seen_ms + m.config.session_timeout_ms]
    slow = [m for m in late if m.id not in dead]
    before = group
    for member in slow:
        group = group.with_member(replace(member, dormant=True, owned=NOTHING, positions={}))
    if dead:
        return without(group, dead, now_ms, [member.id for member in slow], before)
    return rebalanced(before, group, [member.id for member in slow], now_ms) if slow else (group, [])


_STEPS: Mapping[type[Event], Callable[[Group, Any, float], tuple[Group, Records]]] = {
    Join: _joined,
    Leave: _left,
    Heartbeat: _heard_of,
    Subscribe: _subscribed,
    Start: start,
    Unsubscribe: _unsubscribed,
    Assign: _assigned,
    Poll: _polled,
    Commit: commit,
    Seek: seek,
    Reset: reset,
    Undo: undo,
    Transact: transact,
    ConsumerHeartbeat: heard_of_client,
    Configure: _configured,
    Applied: _applied,
    Aimed: aimed,
    Delete: _deleted,
    TopicsChanged: _topics_changed,
    Tick: _ticked,
}
"""A step of a member begins when the member, which exists, is noted as alive."""
