"""Who has written which offsets, until it is told: for each author and topic the ranges of each partition.

Offsets of one partition come in their order. So what an author writes one after the other is one range,
however many commits it takes, and it ends where another author goes on. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from log_tables.partition.partition import Author, SequencedAppend


@dataclass(slots=True)
class Written:
    """The records of one author in a topic between two times (ms): by partition, ranges of offsets as
    [first, last], in their order.
    """

    first_ms: int
    last_ms: int = 0
    records: int = 0
    ranges: int = 0
    partitions: dict[int, list[list[int]]] = field(default_factory=dict)

    def add(self, partition: int, first: int, count: int) -> int:
        """Add offsets after all that it has of this partition. Returns how many ranges are new: 0 or 1."""
        self.records += count
        found = self.partitions.setdefault(partition, [])
        if found and found[-1][1] + 1 == first:
            found[-1][1] += count
            return 0
        found.append([first, first + count - 1])
        self.ranges += 1
        return 1

    def split(self, most: int) -> "list[Written]":
        """It as parts of at most so many ranges each."""
        if self.ranges <= most:
            return [self]
        parts: list[Written] = []
        for partition, ranges in self.partitions.items():
            for first, last in ranges:
                if not parts or parts[-1].ranges >= most:
                    parts.append(Written(self.first_ms, self.last_ms))
                parts[-1].add(partition, first, last - first + 1)
        return parts


TopicName = tuple[str, str]
"""The name and the id of a topic."""


class WriteRanges:
    """The ranges that wait to be told. Not thread-safe."""

    def __init__(self, ranges_max: int) -> None:
        """At most so many ranges wait."""
        self._ranges_max = ranges_max
        self._written: dict[tuple[Author, TopicName], Written] = {}
        self.ranges = 0
        """How many wait."""

    def note(self, topic: TopicName, partition: int, appends: Sequence[SequencedAppend], now_ms: int) -> int:
        """Note the authors of appends that are durable, in the order of their offsets. Returns how many
        ranges are left out for want of room.
        """
        lost = 0
        for item in appends:
            author, first = item.request.author, item.base_offset
            if item.duplicate or author is None or first is None:
                continue
            written = self._written.get((author, topic))
            if self.ranges >= self._ranges_max and not _goes_on(written, partition, first):
                lost += 1
                continue
            if written is None:
                written = self._written[author, topic] = Written(now_ms)
            written.last_ms = now_ms
            self.ranges += written.add(partition, first, item.count)
        return lost

    def take(self) -> list[tuple[Author, TopicName, Written]]:
        """All that wait; they wait no longer."""
        taken, self._written, self.ranges = self._written, {}, 0
        return [(author, topic, written) for (author, topic), written in taken.items()]


def _goes_on(written: Written | None, partition: int, first: int) -> bool:
    """Whether `first` is the next offset after a range of `written`."""
    ranges = [] if written is None else written.partitions.get(partition, [])
    return bool(ranges) and ranges[-1][1] + 1 == first
