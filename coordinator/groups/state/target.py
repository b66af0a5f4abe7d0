"""The target of a group: which partitions each member is to own.

It is set for all members at once. Whenever members, subscriptions or topics change it is *due*: computed at
once where the last one is old enough, else when it is (KIP-1263). So a thousand members that join together
cost some computations and not a thousand. Until then the old target holds, as far as it still can, and a
member that is new to it keeps what it has. When an instance of the HTTP API subscribes or goes, it is
computed at once: the answer is the only one before the next polls, which are to go by it.

One that takes more than a few ms is never computed in a step of the group, whoever asks: whoever applies the
steps computes it in a thread, as a group is a value, and tells the group (`Aimed`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from coordinator.groups.events import Aimed
from coordinator.groups.state.assignment import STRATEGIES, Assignment
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import group_record, member_record
from coordinator.groups.state.member import NOTHING, Member, Partitions
from log_tables.cluster.group_log import Records
from log_tables.limits import TARGET_AT_ONCE


def sharing(group: Group) -> dict[str, Member]:
    """The members that share the partitions of the group."""
    return {name: member for name, member in group.members.items() if _shares(member)}


def _shares(member: Member) -> bool:
    return member.subscribed and not member.dormant


def is_wide(group: Group) -> bool:
    """Whether to compute the target takes longer than the event loop may: members that have the same
    subscription count once.
    """
    subscriptions = {group.subscription(m) for m in sharing(group).values()}
    listed = sum(map(len, subscriptions))
    return listed > TARGET_AT_ONCE or (
        len(group.members) + listed + sum(_counts(group, subscriptions).values()) > TARGET_AT_ONCE
    )


def targeted(group: Group) -> Assignment:
    """The target of the group as it is now, which takes up to some tenths of a second."""
    members = sharing(group)
    subscriptions = {name: group.subscription(m) for name, m in members.items()}
    owned: Assignment = {name: m.assignment for name, m in members.items()}
    # A classic group has no strategy of ours.
    counts = _counts(group, {*subscriptions.values()})
    return STRATEGIES[group.strategy](subscriptions, counts, owned) if members else {}


def aim(group: Group) -> Aimed:
    """The event by which `group`, whose target is due, hears of it. It takes as long as `targeted`."""
    assert group.due_ms is not None
    return Aimed(group.due_ms, group.changes, targeted(group))


def _counts(group: Group, subscriptions: Collection[frozenset[str]]) -> dict[str, int]:
    chosen = frozenset[str]().union(*subscriptions) & group.topics.keys()
    return {name: group.topics[name].partitions for name in chosen}


def rebalanced(before: Group, group: Group, changed: Collection[str], now_ms: float) -> tuple[Group, Records]:
    """`group`, which was as `before`, with a target that is new, or due; the members `changed` have lost
    partitions or asked for some.

    Instances whose ownership is to change are given the new generation. Kafka clients ask by themselves.
    """
    due_ms = max(now_ms, group.aimed_ms + group.assignment_interval_ms)
    if group.due_ms is not None:
        due_ms = min(due_ms, group.due_ms)
    group = replace(group, due_ms=due_ms, changes=group.changes + 1)
    asked = due_ms <= now_ms or _is_by_instance(before, group, changed)
    if not sharing(group) or (asked and group.is_resolved and not is_wide(group)):
        return _set(_fresh(group, now_ms), targeted(group), changed, group.aimed_ms)
    return _set(group, narrowed(group, group.target, before), changed, group.aimed_ms)


def _is_by_instance(before: Group, group: Group, changed: Collection[str]) -> bool:
    """Whether an instance of the HTTP API is among the members that have changed or have gone."""
    gone = before.members.keys() - group.members.keys()
    found = [group.members[name] for name in changed] + [before.members[name] for name in gone]
    return any(member.kafka is None for member in found)


def aimed(group: Group, event: Aimed, now_ms: float) -> tuple[Group, Records]:
    """`group` with a target that was computed of it. It is due again if the group has changed since."""
    if group.due_ms is None:
        return group, []
    if (event.due_ms, event.changes) == (group.due_ms, group.changes):
        return _set(_fresh(group, now_ms), event.target, (), group.aimed_ms)
    after = replace(_fresh(group, now_ms), due_ms=now_ms + group.assignment_interval_ms)
    return _set(after, narrowed(group, event.target, None), (), group.aimed_ms)


def _fresh(group: Group, now_ms: float) -> Group:
    """Where nobody shares there is no target that the next one would have to wait for."""
    aimed_ms = now_ms if sharing(group) else -math.inf
    return replace(group, aimed_ms=aimed_ms, aimed_generation=group.generation, due_ms=None)


def narrowed(group: Group, target: Mapping[str, Partitions], of: Group | None) -> Mapping[str, Partitions]:
    """`target`, which holds for the group `of`, as far as it can for `group`. None: nothing is known of what
    has changed.
    """
    before = of.members if of is not None and group.topics is of.topics else {}
    same = of is not None and group.matches is of.matches
    found = {name: share for name, share in target.items() if name in group.members}
    for name, member in group.members.items():
        earlier = before.get(name)
        if member is earlier and (same or not member.pattern):
            continue
        if not _shares(member):
            found.pop(name, None)
        elif name not in found:
            found[name] = _within(group, member, member.assignment)
        elif of is None or earlier is None or group.subscription(member) is not of.subscription(earlier):
            found[name] = _within(group, member, found[name])
    if len(found) == len(target) and all(share is target.get(name) for name, share in found.items()):
        return target
    return found


def _within(group: Group, member: Member, share: Partitions) -> Partitions:
    named = group.subscription(member)
    counts = {at.topic: group.topics[at.topic].partitions for at in share if at.topic in group.topics}
    kept = frozenset(at for at in share if at.topic in named and at.partition < counts.get(at.topic, 0))
    return share if len(kept) == len(share) else kept


def _set(
    group: Group, target: Mapping[str, Partitions], changed: Collection[str], aimed_ms: float
) -> tuple[Group, Records]:
    """`group` with that target; `aimed_ms` is when the one before was computed."""
    before = group.target if aimed_ms >= 0 else {}
    # A member that heard of a loss must hear when it is none any longer. Nobody knows which members heard of
    # a move that a restart interrupted.
    if not before and all(group.members[name].assignment == share for name, share in target.items()):
        before = target
    concerned = {name for name in changed if group.members[name].kafka is None}
    for name, member in group.members.items():
        shared = member.kafka is None and _shares(member)
        if shared and not member.owned <= target[name] & before.get(name, NOTHING):
            concerned.add(name)
    group = replace(group, target=target)
    clients = [group.members[name] for name in sorted({*changed} - concerned)]
    records: Records = [member_record(group, member) for member in clients]
    if not concerned:
        return group, records
    group = replace(group, generation=group.generation + 1)
    notified = [replace(group.members[name], epoch=group.generation) for name in sorted(concerned)]
    for member in notified:
        group = group.with_member(member)
    return group, [group_record(group), *(member_record(group, member) for member in notified), *records]
