"""Segment compaction: small segments become larger ones, with every record and its offset as they were."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile

from log_tables.config import TopicConfig
from log_tables.limits import LAST_MERGE_GROWTH, MERGE_GROWTH
from log_tables.snapshot import Segment


def runs(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> tuple[tuple[Segment, ...], ...]:
    """Which of a partition's `segments`, in order, to merge at `now_ms`: runs of two or more neighbours.

    Only what is older than merge.min.age.ms is merged, what was appended in the same window of segment.ms,
    and up to segment.bytes. A run waits until it is worth it (`MERGE_GROWTH`).
    """
    youngest = now_ms - config.merge_min_age_ms
    old = takewhile(lambda segment: segment.modification_time <= youngest, segments)
    chunks = [*_chunks(old, config.segment_ms, config.segment_bytes)]
    found: list[tuple[Segment, ...]] = []
    for following, chunk in enumerate(chunks, 1):
        growth = MERGE_GROWTH if following == len(chunks) else LAST_MERGE_GROWTH
        found.extend(_worthwhile(chunk, growth))
    return tuple(found)


def _chunks(segments: Iterable[Segment], window_ms: int, most_bytes: int) -> Iterator[tuple[Segment, ...]]:
    """What could become one segment each, from the left: as many neighbours as fit."""
    for _, window in groupby(segments, lambda segment: segment.modification_time // window_ms):
        chunk: list[Segment] = []
        room = most_bytes
        for segment in window:
            if chunk and segment.size > room:
                yield tuple(chunk)
                chunk, room = [], most_bytes
            chunk.append(segment)
            room -= segment.size
        yield tuple(chunk)


def _worthwhile(chunk: tuple[Segment, ...], growth: int) -> Iterator[tuple[Segment, ...]]:
    """The runs in `chunk`, in order, that have at least `growth` times the bytes of their largest segment.

    A segment that is too large for those beside it parts them.
    """
    waiting = [chunk]
    while waiting:
        run = waiting.pop()
        if len(run) < 2:
            continue
        sizes = [segment.size for segment in run]
        largest = max(sizes)
        if sum(sizes) >= growth * largest:
            yield run
        else:
            at = sizes.index(largest)
            waiting += (run[at + 1 :], run[:at])
