"""The commands, events and reports of an append queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.groups.transactions.partition_append import PartitionAppend
from ingest.writer import AppendOutcome
from log_tables.errors import CorruptSegment, TransactionLost
from log_tables.table.txns import ProducerState

Loss = CorruptSegment | TransactionLost
"""Why records of a committed transaction cannot be appended as things stand."""


# Commands. A queue has one of them done at a time.


@dataclass(frozen=True, slots=True)
class Append:
    """Append the next records: some of the first append's, and maybe of those behind it. With `refresh` the
    topics are read first. The outcome is Answered, FileLost, TopicGone or AppendFailed.
    """

    refresh: bool = False


@dataclass(frozen=True, slots=True)
class FetchProducer:
    """Look up a producer in the partition's table. The outcome is ProducerSeen, TopicGone or AppendFailed."""

    producer_id: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `seconds` pass. The outcome is Tick."""

    seconds: float


Command = Append | FetchProducer | Wait


# Events.


@dataclass(frozen=True, slots=True)
class Queued:
    """A transaction is committed, and has records for the partition."""

    append: PartitionAppend


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcomes of the requests of an append, in order: each of records of one transaction."""

    outcomes: Sequence[AppendOutcome]


@dataclass(frozen=True, slots=True)
class FileLost:
    """The next records cannot be read: their staged file is missing or damaged."""

    error: CorruptSegment


@dataclass(frozen=True, slots=True)
class TopicGone:
    """The topic is deleted; another one may have its name."""


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """The `state` of the first append's producer in the partition's table, None if that knows none.

    `newest_epoch` is the newest epoch with which the group has used the producer.
    """

    state: ProducerState | None
    newest_epoch: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """A command failed, and may succeed when it is repeated."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The wait is over."""


@dataclass(frozen=True, slots=True)
class LossGivenUp:
    """A client deletes the group by force: lost records are given up from here on, until an attempt finds
    none.
    """


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Another process has to append what is left."""


Event = (
    Queued
    | Answered
    | FileLost
    | TopicGone
    | ProducerSeen
    | AppendFailed
    | Tick
    | LossGivenUp
    | LeadershipLost
)


# Reports. Clients and metrics hear them.


@dataclass(frozen=True, slots=True)
class Finished:
    """An append has ended: it is whole, or `dropped` says why its other records will never be there."""

    append: PartitionAppend
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class LossNoted:
    """The first append of the queue cannot go on, and those behind it wait for it; None: they go on."""

    loss: Loss | None


@dataclass(frozen=True, slots=True)
class Left:
    """An append is left to another process."""

    append: PartitionAppend


Report = Finished | LossNoted | Left
