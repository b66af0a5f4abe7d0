"""Segment compaction: small segments become larger ones, with the same records and offsets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.engine import Engine, Failure
from jobs.outcome import JobOutcome
from jobs.rewrite_commit import RewriteStep, rewrite
from jobs.state import PartitionState, store_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.merge_plan import merges, runs
from log_tables.segments.rewrite import MergeTask, commit_merge, run_merge
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table

NAME = "segment_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep(RewriteStep):
    """Merge `inputs`, neighbours, into one segment."""

    def __str__(self) -> str:
        return f"merge {self.place}"


def plan(states: Sequence[PartitionState], now_ms: int) -> tuple[MergeStep, ...]:
    """The merges that are due, by the settings of each topic; `now_ms` is milliseconds since 1970. Those of
    the partition that loses most files by them come first.
    """
    planned = [[*_merges(state, now_ms)] for state in states]
    worst_first = sorted(planned, key=lambda steps: -sum(len(step.inputs) - 1 for step in steps))
    return tuple(step for steps in worst_first for step in steps)


def _merges(state: PartitionState, now_ms: int) -> Iterator[MergeStep]:
    for inputs in merges(state.rewritable, state.snapshot.cleaned, state.config, now_ms):
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
