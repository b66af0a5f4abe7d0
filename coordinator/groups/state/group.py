"""A consumer group and its members, as values: subscriptions, ownership, committed offsets."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from coordinator.groups.classic.consumer_protocol import CONSUMER, assigned_partitions
from coordinator.groups.events import TopicState
from coordinator.groups.state.member import NOTHING, GroupMember, Member, Partitions
from coordinator.groups.state.transaction_state import TransactionState
from coordinator.groups.topic_filter import Follower, Matches, TopicFilter, resolved
from log_tables.cluster.group_log import Act, OffsetValue, PendingValue, deleted_name, is_hidden
from log_tables.cluster.topic import check_public
from log_tables.errors import (
    FencedInstanceId,
    GroupSubscribedToTopic,
    NotAssigned,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.topic_partition import TopicPartition


class GroupType(StrEnum):
    """The types of groups, by Kafka's names (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


ASSIGNMENT_INTERVAL_MS = "consumer.assignment.interval.ms"
HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
"""The settings of groups, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group. Immutable; `step` returns the next one.

    `committed_ms` is the time of its newest commit that still counts, in milliseconds since 1970. `principal`
    is whoever made it, `User:<name>`; empty where nobody was authenticated. `readable` says which topics
    members that subscribe by pattern may read; without it all. `members` are those whose partitions the
    coordinator assigns: instances of the HTTP API and Kafka clients. `classic` has those of Kafka's clients
    which assign them among themselves: there are only ones of one kind at a time. `configs` are its settings,
    by Kafka's names; it may have some before it exists.

    `target` is what each member is to own. It was computed at `aimed_ms` of the caller's clock, and is to be
    computed anew at `due_ms`, after `changes` of what it depends on; `default_interval_ms` is the least time
    between the two where the group has no setting. `matches` are the topics of those that subscribe by
    pattern: which they match and may read.

    `unstable` are offsets that wait for the end of a transaction of a Kafka client, by transactional id.
    `acts` are those of operators on its offsets that can be undone, the newest first: it may have some when
    it does not exist any longer.

    `kept` are the offsets in deleted topics that may come back, whose ids are `held`. They are the group's
    again as soon as a topic has that id, and nobody sees them before; their topic is `held_place`.
    """

    id: str
    generation: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, OffsetValue] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    target: Mapping[str, Partitions] = field(default_factory=dict)
    idle_ms: int = 0
    committed_ms: int = field(default=0, compare=False)  # it follows from the offsets
    transactions: TransactionState = field(default_factory=TransactionState)
    principal: str = ""
    readable: TopicFilter | None = field(default=None, compare=False)  # it follows from the ACLs
    classic: ClassicGroup = field(default_factory=ClassicGroup)
    configs: Mapping[str, str] = field(default_factory=dict)
    aimed_ms: float = -math.inf
    aimed_generation: int = 0
    due_ms: float | None = None
    changes: int = 0
    default_interval_ms: int = field(default=0, compare=False)
    matches: Matches = field(default_factory=dict, compare=False)  # it follows from the topics and the ACLs
    unstable: Mapping[str, PendingValue] = field(default_factory=dict)
    acts: tuple[Act, ...] = ()
    kept: Mapping[TopicPartition, OffsetValue] = field(default_factory=dict)
    held: frozenset[str] = field(default=frozenset(), compare=False)  # it follows from the metadata log

    def member(self, member_id: str) -> Member:
        """Raises UnknownMember."""
        found = self.members.get(member_id)
        if found is None or found.kafka is not None:
            raise UnknownMember(
                f"the group {self.id!r} has no consumer instance {member_id!r}: it was deleted, or silent "
                "for longer than its session timeout; create it again"
            )
        return found

    def static_member(self, instance_id: str) -> Member | None:
        """The Kafka client with this group instance id."""
        found = (m for m in self.members.values() if m.kafka is not None)
        return next((m for m in found if m.instance_id == instance_id), None)

    def kafka_member(self, member_id: str, instance_id: str | None) -> Member:
        """A Kafka client. Raises UnknownMember; FencedInstanceId if another has the group instance id."""
        found = self.members.get(member_id)
        if instance_id is not None:
            static = self.static_member(instance_id)
            if static is not None and static.id != member_id:
                raise FencedInstanceId(
                    f"another member has joined with group.instance.id {instance_id[:100]!r} since; give "
                    "each client one of its own"
                )
            found = static
        if found is None or found.kafka is None:
            raise UnknownMember(
                f"the group {self.id!r} has no member {member_id[:100]!r}: it left, or was silent for longer "
                "than its session timeout; join again"
            )
        return found

    def free(self, wanted: Partitions, by: str) -> Partitions:
        """The partitions among `wanted` that no member but `by` owns."""
        if not wanted:
            return NOTHING
        others = (m for m in self.members.values() if m.id != by and not m.assigned and m.owned)
        return wanted.difference(*(m.owned for m in others))

    def with_member(self, member: Member) -> "Group":
        """A copy of the group in which `member` has its place, or takes it."""
        return replace(self, members={**self.members, member.id: member})

    @property
    def empty(self) -> bool:
        """Whether no member is subscribed, and no Kafka client is one, which may hold partitions that it is
        to let go of: then clients outside it may set the offsets.
        """
        return not self.has_kafka_clients and not any(member.subscribed for member in self.members.values())

    @property
    def is_hidden(self) -> bool:
        """Whether it is no client's."""
        return is_hidden(self.id)

    @property
    def exists(self) -> bool:
        """Whether it has any record: members, offsets, a generation or transactions."""
        known = self.members or self.offsets or self.generation or self.transactions.number or self.unstable
        return bool(known) or self.classic.exists

    @property
    def is_only_kept(self) -> bool:
        """Whether it is there for an undo alone."""
        return bool(self.acts) and not self.exists and not self.configs

    @property
    def unstable_partitions(self) -> Partitions:
        """The partitions whose offsets wait for the end of a transaction."""
        return frozenset(self.pending_orders()) if self.unstable else NOTHING

    def pending_orders(self) -> dict[TopicPartition, int]:
        """The `order` of the newest offset of each partition that waits for the end of a transaction."""
        found: dict[TopicPartition, int] = {}
        for pending in self.unstable.values():
            for topic, partition, value in pending.offsets:
                at = TopicPartition(topic, partition)
                found[at] = max(found.get(at, 0), value.order)
        return found

    @property
    def idle(self) -> bool:
        """Whether it may be deleted in time: it has no members, and had no transactions. A group with
        transactions stays, so that a late repeat of the last one is not done again.
        """
        active = self.members or self.classic.active or self.transactions.number or self.unstable
        return self.exists and not active

    @property
    def touched_ms(self) -> int:
        """The last sign of life of a group that is idle, in milliseconds since 1970."""
        return max(self.idle_ms, self.committed_ms)

    @property
    def is_stable(self) -> bool:
        """Whether every member owns the partitions that it should, and that is known."""
        if self.due_ms is not None:
            return False
        sharing = (m for m in self.members.values() if not m.assigned and not m.dormant)
        return all(member.owned == self.target.get(member.id, NOTHING) for member in sharing)

    @property
    def state(self) -> ClassicState:
        """Its state, by Kafka's names."""
        if self.members:
            return ClassicState.STABLE if self.is_stable else ClassicState.PREPARING_REBALANCE
        return self.classic.state if self.exists else ClassicState.DEAD

    @property
    def has_kafka_clients(self) -> bool:
        """Whether it has members that would not hear of offsets that others set."""
        return self.classic.active or any(m.kafka is not None for m in self.members.values())

    @property
    def consumer_state(self) -> str:
        """Its state by the names of KIP-848, where the coordinator assigns its partitions."""
        if not self.members:
            return "Empty"
        if self.due_ms is not None:
            return "Assigning"
        return "Stable" if self.is_stable else "Reconciling"

    @property
    def assignment_epoch(self) -> int:
        """The generation of its target (KIP-848): less than its own while another target is due."""
        if self.due_ms is None:
            return self.generation
        return max(0, min(self.aimed_generation, self.generation - 1))

    @property
    def assignment_interval_ms(self) -> int:
        """The least time from one target to the next."""
        return int(self.configs.get(ASSIGNMENT_INTERVAL_MS, self.default_interval_ms))

    @property
    def protocol_type(self) -> str:
        """The kind of its clients, by Kafka's names: `consumer`, or another; empty if it never had any."""
        return self.classic.protocol_type if self.classic.exists else CONSUMER if self.generation else ""

    @property
    def type(self) -> GroupType:
        """Its type (KIP-848): one that nothing was ever assigned in is a classic one, as in Kafka."""
        is_ours = self.members or (self.generation and not self.classic.exists)
        return GroupType.CONSUMER if is_ours else GroupType.CLASSIC

    @property
    def group_members(self) -> list[GroupMember]:
        """Its members of either kind, by their ids."""
        found = [
            GroupMember(m.id, m.instance_id, m.client.client_id, m.client.host, m.owned, m.context)
            for m in self.members.values()
        ]
        consumers = self.classic.protocol_type == CONSUMER
        found += [
            GroupMember(
                m.id,
                m.instance_id,
                m.client_id,
                m.client_host,
                assigned_partitions(m.assignment) if consumers else None,
                m.context,
            )
            for m in self.classic.members.values()
        ]
        return sorted(found, key=lambda member: member.id)

    @property
    def size(self) -> int:
        """How many members of either kind it has."""
        return len(self.members) + len(self.classic.members)

    @property
    def newest_generation(self) -> int:
        """Its generation, as its members know it; 0 if there never were any."""
        return self.classic.generation if self.classic.members or not self.generation else self.generation

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The member that owns each partition, as far as that is known."""
        return {at: member.id for member in self.group_members for at in member.owned or ()}

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its members subscribe to; None where that is not known."""
        if self.classic.members:
            return self.classic.subscribed_topics
        return frozenset().union(*(self.subscription(member) for member in self.members.values()))

    @property
    def assignor(self) -> str:
        """How its members share partitions: our strategy, or the protocol of Kafka's clients."""
        return self.classic.protocol if self.classic.members or not self.generation else self.strategy

    @property
    def strategy(self) -> str:
        """The assignment strategy: the one that most members ask for, else sticky."""
        asked = Counter(m.config.strategy for m in self.members.values() if m.config.strategy)
        return max(sorted(asked), key=lambda name: asked[name], default="sticky")

    @property
    def deadline_ms(self) -> float | None:
        """When the next Tick is due."""
        return min((member.deadline_ms for member in self.members.values()), default=None)

    def group_member(self, member_id: str) -> GroupMember:
        """A member of either kind. Raises UnknownMember."""
        found = next((member for member in self.group_members if member.id == member_id), None)
        if found is None:
            raise UnknownMember(f"the group {self.id!r} has no member {member_id!r}; list its members")
        return found

    def to_revoke(self, member: Member) -> Partitions:
        """The partitions that `member` owns and should give up."""
        return member.owned - self.target.get(member.id, NOTHING) if member.subscribed else NOTHING

    def subscription(self, member: Member) -> frozenset[str]:
        """The topics that `member` subscribes to: those that it names, and those that its pattern matches and
        that it may read now.
        """
        if not member.pattern:
            return member.topics
        found = self.matches.get((member.pattern, member.context))
        if found is None:  # nobody has looked yet since the group was restored
            found = frozenset(at.topic for at in member.owned)
        return member.topics | found if member.topics else found

    @property
    def followers(self) -> set[Follower]:
        """Its members' expressions, with who subscribes by them."""
        return {(m.pattern, m.context) for m in self.members.values() if m.pattern}

    @property
    def is_resolved(self) -> bool:
        """Whether it is known which topics its members subscribe to."""
        return self.followers <= self.matches.keys()

    def resolving(self, member: Member) -> "Group":
        """The group, which knows the topics that the member's expression matches: that takes some ms, if
        nobody has looked before.
        """
        if not member.pattern or (member.pattern, member.context) in self.matches:
            return self
        found = resolved(
            [(member.pattern, member.context)], self.topics, self.readable, self.matches.values()
        )
        return replace(self, matches={**self.matches, **found})

    def following(self, matches: Matches | None) -> "Group":
        """The group with the topics that its members' expressions match, as far as these are known: others
        are as before. None: all are looked at.
        """
        followers = self.followers
        if matches is None:
            matches = resolved(followers, self.topics, self.readable)
        found = {each: names for each, names in self.matches.items() if each in followers}
        same = len(found) == len(self.matches)
        for each in followers & matches.keys():
            if found.get(each) != matches[each]:
                found[each], same = matches[each], False
        return self if same else replace(self, matches=found)

    def chosen(self, member: Member) -> frozenset[str]:
        """The topics of the partitions that `member` may be given, or has assigned itself."""
        return frozenset(at.topic for at in member.owned) if member.assigned else self.subscription(member)

    def starting(self, member: Member) -> frozenset[str]:
        """The topics of `member` whose log ends are still to be noted as its start.

        In all others it begins where the group has committed, else at the log start.
        """
        if not member.latest or (member.starting is not None and not member.starting):
            return frozenset()
        chosen = self.chosen(member) & self.topics.keys()
        return chosen if member.starting is None else chosen & member.starting

    def started(self, members: Iterable[Member]) -> frozenset[str]:
        """The topics in which the group has its start by the subscriptions of `members`."""
        return frozenset().union(*(self.subscription(m) - self.starting(m) for m in members if m.subscribed))

    def unplaced(self, member: Member, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of `topics` that `member` may be given and in which nothing says where it begins."""
        named = [name for name in sorted(topics) if name in self.topics]
        found = (TopicPartition(name, p) for name in named for p in range(self.topics[name].partitions))
        return [at for at in found if self.is_unplaced(member, at)]

    def is_unplaced(self, member: Member, at: TopicPartition) -> bool:
        """Whether there is `at`, `member` may be given it if it has the topic, and nothing says where it
        begins there.
        """
        if member.assigned and (at not in member.owned or at in member.positions):
            return False
        topic = self.topics.get(at.topic)
        return topic is not None and at.partition < topic.partitions and self.committed(at) is None

    def check_owned(self, member: Member, partitions: Iterable[TopicPartition]) -> None:
        """Raise NotAssigned for the first of `partitions` that `member` does not own."""
        for at in partitions:
            if at not in member.owned:
                raise NotAssigned(
                    f"the consumer instance {member.id!r} does not own partition {at.partition} of topic "
                    f"{at.topic!r} (now); poll, and go by the assignment"
                )

    def check_not_subscribed(self, topic: str) -> None:
        """Raise GroupSubscribedToTopic while members are subscribed to `topic`, or may be."""
        topics = self.subscribed_topics
        if topics is None or topic in topics:
            raise GroupSubscribedToTopic(
                f"members of the group {self.id!r} are subscribed to {topic!r}; stop them first"
            )

    def committed(self, at: TopicPartition) -> OffsetValue | None:
        """The offset committed for a partition of the topic as it is now."""
        found, topic = self.offsets.get(at), self.topics.get(at.topic)
        return found if found and topic and found.topic_id == topic.topic_id else None

    def check(self, at: TopicPartition) -> TopicState:
        """The state of the topic of `at`. Raises InvalidTopicName, UnknownTopic, UnknownPartition."""
        check_public(at.topic)
        topic = self.topics.get(at.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {at.topic!r}; check its name, or create it")
        if not 0 <= at.partition < topic.partitions:
            raise UnknownPartition(
                f"topic {at.topic} has no partition {at.partition}; it has 0 to {topic.partitions - 1}"
            )
        return topic


def held_place(topic_id: str, partition: int) -> TopicPartition:
    """Where the offset of a deleted topic is kept: at the name of no topic."""
    return TopicPartition(deleted_name(topic_id), partition)


def newest_commit_ms(offsets: Mapping[TopicPartition, OffsetValue]) -> int:
    """The time of the newest of `offsets`, in milliseconds since 1970; 0 if there are none."""
    return max((committed.committed_ms for committed in offsets.values()), default=0)
