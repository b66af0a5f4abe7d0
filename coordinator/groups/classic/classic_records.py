"""A classic group as its record, and restored from it."""

from dataclasses import replace

import msgspec

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.classic_group import ClassicGroup, ClassicMember, ClassicState
from log_tables.cluster.group_log import ClassicMemberValue, ClassicValue


def value_of(group: ClassicGroup) -> ClassicValue:
    """The record of a group whose members have their assignments."""
    return ClassicValue(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members={member.id: _member_value(group, member) for member in group.members.values()},
    )


def _member_value(group: ClassicGroup, member: ClassicMember) -> ClassicMemberValue:
    principal = None if member.context is None else member.context.principal
    return ClassicMemberValue(
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=member.metadata(group.protocol),
        assignment=member.assignment,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        principal="" if principal is None else principal.name,
        principal_groups=[] if principal is None else [*principal.groups],
    )


def renamed(value: ClassicValue, old: str, new: str) -> ClassicValue:
    """`value` with another id of a member, which stays where it was in their order."""
    return msgspec.structs.replace(
        value,
        leader=new if value.leader == old else value.leader,
        members={new if name == old else name: member for name, member in value.members.items()},
    )


def remembered(value: ClassicValue, now_ms: float) -> ClassicGroup:
    """The group of the record; every member is as if it were heard of now.

    Another coordinator may have begun one generation more than it wrote down, so that one is left out.
    """
    members = {
        name: ClassicMember(
            id=name,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=((value.protocol, member.metadata),),
            seen_ms=now_ms,
            assignment=member.assignment,
            context=_context(member),
        )
        for name, member in value.members.items()
    }
    group = ClassicGroup(
        generation=value.generation,
        newest=newest_noted(value) + 1,
        protocol_type=value.protocol_type,
        stored=value,
    )
    if not members:
        return group
    state = ClassicState.STABLE
    return replace(group, state=state, protocol=value.protocol, leader=value.leader, members=members)


def newest_noted(value: ClassicValue) -> int:
    """The newest generation that the record knows of."""
    return max(value.generation, value.begun)


def _context(value: ClassicMemberValue) -> RequestContext | None:
    if not value.principal:
        return None
    return RequestContext(Principal(value.principal, tuple(value.principal_groups)), value.host)
