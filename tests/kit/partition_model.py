"""Who acts in the model of a partition: processes that have it open, and clients that repeat batches."""

from dataclasses import dataclass, field

from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp, SequencedAppend
from log_tables.rows import as_batch
from log_tables.testing import FaultyStore
from tests.kit.partitions import entry


@dataclass
class Process:
    """A process that has the partition open, and what it has sequenced and not committed."""

    partition: Partition
    store: FaultyStore
    pending: list[SequencedAppend] = field(default_factory=list)


@dataclass
class Client:
    """An idempotent producer: its batches by sequence, and the offsets that it was told."""

    number: int
    batches: list[tuple[int, list[bytes]]] = field(default_factory=list)
    told: dict[int, int | None] = field(default_factory=dict)

    def next_batch(self, values: list[bytes]) -> tuple[int, list[bytes]]:
        """The batch that is not acknowledged yet, else a new one of `values`."""
        if len(self.told) < len(self.batches):
            return self.batches[-1]
        last = self.batches[-1] if self.batches else (0, [])
        self.batches.append((last[0] + len(last[1]), values))
        return self.batches[-1]

    def entry(self, batch: tuple[int, list[bytes]]) -> AppendRequest:
        return entry(*batch[1], producer=ProducerStamp(self.number, 0, batch[0]))


def values_of(items: list[SequencedAppend]) -> list[bytes]:
    """The values that a commit of `items` adds to the log."""
    fresh = [as_batch(item.request.records) for item in items if not item.duplicate]
    batches = [batch.column("value").to_pylist() for batch in fresh]
    return [value for batch in batches for value in batch]
