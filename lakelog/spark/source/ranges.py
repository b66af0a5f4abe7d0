"""Ranges of offsets: how much a trigger reads of each partition, and how a batch is split into tasks."""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from log_tables.topic_partition import TopicIdPartition, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets start ≤ offset < end of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def share_out(
    limit: int, begins: Mapping[TopicIdPartition, int], ends: Mapping[TopicIdPartition, int]
) -> dict[TopicIdPartition, int]:
    """New ends, so that about `limit` offsets are read, of each partition in proportion to its backlog.

    A partition with a backlog gets at least one offset, as with Spark's Kafka source: where there are more
    such partitions than `limit`, more than `limit` are read.
    """
    backlog = {
        partition: end - begins[partition] for partition, end in ends.items() if end > begins[partition]
    }
    total = sum(backlog.values())
    if total <= limit:
        return dict(ends)
    # Whole numbers, since a float of a large backlog would lose offsets.
    return {
        partition: begins[partition] + max(1, limit * backlog[partition] // total)
        if partition in backlog
        else end
        for partition, end in ends.items()
    }


def split(ranges: Sequence[OffsetRange], min_parts: int | None, max_records: int | None) -> list[OffsetRange]:
    """The ranges, in order, cut into parts of at most `max_records` offsets and at least `min_parts` parts.

    Empty ranges are left out. The longest parts are cut first, each range into parts of even length.
    """
    filled = [part for part in ranges if part.size > 0]
    counts = [1 if max_records is None else math.ceil(part.size / max_records) for part in filled]
    _raise_counts(filled, counts, min_parts or 0)
    return [piece for part, count in zip(filled, counts, strict=True) for piece in _even_pieces(part, count)]


def _raise_counts(ranges: Sequence[OffsetRange], counts: list[int], min_parts: int) -> None:
    longest = [
        (-part.size / count, index) for index, (part, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(longest)
    missing = min(min_parts, sum(part.size for part in ranges)) - sum(counts)
    for _ in range(missing):
        _, index = longest[0]
        counts[index] += 1
        heapq.heapreplace(longest, (-ranges[index].size / counts[index], index))


def _even_pieces(part: OffsetRange, count: int) -> list[OffsetRange]:
    borders = [part.start + part.size * number // count for number in range(count + 1)]
    return [replace(part, start=start, end=end) for start, end in pairwise(borders)]
