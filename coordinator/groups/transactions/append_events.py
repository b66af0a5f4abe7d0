"""The appends of an append queue as values, and its commands, events and reports."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingest.writer import AppendOutcome
from log_tables.cluster.group_log import AppendedRange, Intent
from log_tables.errors import CorruptSegment, TransactionLost
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.table.txns import ProducerState
from log_tables.topic_partition import TopicIdPartition

Loss = CorruptSegment | TransactionLost
"""Why records of a committed transaction cannot be appended as things stand."""


@dataclass(frozen=True, slots=True)
class PartitionAppend:
    """The append of the records that transaction `number` has for a partition: `runs`, one after the other.

    The first `durable` records are in the log, at `placed`. It is `given_up` when the rest can never be
    there.
    """

    number: int
    intent: Intent
    runs: tuple[tuple[StagedFile, StagedRun], ...]
    durable: int = 0
    placed: tuple[AppendedRange, ...] = ()
    given_up: bool = False

    @property
    def records(self) -> int:
        """How many records there are in all."""
        return sum(run.records for _, run in self.runs)

    @property
    def whole(self) -> bool:
        """Whether all records are durable."""
        return self.durable == self.records

    def with_durable(self, count: int, base_offset: int | None) -> "PartitionAppend":
        """This append once the next `count` records are durable; `base_offset` is None if forgotten."""
        run = self.runs[0][1]
        placed, last = self.placed, self.placed[-1] if self.placed else None
        if last is not None and _follows(last, base_offset):
            joined = AppendedRange(run.topic, run.partition, last.count + count, last.base_offset)
            placed = (*placed[:-1], joined)
        else:
            placed = (*placed, AppendedRange(run.topic, run.partition, count, base_offset))
        return replace(self, durable=self.durable + count, placed=placed)


def _follows(last: AppendedRange, base_offset: int | None) -> bool:
    if last.base_offset is None or base_offset is None:
        return last.base_offset is base_offset
    return last.base_offset + last.count == base_offset


def appends_of(number: int, intent: Intent) -> dict[TopicIdPartition, PartitionAppend]:
    """The appends of a committed transaction, one for each partition, in the order of their first runs."""
    runs: dict[TopicIdPartition, list[tuple[StagedFile, StagedRun]]] = {}
    for staged in intent.staged:
        for run in staged.runs:
            at = TopicIdPartition(run.topic, run.topic_id, run.partition)
            runs.setdefault(at, []).append((staged, run))
    return {at: PartitionAppend(number, intent, tuple(listed)) for at, listed in runs.items()}


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
