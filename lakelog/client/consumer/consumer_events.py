"""The events of a consumer: answers of its gateway, acts of its program. Offsets are of the next records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from log_tables.topic_partition import TopicPartition

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
