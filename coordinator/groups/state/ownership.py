"""Who is to own which partitions of a group, and how its members come to that.

The target of all members is set at once. Instances of the HTTP API follow it in their polls, Kafka clients in
their heartbeats, and when they join again: a member lets go first, and nobody owns what another member still
does (KIP-848).
"""

from collections.abc import Collection
from dataclasses import replace

from coordinator.groups.state.assignment import STRATEGIES, Assignment
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import group_record, member_record
from coordinator.groups.state.member import NOTHING, Member, Partitions
from log_tables.cluster.group_log import MemberKey, Records


def without(group: Group, gone: Collection[str], changed: Collection[str] = ()) -> tuple[Group, Records]:
    left = {name: member for name, member in group.members.items() if name not in gone}
    group, records = rebalanced(replace(group, members=left), changed)
    return group, [*((MemberKey(group.id, name), None) for name in gone), *records]


def rebalanced(group: Group, changed: Collection[str]) -> tuple[Group, Records]:
    """`group` with a new target; the members `changed` have lost partitions or asked for some.

    Instances whose ownership is to change are given the new generation. Kafka clients ask by themselves.
    """
    sharing = {m.id: m for m in group.members.values() if m.subscribed and not m.dormant}
    subscriptions = {m.id: group.subscription(m) for m in sharing.values()}
    chosen = {name for subscription in subscriptions.values() for name in subscription}
    counts = {name: group.topics[name].partitions for name in chosen & group.topics.keys()}
    owned: Assignment = {m.id: m.assignment for m in sharing.values()}
    # A classic group has no strategy of ours.
    target = STRATEGIES[group.strategy](subscriptions, counts, owned) if sharing else {}
    # A member that heard of a loss must hear when it is none any longer. Nobody knows which members heard of
    # a move that a restart interrupted.
    before = group.target or (target if target == owned else {})
    concerned = {*changed}
    concerned |= {m for m in sharing if owned[m] - target[m] or owned[m] - before.get(m, NOTHING)}
    group = replace(group, target=target)
    instances = sorted(name for name in concerned if group.members[name].kafka is None)
    clients = [group.members[name] for name in sorted({*changed} - {*instances})]
    records: Records = [member_record(group, member) for member in clients]
    if not instances:
        return group, records
    group = replace(group, generation=group.generation + 1)
    notified = [replace(group.members[name], epoch=group.generation) for name in instances]
    for member in notified:
        group = group.with_member(member)
    return group, [group_record(group), *(member_record(group, member) for member in notified), *records]


def reconciled(
    group: Group, member: Member, held: Partitions | None, now_ms: float, renews: bool = False
) -> tuple[Group, Records]:
    """Lead a Kafka client towards its target: it is told to let go of partitions, or owns others.

    `held` are the partitions that it says it holds; None if it does not say. A new epoch is given whenever it
    owns others than before, and where it `renews` its membership.
    """
    after = _led(group, member, held, now_ms)
    if after.owned == member.owned and not renews:
        group = group.with_member(after)
        return group, [member_record(group, after)] if after.revoking != member.revoking else []
    generation = group.generation + 1
    after = replace(after, epoch=generation, previous_epoch=member.epoch)
    group = replace(group.with_member(after), generation=generation)
    return group, [group_record(group), member_record(group, after)]


def _led(group: Group, member: Member, held: Partitions | None, now_ms: float) -> Member:
    if member.revoking and (held is None or not held.isdisjoint(member.revoking)):
        return member
    target, assignment = group.target.get(member.id, NOTHING), member.assignment
    losing = assignment - target
    if losing and (held is None or not held.isdisjoint(losing)):
        return replace(member, owned=assignment, revoking=losing, asked_ms=now_ms)
    owned = (assignment & target) | group.free(target - assignment, member.id)
    return replace(member, owned=owned, revoking=NOTHING, asked_ms=None)


def may_go_on(group: Group, member: Member) -> bool:
    """Whether nothing of the assignment of a Kafka client that has let go of the rest would change now."""
    target = group.target.get(member.id, NOTHING)
    return member.assignment <= target and not group.free(target - member.assignment, member.id)
