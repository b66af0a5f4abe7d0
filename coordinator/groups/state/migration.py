"""A group that changes between the classic protocol and that of KIP-848 while it has members.

Classic members stay when the first member comes whose partitions the coordinator assigns, and they keep their
partitions. When the last such member has gone, they go on among themselves. Epochs and generations are one
count, so none is given twice.
"""

import math
from dataclasses import replace

from coordinator.groups.classic.classic_group import (
    ClassicGroup,
    ClassicLimits,
    ClassicMember,
    ClassicState,
    value_of,
)
from coordinator.groups.classic.consumer_protocol import (
    CONSUMER,
    assigned_partitions,
    encode_assignment,
    held_partitions,
    subscribed_topics,
)
from coordinator.groups.classic.rebalance import Rebalance
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import member_record
from coordinator.groups.state.member import NOTHING, Member, Partitions
from coordinator.groups.state.target import rebalanced
from log_tables.cluster.group_log import ClassicKey, KafkaClient, MemberConfig, MemberKey, Records
from log_tables.errors import InconsistentGroupProtocol

ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""The assignors of classic members which the coordinator may stand in for. Others, as those of Kafka Streams,
do more than assign.
"""


def upgraded(group: Group, now_ms: float) -> tuple[Group, Records]:
    """`group` with its classic members among those whose partitions the coordinator assigns.

    Raises InconsistentGroupProtocol where the coordinator cannot stand in for their assignor.
    """
    if not group.classic.exists:
        return group, []
    # Whoever does not know its id yet, and hears of no generation now, joins as another one.
    known = {name: member for name, member in group.classic.members.items() if member.is_named}
    classic = replace(group.classic, members=known)
    _check_protocol(classic)
    assigned = {member.id: _assigned(group, member) for member in classic.members.values()}
    given = NOTHING.union(*assigned.values())
    members = {
        member.id: _as_ours(group, member, assigned[member.id], given, now_ms)
        for member in classic.members.values()
    }
    newest = max(group.generation, classic.newest)
    after = replace(
        group, members=members, generation=newest, classic=ClassicGroup(), target={}, aimed_ms=-math.inf
    )
    records: Records = [member_record(after, member) for member in members.values()]
    if classic.stored is not None:
        records.append((ClassicKey(group.id), None))
    after, more = rebalanced(group, after, (), now_ms)
    return after, records + more


def _check_protocol(classic: ClassicGroup) -> None:
    """Raise InconsistentGroupProtocol where the members share by an assignor that the coordinator cannot
    stand in for, or have no other one in common.
    """
    named = [frozenset(dict(member.protocols)) for member in classic.members.values()]
    common = frozenset[str]().union(*named[:1]).intersection(*named)
    # Before their first generation they have not chosen one.
    is_known = classic.protocol in ASSIGNORS or not classic.protocol
    if named and (classic.protocol_type != CONSUMER or not is_known or common.isdisjoint(ASSIGNORS)):
        raise _irreplaceable(classic, classic.protocol or ", ".join(sorted(common)))


def _irreplaceable(classic: ClassicGroup, protocol: str) -> InconsistentGroupProtocol:
    return InconsistentGroupProtocol(
        f"the members of the group share by {protocol[:100]!r} of type {classic.protocol_type!r}, which the "
        "coordinator cannot do for them; set group.protocol=classic, stop them first, or use another group"
    )


def _assigned(group: Group, member: ClassicMember) -> Partitions:
    """The partitions that `member` was assigned. Raises InconsistentGroupProtocol where that, or what it
    subscribes to, cannot be read.
    """
    classic = group.classic
    assigned = assigned_partitions(member.assignment)
    if subscribed_topics(_said(group, member)) is None or assigned is None:
        raise _irreplaceable(classic, classic.protocol)
    return _there(group, assigned)


def _said(group: Group, member: ClassicMember) -> bytes:
    return member.metadata(group.classic.protocol) or member.protocols[0][1]


def _there(group: Group, partitions: Partitions) -> Partitions:
    named = (at for at in partitions if at.topic in group.topics)
    return frozenset(at for at in named if 0 <= at.partition < group.topics[at.topic].partitions)


def _as_ours(
    group: Group, member: ClassicMember, assigned: Partitions, given: Partitions, now_ms: float
) -> Member:
    """One that joined with partitions which it is assigned no longer may hold them until it joins again. All
    are as if they were heard of now: those that wait for an answer have been silent.
    """
    said = _said(group, member)
    revoking = _there(group, held_partitions(said)) - given
    known = group.classic.generation if member.generation is None else member.generation
    return Member(
        member.id,
        classic_config(member.session_timeout_ms, member.rebalance_timeout_ms),
        now_ms,
        now_ms,
        subscribed_topics(said) or frozenset(),
        owned=assigned | revoking,
        epoch=known,
        previous_epoch=known,
        context=member.context,
        revoking=revoking,
        asked_ms=now_ms if revoking else None,
        kafka=KafkaClient(
            member.client_id, member.client_host, member.instance_id, protocols=member.protocols
        ),
    )


def classic_config(session_timeout_ms: int, rebalance_timeout_ms: int) -> MemberConfig:
    """The terms of a member that speaks the classic protocol."""
    return MemberConfig(
        auto_offset_reset="earliest",
        auto_commit=False,
        session_timeout_ms=session_timeout_ms,
        max_poll_interval_ms=rebalance_timeout_ms,
    )


def downgraded(group: Group, now_ms: float) -> tuple[Group, Records]:
    """`group` as a classic one, if its members all speak that protocol. They rebalance: there are partitions
    to take over.
    """
    if not group.members or not all(member.is_classic for member in group.members.values()):
        return group, []
    members = {member.id: _as_classic(member) for member in group.members.values()}
    generation = group.generation + 1
    classic = ClassicGroup(
        generation=generation,
        newest=generation,
        state=ClassicState.STABLE,
        protocol_type=CONSUMER,
        leader=next(iter(members)),
        members=members,
    )
    classic = replace(classic, protocol=classic.selected_protocol())
    work = Rebalance(group.id, replace(classic, stored=value_of(classic)), now_ms, ClassicLimits())
    work.rebalance("the last member of the protocol consumer has left")
    after = replace(group, generation=generation, members={}, target={}, due_ms=None, classic=work.group)
    gone: Records = [(MemberKey(group.id, name), None) for name in members]
    return after, [*gone, (ClassicKey(group.id), value_of(classic))]


def _as_classic(member: Member) -> ClassicMember:
    assert member.kafka is not None
    return ClassicMember(
        id=member.id,
        instance_id=member.kafka.instance_id,
        client_id=member.kafka.client_id,
        client_host=member.kafka.host,
        session_timeout_ms=member.config.session_timeout_ms,
        rebalance_timeout_ms=member.config.max_poll_interval_ms,
        protocols=member.kafka.protocols,
        seen_ms=member.seen_ms,
        assignment=encode_assignment(member.owned),
        generation=member.epoch,
        context=member.context,
    )
