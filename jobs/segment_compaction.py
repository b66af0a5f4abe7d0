"""Segment compaction: small segments become larger ones, with the same records and offsets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from jobs.engine import Engine, Failure, batches
from jobs.outcome import JobOutcome
from jobs.rewrite_commit import RewriteStep, rewrite
from jobs.state import PartitionState, store_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.limits import LAST_MERGE_GROWTH, MERGE_GROWTH, REWRITTEN_FILES_MAX
from log_tables.segments.rewrite import MergeTask, commit_merge, run_merge
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table

NAME = "segment_compaction"


def runs(
    segments: Sequence[Segment], config: TopicConfig, now_ms: int, files_max: int = REWRITTEN_FILES_MAX
) -> tuple[tuple[Segment, ...], ...]:
    """The runs of a partition's `segments` to merge at `now_ms`, each of two or more neighbours.

    The segments of a run, up to `files_max`, are older than merge.min.age.ms, were appended in the same
    window of segment.ms, and have up to segment.bytes together. A run waits until it is worth a merge
    (`MERGE_GROWTH`).
    """
    youngest = now_ms - config.merge_min_age_ms
    old = takewhile(lambda segment: segment.modification_time <= youngest, segments)
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
    alike = groupby(segments, lambda segment: (segment.modification_time // window_ms, segment.columns))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep(RewriteStep):
    """Merge `inputs`, neighbours, into one segment."""

    def __str__(self) -> str:
        return f"merge {self.place}"


def plan(states: Sequence[PartitionState], now_ms: int) -> tuple[MergeStep, ...]:
    """The merges that are due, by the settings of each topic; `now_ms` is milliseconds since 1970."""
    return tuple(step for state in states for step in _merges(state, now_ms))


def _merges(state: PartitionState, now_ms: int) -> Iterator[MergeStep]:
    segments, cleaned = state.rewritable, state.snapshot.cleaned
    border = next((at for at, item in enumerate(segments) if item.last_offset >= cleaned), len(segments))
    # Segments that were compacted by key stay apart from new ones, or all would count as new.
    for part in (segments[:border], segments[border:]):
        for inputs in runs(part, state.config, now_ms):
            yield _merge(state, False, inputs)
    for inputs in runs(state.remote_rewritable, state.config, now_ms):
        yield _merge(state, True, inputs)


def _merge(state: PartitionState, remote: bool, inputs: tuple[Segment, ...]) -> MergeStep:
    return MergeStep(
        topic=state.topic,
        partition=state.partition,
        directory=state.directory,
        remote=remote,
        inputs=inputs,
        compression=state.config.compression,
    )


def run(engine: Engine, cluster: Cluster, steps: Sequence[MergeStep]) -> Iterator[JobOutcome]:
    """Do `steps`, each a task of `engine`, then commit them; many bytes go to it in parts."""

    def make(batch: Sequence[MergeStep]) -> Iterable[Sequence[Segment] | Failure]:
        made = engine.spread(run_merge, [_merge_task(cluster, step) for step in batch])
        return (each if isinstance(each, Failure) else (each,) for each in made)

    def commit(table: Table, step: MergeStep, made: Sequence[Segment], begun: float) -> bool:
        return commit_merge(table, step.inputs, made[0], begun)

    return rewrite(NAME, engine, cluster, steps, make, commit)


def _merge_task(cluster: Cluster, step: MergeStep) -> MergeTask:
    store = store_of(cluster, step.remote)
    return MergeTask(store.url, dict(store.options), step.directory, step.inputs, step.compression)
