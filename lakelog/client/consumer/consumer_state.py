"""A consumer as a value, and the events that change it.

The value says whether the consumer is a member, which partitions it owns, and its offsets in each. An event
is an answer of the gateway or an act of the program; its offsets are of the next records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from log_tables.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Choice:
    """The topics or partitions that a consumer reads: exactly one of the three is set."""

    topics: frozenset[str] = frozenset()
    pattern: str = ""
    partitions: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class Position:
    """How far it is in a partition. Each offset is that of the next record; None: there was none yet.

    `processed` ≤ `handed_out` ≤ `received`. `committed` is the last commit as it was sent; `restart` is where
    the program goes on if what it has since its last commit has not happened.
    """

    received: int | None = None
    handed_out: int | None = None
    processed: int | None = None
    committed: int | None = None
    restart: int | None = None


class Action(Enum):
    """A step on the way to records: one or more requests to the gateway."""

    JOIN = auto()
    REPORT = auto()
    REBALANCE = auto()
    POLL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A consumer. Immutable; `step` returns the next one.

    `generation` is that of the assignment that it goes by, `latest_generation` the newest that it heard of.
    `uncertain`: the gateway may be at other positions, because an answer of it was lost or the program wants
    others. `lost` are partitions that went to others with records that were handed out and not committed.
    """

    choice: Choice
    earliest: bool = False
    created: bool = False
    joined: bool = False
    generation: int = 0
    latest_generation: int = 0
    uncertain: bool = False
    owned: Partitions = frozenset()
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    lost: Partitions = frozenset()

    @property
    def next_action(self) -> Action:
        """The next step on the way to records. One that failed is begun again."""
        if not self.joined:
            return Action.JOIN
        if self.uncertain:
            return Action.REPORT
        return Action.POLL if self.assignment_is_current else Action.REBALANCE

    @property
    def assignment_is_current(self) -> bool:
        """Whether the last poll had nothing to say about the assignment."""
        return bool(self.choice.partitions) or self.latest_generation == self.generation

    @property
    def known_generation(self) -> int | None:
        """The generation that a poll names; None for partitions that are not shared."""
        return None if self.choice.partitions else self.generation

    @property
    def received(self) -> dict[TopicPartition, int]:
        """The offsets of the records to receive next."""
        return {at: p.received for at, p in self.positions.items() if p.received is not None}

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The offsets of the records to hand out next, of partitions that it owns."""
        listed = ((at, self.positions[at].handed_out) for at in self.positions.keys() & self.owned)
        return {at: offset for at, offset in listed if offset is not None}

    @property
    def to_commit(self) -> dict[TopicPartition, int]:
        """The offsets that are processed and not committed, of partitions that it owns."""
        listed = ((at, self.positions[at]) for at in self.positions.keys() & self.owned)
        return {at: p.processed for at, p in listed if p.processed is not None and p.processed != p.committed}

    @property
    def to_report(self) -> dict[TopicPartition, int]:
        """The positions that the gateway is told."""
        return {at: offset for at, offset in self.received.items() if at in self.owned}


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Created:
    """The gateway knows the member."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The gateway knows its subscription, or the partitions that it chose. It begins at `starts` where the
    group has committed nothing.
    """

    starts: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberLost:
    """The gateway does not know the member any longer."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """It owns these partitions, too, as of `generation`."""

    partitions: frozenset[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """It owns these partitions no longer."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Reported:
    """The gateway goes on from the positions that it was told."""


@dataclass(frozen=True, slots=True)
class PollSent:
    """It asks for records. Until the answer is here, the gateway may be further than the consumer."""


@dataclass(frozen=True, slots=True)
class Received:
    """The answer of a poll: for each partition the first offset and the next one, and the generation."""

    offsets: Mapping[TopicPartition, tuple[int, int]]
    generation: int


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The program has the records before these offsets."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Processed:
    """The program has processed all that it has."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The group has committed these."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Seek:
    """The program goes on from `offset`. It receives again all that it does not have yet."""

    at: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """The program wants again all that it does not have yet."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A transaction failed: all that was handed out since the last commit is received again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """It is about to leave: another member receives all that is not processed."""


@dataclass(frozen=True, slots=True)
class Left:
    """The gateway has deleted the member."""


Event = (
    Created
    | Joined
    | MemberLost
    | Assigned
    | Dropped
    | Reported
    | PollSent
    | Received
    | HandedOut
    | Processed
    | Committed
    | Seek
    | Rewind
    | Restart
    | Leave
    | Left
)
