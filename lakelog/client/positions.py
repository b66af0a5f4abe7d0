"""How far a consumer is in each partition: received, handed out, processed, committed."""

from collections.abc import Iterable

import pyarrow as pa

from lakelog.client.client import OffsetsOf
from log_tables.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class Positions:
    """Every offset is that of the next record. A partition of which no record has come yet is left out."""

    def __init__(self) -> None:
        self.received: Offsets = {}
        self.processed: Offsets = {}
        self.lost: set[TopicPartition] = set()
        """Partitions that went to others with records that were handed out here and not committed."""
        self._handed_out: Offsets = {}
        self._committed: Offsets = {}

    @property
    def next_offsets(self) -> Offsets:
        """The offsets of the records that the program gets next."""
        return self.processed | self._handed_out

    def receive(self, table: pa.Table) -> None:
        """Take records from the gateway; each batch is of one partition."""
        for batch in table.to_batches():
            first = {name: batch.column(name)[0].as_py() for name in ("topic", "partition", "offset")}
            self._committed.setdefault(TopicPartition(first["topic"], first["partition"]), first["offset"])
            last = {name: batch.column(name)[-1].as_py() for name in ("topic", "partition", "offset")}
            self.received[TopicPartition(last["topic"], last["partition"])] = last["offset"] + 1

    def hand_out(self, offsets: Offsets) -> None:
        """Give the program the records before these offsets; all that it got earlier is processed."""
        self.processed |= self._handed_out
        self._handed_out = offsets

    def commit(self, offsets: Offsets) -> None:
        """Note that the records before these offsets are committed, as far as they were handed out."""
        next_offsets = self.next_offsets
        for at in offsets.keys() & next_offsets.keys():
            done = min(offsets[at], next_offsets[at])
            self.processed[at] = max(done, self.processed.get(at, done))
            self._committed[at] = done
        self.lost.clear()

    def rewind(self, processed: bool = False) -> bool:
        """Receive again what was not handed out, or not processed. Returns whether there is any of it."""
        before, self.received = self.received, dict(self.processed) if processed else self.next_offsets
        return self.received != before

    def move(self, at: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._handed_out.pop(at, None)
        self.received[at] = self.processed[at] = self._committed[at] = offset

    def restart(self) -> None:
        """Receive again all that was handed out and not committed."""
        self.received, self.processed, self._handed_out = dict(self._committed), dict(self._committed), {}
        self.lost.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that another member owns."""
        for at in partitions:
            if self.next_offsets.get(at, 0) > self._committed.get(at, 0):
                self.lost.add(at)
            for offsets in (self.received, self.processed, self._handed_out, self._committed):
                offsets.pop(at, None)


def by_partition(offsets: OffsetsOf) -> Offsets:
    """`offsets` by TopicPartition; they may come by plain pairs."""
    return {TopicPartition(*at): offset for at, offset in offsets.items()}
