"""How the members of a group come to own what they are to.

Instances of the HTTP API follow it in their polls, Kafka clients in
their heartbeats, and when they join again: a member lets go first, and nobody owns what another member still
does (KIP-848).
"""

from collections.abc import Collection
from dataclasses import replace

from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import group_record, member_record
from coordinator.groups.state.member import NOTHING, Member, Partitions
from coordinator.groups.state.target import rebalanced
from log_tables.cluster.group_log import MemberKey, Records


def without(
    group: Group,
    gone: Collection[str],
    now_ms: float,
    changed: Collection[str] = (),
    before: Group | None = None,
) -> tuple[Group, Records]:
    left = {name: member for name, member in group.members.items() if name not in gone}
    after, records = rebalanced(before or group, replace(group, members=left), changed, now_ms)
    return after, [*((MemberKey(group.id, name), None) for name in gone), *records]


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
