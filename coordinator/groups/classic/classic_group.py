"""A classic group and its members, as values; as its record, and restored from it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.consumer_protocol import CONSUMER, subscribed_topics
from coordinator.groups.classic.events import JoinedMember
from log_tables.cluster.group_log import ClassicMemberValue, ClassicValue
from log_tables.errors import FencedInstanceId, UnknownMember
from log_tables.limits import NEW_MEMBER_JOIN_MS


class ClassicState(StrEnum):
    """The state of a group, by Kafka's names. A group that does not exist is Dead."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    """The bounds that the settings set. Times in milliseconds."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 1
    max_session_timeout_ms: int = 2**31 - 1
    max_size: int = 1_000
    assignment_interval_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member. Times in milliseconds of the caller's clock.

    `joining` and `syncing` are the numbers of its held requests. `synced` says whether it has asked for its
    assignment of this generation, `is_new` that it was in no generation yet, `is_named` that its client may
    know its id: before version 4 of JoinGroup the first answer has it. `generation` is the one that it
    knows, where that is not the group's: the coordinator assigned its partitions until the members rebalance.
    """

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    seen_ms: float
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    synced: bool = True
    is_new: bool = False
    is_named: bool = True
    generation: int | None = None
    context: RequestContext | None = None

    @property
    def deadline_ms(self) -> float | None:
        """When it is dead, unless it is heard of before. A member that waits for an answer is alive."""
        if self.is_new:
            return self.seen_ms + NEW_MEMBER_JOIN_MS
        if self.joining is not None or self.syncing is not None:
            return None
        return self.seen_ms + self.session_timeout_ms

    @property
    def size_bytes(self) -> int:
        """The size of all that it says of itself, and of its assignment."""
        names = len(self.id) + len(self.instance_id or "") + len(self.client_id)
        return names + sum(len(name) + len(data) for name, data in self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """The metadata that it sent for `protocol`; empty if it does not know that."""
        return dict(self.protocols).get(protocol, b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A classic group. Immutable; `step` returns the next one. Times in milliseconds of the caller's clock.

    `newest` is the newest generation that any member may know of, `stored` the newest record. `pending` are
    ids that were given to members which have not joined with them yet (KIP-394), with the time until when
    they are waited for. `initial` says that the rebalance is the first of an empty group: it lasts until
    `join_deadline_ms`, and goes on for up to `remaining_ms` while members come (`growing`). `reason` is why
    the newest rebalance began.
    """

    generation: int = 0
    newest: int = 0
    state: ClassicState = ClassicState.EMPTY
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending: Mapping[str, float] = field(default_factory=dict)
    join_deadline_ms: float | None = None
    sync_deadline_ms: float | None = None
    initial: bool = False
    growing: bool = False
    remaining_ms: float = 0
    reason: str = ""
    stored: ClassicValue | None = None

    @property
    def active(self) -> bool:
        """Whether it has members, or is waiting for some."""
        return bool(self.members or self.pending)

    @property
    def only_awaits(self) -> bool:
        """Whether nobody has joined with the ids that were given yet (KIP-394)."""
        return bool(self.pending) and not self.members

    @property
    def exists(self) -> bool:
        """Whether there is anything to remember."""
        return self.active or self.stored is not None

    @property
    def held(self) -> Iterator[int]:
        """The numbers of the requests that wait for an answer."""
        for member in self.members.values():
            if member.joining is not None:
                yield member.joining
            if member.syncing is not None:
                yield member.syncing

    @property
    def deadline_ms(self) -> float | None:
        """When the next tick is due."""
        times = [member.deadline_ms for member in self.members.values()]
        times += [self.join_deadline_ms, self.sync_deadline_ms, *self.pending.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long all members may take to join: the longest that any of them asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self.pending and all(m.joining is not None for m in self.members.values())

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its members consume; None if that is not known."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER:
            return None
        found = set[str]()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol) or member.protocols[0][1])
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def static_member(self, instance_id: str) -> ClassicMember | None:
        """The member with this group instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """A member. Raises UnknownMember; FencedInstanceId if another has the group instance id."""
        if instance_id is not None:
            found = self.static_member(instance_id)
            if found is None:
                raise _unknown(f"with group.instance.id {instance_id[:100]!r}")
            if found.id != member_id:
                raise FencedInstanceId(
                    f"another member has joined with group.instance.id {instance_id[:100]!r} since; give "
                    "each client one of its own"
                )
        if member_id not in self.members:
            raise _unknown(repr(member_id[:100]))
        return self.members[member_id]

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members, as the leader hears of them."""
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a member that offers `protocols` may join: one of them is known to all members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        known = Counter(name for m in self.members.values() for name in dict(m.protocols))
        return self.protocol_type == protocol_type and any(
            known[name] == len(self.members) for name, _ in protocols
        )

    def selected_protocol(self) -> str:
        """The protocol with most votes: each member votes for its first one that all members know."""
        known = Counter(name for m in self.members.values() for name in dict(m.protocols))
        votes = Counter(
            next(name for name, _ in member.protocols if known[name] == len(self.members))
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])


def _unknown(who: str) -> UnknownMember:
    return UnknownMember(
        f"the group has no member {who}: it left, or was silent for longer than its session timeout; join "
        "again"
    )


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
