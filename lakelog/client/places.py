"""How far a consumer is in each partition: received from the gateway, handed to the program, done with."""

from collections.abc import Iterable

import pyarrow as pa

from lakelog.client.client import OffsetsOf
from log_tables.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class Places:
    """All offsets are those of the next record. Partitions of which nothing came yet are left out."""

    def __init__(self) -> None:
        self.received: Offsets = {}
        self.finished: Offsets = {}
        self.lost: set[TopicPartition] = set()
        """Partitions that went to others with records that were handed out here and not committed."""
        self._handed: Offsets = {}
        self._begun: Offsets = {}

    @property
    def positions(self) -> Offsets:
        """What the program gets next."""
        return self.finished | self._handed

    def receive(self, table: pa.Table) -> None:
        """The gateway has given these records: each batch is of one partition."""
        for batch in table.to_batches():
            first = {name: batch.column(name)[0].as_py() for name in ("topic", "partition", "offset")}
            self._begun.setdefault(TopicPartition(first["topic"], first["partition"]), first["offset"])
            last = {name: batch.column(name)[-1].as_py() for name in ("topic", "partition", "offset")}
            self.received[TopicPartition(last["topic"], last["partition"])] = last["offset"] + 1

    def hand(self, offsets: Offsets) -> None:
        """The program gets what is before these, and has done with all that it got before."""
        self.finished |= self._handed
        self._handed = offsets

    def finish(self, offsets: Offsets) -> None:
        """The program has done with what is before these, as far as it got it."""
        positions = self.positions
        for at in offsets.keys() & positions.keys():
            done = min(offsets[at], positions[at])
            self.finished[at] = max(done, self.finished.get(at, done))
            self._begun[at] = done
        self.lost.clear()

    def rewind(self, finished: bool = False) -> bool:
        """Receive again what was not handed out, or is not finished; says whether there is any of that."""
        before, self.received = self.received, dict(self.finished) if finished else self.positions
        return self.received != before

    def move(self, at: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._handed.pop(at, None)
        self.received[at] = self.finished[at] = self._begun[at] = offset

    def restart(self) -> None:
        """Receive again all that was handed out and is not committed."""
        self.received, self.finished, self._handed = dict(self._begun), dict(self._begun), {}
        self.lost.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are another's."""
        for at in partitions:
            if self.positions.get(at, 0) > self._begun.get(at, 0):
                self.lost.add(at)
            for places in (self.received, self.finished, self._handed, self._begun):
                places.pop(at, None)


def places(offsets: OffsetsOf) -> Offsets:
    """The same by TopicPartition, from any pairs."""
    return {TopicPartition(*at): offset for at, offset in offsets.items()}
