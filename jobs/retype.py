"""Retyping: older segments get the columns that their topic declares now, made of the values that they keep.

Each segment is rewritten by itself, with its records, offsets and times. A merge may join those of the same
columns later. A topic that declares nothing is left alone: what its segments have is still true.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.engine import Engine, Failure
from jobs.outcome import JobOutcome
from jobs.rewrite_commit import RewriteStep, rewrite
from jobs.state import PartitionState, store_of
from log_tables.cluster.cluster import Cluster
from log_tables.columns.columns_tag import missing_schemas
from log_tables.columns.declaration import Declaration
from log_tables.counts import counted
from log_tables.limits import REWRITTEN_FILES_MAX
from log_tables.schemas.schema import Schemas
from log_tables.segments.rewrite import RetypeTask, commit_retype, run_retype
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table
from log_tables.task import batches

NAME = "retype"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetypeStep(RewriteStep):
    """Give `inputs` the declared `columns`."""

    columns: Declaration

    def __str__(self) -> str:
        return f"retype {self.place} to {counted(len(self.columns.columns), 'column')}"


def plan(
    states: Sequence[PartitionState], now_ms: int, files_max: int = REWRITTEN_FILES_MAX
) -> tuple[RetypeStep, ...]:
    """The segments whose columns are not those that their topics declare.

    A step takes up to `segment.bytes` and `files_max` files. `now_ms` is not needed: no segment is too young.
    """
    del now_ms
    return tuple(step for state in states for step in _steps(state, files_max))


def _steps(state: PartitionState, files_max: int) -> Iterator[RetypeStep]:
    there = (
        item for item in state.remote_rewritable if item.last_offset >= state.snapshot.log_start
    )  # the others are about to be deleted
    yield from _of_table(state, state.snapshot, state.rewritable, files_max, remote=False)
    if state.remote is not None:
        yield from _of_table(state, state.remote, there, files_max, remote=True)


def _of_table(
    state: PartitionState, table: Snapshot, segments: Iterable[Segment], files_max: int, remote: bool
) -> Iterator[RetypeStep]:
    declared = state.config.columns
    columns = declared.held_by(table.declared.joined(declared))
    if not columns.columns:
        return
    stale = (segment for segment in segments if _is_stale(segment, columns, state.schemas))
    for inputs in batches(stale, lambda item: item.size, state.config.segment_bytes, files_max):
        yield RetypeStep(
            topic=state.topic,
            partition=state.partition,
            directory=state.directory,
            remote=remote,
            inputs=inputs,
            columns=columns,
            compression=state.config.compression,
        )


def _is_stale(segment: Segment, columns: Declaration, schemas: Schemas) -> bool:
    """Whether the columns of `segment` would be others now: they are of another declaration, or some values
    had a schema that was not known.
    """
    if segment.declaration_id != columns.id:
        return True
    return any(schemas.known(each) is not None for each in missing_schemas(segment.columns))


def run(engine: Engine, cluster: Cluster, steps: Sequence[RetypeStep]) -> Iterator[JobOutcome]:
    """Do `steps`, each a task of `engine`, then commit them; many bytes go to it in parts."""

    def make(batch: Sequence[RetypeStep]) -> Iterable[Sequence[Segment] | Failure]:
        return engine.spread(run_retype, [_task(cluster, step) for step in batch])

    def commit(table: Table, step: RetypeStep, made: Sequence[Segment], begun: float) -> bool:
        return commit_retype(table, step.inputs, made, step.columns, begun)

    return rewrite(NAME, engine, cluster, steps, make, commit)


def _task(cluster: Cluster, step: RetypeStep) -> RetypeTask:
    store = store_of(cluster, step.remote)
    source = cluster.topic(step.topic).config.schema_source
    return RetypeTask(
        store.url,
        dict(store.options),
        step.directory,
        step.inputs,
        step.columns,
        step.compression,
        cluster.schema_location(source),
    )
