"""The requests of Kafka's clients to a classic group, and the answers. Times in milliseconds.

A request that may be held has a number, by which its answer is found. The `context` of an event is that of
the request it comes from; None where nobody is authenticated.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.access.principal import RequestContext
from coordinator.groups.events import OffsetAndMetadata
from log_tables.cluster.group_log import OffsetValue
from log_tables.errors import LakelogError
from log_tables.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member joins, or joins again. `member_id` is empty for a new one, which becomes `new_member_id`.

    `protocols` are names with metadata, the best first. With `requires_known_member_id` a new member must
    come again with its id (KIP-394). `skips_assignment`: a leader may be told to assign nothing (KIP-814). A
    negative rebalance timeout stands for the session timeout.
    """

    request: int = 0
    new_member_id: str
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    requires_known_member_id: bool = True
    skips_assignment: bool = False
    reason: str = ""
    context: RequestContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings those of all. None: it names no protocol."""

    request: int = 0
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """A member is alive."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeftMember:
    """A member that leaves; without a member id, an administrator removes it by its group instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Members leave."""

    members: tuple[LeftMember, ...]
    request: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Offsets are committed by a member, or (with generation −1) by a client of a group without members. A
    negative offset is none: what was committed is forgotten.

    `at_ms`: milliseconds since 1970. `checked`: the rest of a commit, whose member and generation were looked
    at with its first offsets. `every`: all partitions of one that an operator makes, which can be undone.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    at_ms: int
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    context: RequestContext | None = None
    checked: bool = False
    every: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class PendOffsets:
    """The offsets of `commit` are to be committed with transaction `number` of the transactional id `id`, by
    the producer `producer_id`.

    Those that it had for the transaction before stay. `waiting` are those that may wait, once that is known.
    """

    id: str
    producer_id: int
    number: int
    commit: CommitOffsets
    waiting: tuple[tuple[str, int, OffsetValue], ...] = ()


@dataclass(frozen=True, slots=True)
class EndPending:
    """Transaction `number` of the transactional id `id` has ended: its offsets are committed, or forgotten.
    `at_ms`: milliseconds since 1970. `start`: the place of the first of the OFFSETS_AT_ONCE that are now.
    """

    id: str
    number: int
    committed: bool
    at_ms: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Committed offsets are deleted, of topics that no member is subscribed to. `checked`: that was looked at
    with the first of them. `every` are those of all of it, at `at_ms` since 1970: they can be had again.
    """

    partitions: frozenset[TopicPartition]
    checked: bool = False
    at_ms: int = 0
    every: frozenset[TopicPartition] = frozenset()
    context: RequestContext | None = None


@dataclass(frozen=True, slots=True)
class ClassicTick:
    """Time has passed."""


MembershipEvent = JoinGroup | SyncGroup | GroupHeartbeat | LeaveGroup | ClassicTick
ClassicEvent = MembershipEvent | CommitOffsets | PendOffsets | EndPending | DeleteOffsets


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as the leader hears of it: `metadata` is that of the group's protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The generation that a member is in. `members` are empty for all but the leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The assignment of a member."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """Why each of the members could not leave; None: it has left."""

    errors: tuple[LakelogError | None, ...]


Answer = JoinAnswer | SyncAnswer | LeaveAnswer | LakelogError
Answers = list[tuple[int, Answer]]
"""By the number of the request."""
