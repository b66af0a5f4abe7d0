"""The events of a consumer group. Times are those of the caller's clock.

The `context` of an event is that of the request it comes from; None where nobody is authenticated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.access.principal import RequestContext
from coordinator.groups.topic_filter import Matches, TopicFilter
from log_tables.cluster.group_log import AppendedRange, KafkaClient, MemberConfig
from log_tables.partition.partition import Author
from log_tables.segments.staging import StagedFile
from log_tables.topic_partition import TopicPartition


class TopicState(NamedTuple):
    """A topic as its group knows it: its incarnation, and how many partitions it has."""

    topic_id: str
    partitions: int

    def had(self, partition: int, before: "TopicState") -> bool:
        """Whether it had `partition` already when it was as `before`."""
        return self.topic_id == before.topic_id and partition < before.partitions


@dataclass(frozen=True, slots=True)
class Join:
    """A member joins; it has no subscription yet."""

    member_id: str
    config: MemberConfig
    context: RequestContext | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A member leaves in order."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A member subscribes to topics: those named, or those that a pattern matches and `context` may read."""

    member_id: str
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    context: RequestContext | None = None


class LogEnd(NamedTuple):
    """The offset that the next record of a partition gets, in the topic's incarnation `topic_id`."""

    topic_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Start:
    """A member at `latest` begins at these log ends, where nothing else says where; None: the end is not
    known.

    With it all ends of `topics` are noted, which are as they were when their ends were read. `at_ms`:
    milliseconds since 1970.
    """

    member_id: str
    ends: Mapping[TopicPartition, LogEnd | None]
    topics: Mapping[str, TopicState]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A member gives up its subscription, or the partitions that it assigned to itself."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Assign:
    """A member assigns partitions to itself, outside the group's assignment."""

    member_id: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Poll:
    """A member asks for records, and so has processed all that it was given before.

    `generation` is the newest that the member knows of; None if it does not follow generations. Here the
    member gives up the partitions that it should, once it can know of that.
    """

    member_id: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, that of the next record to read, and the member's note with it; and the leader
    epoch that a Kafka client knows of the record before (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Commit:
    """A member has processed the records below these offsets. `at_ms`: milliseconds since 1970.

    `checked`: the rest of a commit whose right was looked at with its first offsets.
    """

    member_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    at_ms: int
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Seek:
    """A member goes on from these offsets. `checked`: the rest of a seek whose right was looked at with its
    first offsets; it counts where the member still owns the partitions.
    """

    member_id: str
    positions: Mapping[TopicPartition, int]
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """A client outside the group sets its offsets; with `force` also while members are subscribed.
    `checked`: the rest of a reset whose right was looked at before. `every` are the partitions of all of it,
    whose offsets before can be had again; none of a program that reports its progress.

    A `mirror` sets only what nobody else has set in its topics, and where the group has the offsets `before`:
    none in partitions that it does not name.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    at_ms: int
    force: bool = False
    context: RequestContext | None = None
    checked: bool = False
    mirror: str = ""
    before: Mapping[TopicPartition, int] = field(default_factory=dict)
    every: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Undo:
    """The group gets the offsets again that it had before the newest `acts` of operators since `since_ms`.
    Times in milliseconds since 1970. `newest_ms` is that of the newest act, 0 for any: a repeat is to undo
    nothing else.
    """

    acts: int
    at_ms: int
    since_ms: int
    context: RequestContext | None = None
    newest_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """The staged records are to be appended, and these offsets are committed: both or nothing.

    `member_id` is None for a client outside the group. `generation` is the newest that the member knows, None
    if it knows none. `key` (empty: none) and `digest` identify a repeat; keys in `forget` need no longer be
    remembered. `producer_id` is a new one, for a group that needs one. `at_ms`: milliseconds since 1970.
    `author` is that of the staged records.
    """

    member_id: str | None = None
    generation: int | None = None
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    staged: tuple[StagedFile, ...]
    key: str = ""
    digest: str = ""
    forget: tuple[str, ...] = ()
    producer_id: int
    at_ms: int
    context: RequestContext | None = None
    author: Author | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The records of transaction `number` are `placed`. Those missing there had no topic any longer, or (with
    `lost`) were given up.
    """

    number: int
    placed: tuple[AppendedRange, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A Kafka client joins (`epoch` 0), is alive, leaves (LEAVES), or leaves for a while as a static member
    (LEAVES_FOR_A_WHILE; KIP-848). None, or a negative timeout: as it said before.

    `owned` are the partitions that it holds. `assignor` is empty where any will do. `pattern` is empty for
    none. Times in milliseconds.
    """

    member_id: str
    epoch: int
    client: KafkaClient
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None
    context: RequestContext | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says all of itself, as clients do that have lost an answer."""
        says = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms >= 0 and says and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a Kafka client: its epoch, when it is to come again, and the partitions that it may read,
    by the ids of their topics; None where they are those that it knows.
    """

    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None


LEAVES, LEAVES_FOR_A_WHILE = -1, -2
"""The epochs of members that leave."""


@dataclass(frozen=True, slots=True)
class Configure:
    """The group has these settings, by Kafka's names; None resets one."""

    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Delete:
    """The group is deleted; with `force` also while it has members.

    `at_ms`: milliseconds since 1970, of a deletion that can be undone; 0 of one by the passing of time.
    """

    force: bool = False
    at_ms: int = 0
    context: RequestContext | None = None


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """These are the topics now, by name, and who may read which; without a filter everybody may read all.

    `at_ms`: milliseconds since 1970. `matches` are those of expressions that somebody has looked at: members
    with others go on as before, until the next such event has theirs. None: all are looked at here. `held`
    are the ids of deleted topics that may come back.
    """

    topics: Mapping[str, TopicState]
    readable: TopicFilter | None = None
    at_ms: int = 0
    matches: Matches | None = None
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Aimed:
    """The target that was due at `due_ms` is computed, of the group after so many `changes`.

    It takes both to know the group again: one that is deleted and made anew counts from 0.
    """

    due_ms: float
    changes: int
    target: Mapping[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `at_ms`: milliseconds since 1970. A group without members that was last
    touched before `forget_before_ms` is deleted; 0: none is. Acts of operators before `acts_before_ms` can no
    longer be undone.
    """

    at_ms: int
    forget_before_ms: int = 0
    acts_before_ms: int = 0


MemberEvent = Leave | Heartbeat | Subscribe | Start | Unsubscribe | Assign | Poll | Commit | Seek
ChangeEvent = Configure | Reset | Undo | Transact | Applied | Delete | TopicsChanged | Aimed | Tick
Event = Join | MemberEvent | ConsumerHeartbeat | ChangeEvent
