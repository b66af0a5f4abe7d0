"""Which segments of a partition a merge takes: a pure function of its snapshot and its topic's settings.

`lakelog maintain` merges by it, and gateways count by it what waits for a merge.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, takewhile

from log_tables.cluster.config import TopicConfig
from log_tables.limits import LAST_MERGE_GROWTH, MERGE_GROWTH, REWRITTEN_FILES_MAX, YOUNG_SEGMENTS_MAX
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.task import batches


def merge_debt(snapshot: Snapshot, config: TopicConfig, now_ms: int) -> int:
    """How many live files of a partition go when all merges are done that are due at `now_ms`: its unmerged
    segments. A look at each segment, some microseconds, so it is not asked at each append.
    """
    found = merges(snapshot.segments, snapshot.cleaned, config, now_ms)
    return sum(len(run) - 1 for run in found)


def merges(
    segments: Sequence[Segment], cleaned: int, config: TopicConfig, now_ms: int
) -> tuple[tuple[Segment, ...], ...]:
    """The `runs` of `segments`, of which those below offset `cleaned` were compacted by key.

    These stay apart from new ones, or all would count as new.
    """
    border = next((at for at, item in enumerate(segments) if item.last_offset >= cleaned), len(segments))
    return (*runs(segments[:border], config, now_ms), *runs(segments[border:], config, now_ms))


def runs(
    segments: Sequence[Segment], config: TopicConfig, now_ms: int, files_max: int = REWRITTEN_FILES_MAX
) -> tuple[tuple[Segment, ...], ...]:
    """The runs of a partition's `segments` to merge at `now_ms`, each of two or more neighbours.

    The segments of a run, up to `files_max`, are older than merge.min.age.ms or have YOUNG_SEGMENTS_MAX newer
    ones, were appended in the same window of segment.ms, and have up to segment.bytes together. A run waits
    until it is worth a merge (`MERGE_GROWTH`).
    """
    youngest = now_ms - config.merge_min_age_ms
    crowded = segments[: max(0, len(segments) - YOUNG_SEGMENTS_MAX)]
    others = takewhile(lambda segment: segment.modification_time <= youngest, segments[len(crowded) :])
    old = chain(crowded, others)
    chunks = [*_chunks(old, config.segment_ms, config.segment_bytes)]
    found: list[tuple[Segment, ...]] = []
    for following, chunk in enumerate(chunks, 1):
        growth = MERGE_GROWTH if following == len(chunks) else LAST_MERGE_GROWTH
        for run in _worthwhile(chunk, growth):
            for part in _parts(run, files_max):
                found.extend(_worthwhile(part, growth))
    return tuple(found)


def _parts(run: tuple[Segment, ...], files_max: int) -> Iterator[tuple[Segment, ...]]:
    """`run` in as few parts as possible of up to `files_max` segments, of about as many each."""
    count = -(-len(run) // files_max)
    size = -(-len(run) // count)
    return (run[start : start + size] for start in range(0, len(run), size))


def _chunks(segments: Iterable[Segment], window_ms: int, most_bytes: int) -> Iterator[tuple[Segment, ...]]:
    """The groups that could become one segment each, from the left: as many neighbours as fit.

    They have one declaration of columns.
    """
    alike = groupby(
        segments, lambda segment: (segment.modification_time // window_ms, segment.declaration_id)
    )
    for _, window in alike:
        yield from batches(window, lambda segment: segment.size, most_bytes)


def _worthwhile(chunk: tuple[Segment, ...], growth: int) -> Iterator[tuple[Segment, ...]]:
    """The runs in `chunk`, in order, that have at least `growth` times the bytes of their largest segment.

    A segment that is too large for its neighbours parts them.
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
