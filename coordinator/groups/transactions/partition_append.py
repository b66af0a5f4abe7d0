"""The records of one transaction for one partition, as a value: which are durable, and where."""

from dataclasses import dataclass, replace

from log_tables.cluster.group_log import AppendedRange, Intent
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.topic_partition import TopicIdPartition


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
