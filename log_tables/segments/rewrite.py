"""New segments from old ones, one partition at a time: Spark tasks, gateways and tests run the same code.

A merge keeps every record, and so does `retype`, which makes their declared columns again. Compaction by key
keeps those that `cleaner` selects, in three steps that can be spread over tasks: `latest` over all inputs,
`compact` for each group of neighbours, and one `commit_compaction`. All groups are committed at once: a
tombstone may go only together with the records that it deletes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from log_tables.clock import Clock, SystemClock
from log_tables.columns.columns_tag import joined_tag
from log_tables.columns.declaration import Declaration
from log_tables.columns.record_columns import RecordColumns
from log_tables.errors import CorruptSegment, InvalidArgument
from log_tables.layout import KEY, OFFSET, TXN_CLEANED, segment_name
from log_tables.limits import COMPACTED_SEGMENT_BYTES, DELETE_RETENTION_MS, REWRITE_MAX_AGE_MS
from log_tables.record import RECORD_SCHEMA, int64s, record_schema
from log_tables.schemas.schema import NO_SCHEMAS, NOWHERE, SchemaLocation, Schemas
from log_tables.segments import cleaner
from log_tables.segments import segment as segments
from log_tables.segments.cleaner import Cleaning
from log_tables.segments.digest import Digest
from log_tables.segments.segment import SEGMENT_LIMITS, SegmentLimits, SegmentStats, SegmentWriter
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Commit, Txn, file_metrics
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import TAG_COLUMNS, Horizons, Segment, Snapshot
from log_tables.table.table import Table

__all__ = [
    "MergeTask",
    "RetypeTask",
    "commit_compaction",
    "commit_merge",
    "commit_retype",
    "compact",
    "compact_by_key",
    "compact_if_dirty",
    "keys",
    "latest",
    "merge",
    "retype",
    "tail",
]


def merge(
    store: Store,
    table: str,
    inputs: Sequence[Segment],
    compression: str,
    clock: Clock,
    limits: SegmentLimits = SEGMENT_LIMITS,
) -> Segment:
    """Write the records of `inputs`, neighbours in order, as one new segment file; nothing is committed.

    It holds one input, the new file, and about one row group at a time. Raises InvalidArgument for segments
    that do not follow one another, CorruptSegment when the inputs do not agree with their stats, or the new
    file does not read back as the very same records.
    """
    records, writer = _read(store, table, inputs), SegmentWriter(compression, limits)
    return _write(store, table, records, writer, _joined(inputs), _horizons(inputs), clock)


def tail(
    source: Store, target: Store, table: str, item: Segment, start: int, compression: str, clock: Clock
) -> Segment:
    """Write the records of the segment `item` from offset `start` on as a new segment file of `target`.

    `table` is its directory in both stores; nothing is committed. Raises CorruptSegment.
    """
    records = segments.read(source, table, item, start, item.last_offset + 1, None)
    return _write(target, table, records, SegmentWriter(compression), item, item.horizons, clock)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A task that merges `inputs`, neighbours in order, of the table at `directory` below `url`."""

    url: str
    options: dict[str, str] = field(repr=False)
    directory: str
    inputs: tuple[Segment, ...]
    compression: str


def run_merge(task: MergeTask) -> Segment:
    """`merge` in a process that has no store open."""
    store = open_store(task.url, task.options, create=False)
    return merge(store, task.directory, task.inputs, task.compression, SystemClock())


def commit_merge(table: Table, inputs: Sequence[Segment], made: Segment, begun: float | None = None) -> bool:
    """Replace `inputs` by `made`, with `dataChange: false`. Returns False, without harm, if an input is gone.

    `begun` is the time (`boottime`) before the first file of the rewrite was put; now unless given. Raises
    InvalidArgument when a vacuum may have deleted the files since.
    """
    return _replace(table, "OPTIMIZE", inputs, [made], begun)


def retype(
    store: Store,
    table: str,
    item: Segment,
    columns: Declaration,
    compression: str,
    clock: Clock,
    schemas: Schemas = NO_SCHEMAS,
) -> Segment:
    """Write the records of the segment `item`, with `columns` made of their values, as a new segment file.

    Nothing is committed. Raises CorruptSegment as `merge` does.
    """
    batches = _records(store, table, [item], RECORD_SCHEMA)
    made = RecordColumns(columns, schemas)
    records = (part for batch in batches for part in made.beside(batch))
    found = _write(store, table, records, SegmentWriter(compression), item, item.horizons, clock)
    return replace(found, columns=made.tag)


@dataclass(frozen=True, slots=True)
class RetypeTask:
    """A task that gives each of `inputs`, segments of the table at `directory` below `url`, the `columns`."""

    url: str
    options: dict[str, str] = field(repr=False)
    directory: str
    inputs: tuple[Segment, ...]
    columns: Declaration
    compression: str
    schemas: SchemaLocation = NOWHERE


def run_retype(task: RetypeTask) -> tuple[Segment, ...]:
    """`retype` of each segment of `task`, in a process that has no store open."""
    store, clock, schemas = (
        open_store(task.url, task.options, create=False),
        SystemClock(),
        task.schemas.open(),
    )
    return tuple(
        retype(store, task.directory, item, task.columns, task.compression, clock, schemas)
        for item in task.inputs
    )


def commit_retype(
    table: Table,
    inputs: Sequence[Segment],
    made: Sequence[Segment],
    columns: Declaration,
    begun: float | None = None,
) -> bool:
    """Replace `inputs` by `made`, which have `columns`, with `dataChange: true`; the table has these first.

    Returns False, without harm, when an input is gone. `begun` and errors are those of `commit_merge`.
    """
    table.widen(columns)
    return _replace(table, "UPDATE", inputs, made, begun, changes=True)


def latest(store: Store, table: str, inputs: Sequence[Segment], log_start: int) -> np.ndarray:
    """`cleaner.latest_offsets` of the records of `inputs` from the log start on. Raises CorruptSegment."""
    return cleaner.latest_offsets(*keys(store, table, inputs, log_start))


def keys(
    store: Store, table: str, inputs: Sequence[Segment], log_start: int
) -> tuple[pa.ChunkedArray, np.ndarray]:
    """The keys of the records of `inputs` from the log start on, and their offsets (int64); reads no values.

    Raises CorruptSegment.
    """
    schema = record_schema((OFFSET, KEY))
    batches = [
        batch
        for item in inputs
        for batch in segments.read(store, table, item, log_start, item.last_offset + 1, schema)
    ]
    offsets = [np.empty(0, np.int64), *(int64s(batch.column(OFFSET)) for batch in batches)]
    return pa.chunked_array([batch.column(KEY) for batch in batches], pa.binary()), np.concatenate(offsets)


def compact(
    store: Store,
    table: str,
    inputs: Sequence[Segment],
    newest: np.ndarray,
    cleaning: Cleaning,
    compression: str,
    clock: Clock,
) -> Segment | None:
    """Write the records of `inputs` that `cleaning` keeps as one new segment file; nothing is committed.

    `inputs` are neighbours in order. `newest` is the result of `latest` for the partition, or the part of it
    that covers `inputs`. Returns None when no record stays, and a single input itself when all of it stays.
    Raises as `merge` does.
    """
    before = _horizons(inputs)
    after: list[tuple[int, int]] = []
    writer, given, kept = SegmentWriter(compression), Digest(), 0
    for batch in _read(store, table, inputs):
        rows, steps = cleaner.survivors(batch, newest, before, cleaning)
        after = _continued(after, steps)
        if len(rows):
            part = batch.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
            given.update(part)
            writer.add(part)
            kept += len(rows)
    if kept == 0:
        return None
    horizons = tuple(after)
    if len(inputs) == 1 and kept == inputs[0].records and horizons == before:
        return inputs[0]
    return _put(store, table, writer, given, _joined(inputs), horizons, clock)


def _continued(steps: list[tuple[int, int]], following: Horizons) -> list[tuple[int, int]]:
    """`steps` and those of the next batch; steps of the same time at the border become one."""
    if steps and following and steps[-1][1] == following[0][1]:
        steps = steps[:-1]
    return [*steps, *following]


def commit_compaction(
    table: Table,
    inputs: Sequence[Segment],
    made: Sequence[Segment],
    cleaned: int,
    begun: float | None = None,
) -> bool:
    """Replace `inputs` by `made`, with `dataChange: true`; the log is compacted up to offset `cleaned` then.

    A segment in both stays as it is. Returns False, without harm, when an input is gone. `begun` and errors
    are those of `commit_merge`.
    """
    return _replace(table, "COMPACT", inputs, made, begun, changes=True, cleaned=cleaned)


def compact_by_key(
    table: Table,
    compression: str,
    min_compaction_lag_ms: int = 0,
    delete_retention_ms: int = DELETE_RETENTION_MS,
    segment_bytes: int = COMPACTED_SEGMENT_BYTES,
) -> bool:
    """Compact `table` by key, as far as it is older than `min_compaction_lag_ms`.

    Returns whether that was committed: False when there is nothing to compact, or another process has
    rewritten an input since. Raises CorruptSegment, StoreUnavailable, OutcomeUnknown, ForeignCommit, and as
    `commit_merge` does.
    """
    snapshot, now_ms, begun = table.snapshot, table.clock.now_ms(), table.clock.boottime()
    inputs = cleaner.cleanable(snapshot, now_ms, min_compaction_lag_ms)
    if not inputs:
        return False
    newest = latest(table.store, table.directory, inputs, snapshot.log_start)
    cleaning = Cleaning.of(snapshot, now_ms, delete_retention_ms)
    made = [
        compact(table.store, table.directory, group, newest, cleaning, compression, table.clock)
        for group in cleaner.groups(inputs, segment_bytes)
    ]
    kept = [segment for segment in made if segment is not None]
    return commit_compaction(table, inputs, kept, inputs[-1].last_offset + 1, begun)


def compact_if_dirty(table: Table, compression: str) -> bool:
    """`compact_by_key` with Kafka's defaults, if the log is dirty enough (`cleaner.is_dirty`).

    Returns and raises as `compact_by_key` does.
    """
    return cleaner.is_dirty(table.snapshot.segments, table.snapshot.cleaned) and compact_by_key(
        table, compression
    )


def _read(store: Store, table: str, inputs: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
    """The records of `inputs`, neighbours in order with the same declaration, with all their columns, in the
    order of the first: a file that was moved may have another one. Raises InvalidArgument, CorruptSegment.
    """
    if not inputs or any(a.last_offset >= b.base_offset for a, b in pairwise(inputs)):
        raise InvalidArgument("a rewrite takes one or more segments in offset order; list them so")
    if len({item.declaration_id for item in inputs}) > 1:
        raise InvalidArgument(
            "a rewrite takes segments of one declaration of columns; rewrite those of each by themselves"
        )
    return _in_one_order(table, _records(store, table, inputs, None))


def _joined(inputs: Sequence[Segment]) -> Segment:
    """The last of `inputs`, with a tag of columns that is true of all."""
    return replace(inputs[-1], columns=joined_tag(item.columns for item in inputs))


def _in_one_order(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    order: list[str] = []
    for batch in batches:
        order = order or batch.schema.names
        if {*batch.schema.names} != {*order}:
            raise CorruptSegment(
                f"segments of {table} with the same tag {TAG_COLUMNS} have other columns; restore them from "
                "a backup"
            )
        yield batch.select(order)


def _records(
    store: Store, table: str, inputs: Sequence[Segment], schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    for item in inputs:
        found = 0
        for batch in segments.read(store, table, item, item.base_offset, item.last_offset + 1, schema):
            found += batch.num_rows
            yield batch
        if found != item.records:
            raise CorruptSegment(
                f"segment {table}/{item.path} holds {found} records in its offsets, and its stats say "
                f"{item.records}; restore it from a backup"
            )


def _write(
    store: Store,
    table: str,
    records: Iterable[pa.RecordBatch],
    writer: SegmentWriter,
    newest: Segment,
    horizons: Horizons,
    clock: Clock,
) -> Segment:
    """Write `records`, at least one, as a new segment. Raises as `_put` does."""
    given = Digest()
    for batch in records:
        given.update(batch)
        writer.add(batch)
    return _put(store, table, writer, given, newest, horizons, clock)


def _put(
    store: Store,
    table: str,
    writer: SegmentWriter,
    given: Digest,
    newest: Segment,
    horizons: Horizons,
    clock: Clock,
) -> Segment:
    """Put the records of `writer` as a new segment, for inputs of which `newest` is the last.

    Raises CorruptSegment, before the put, when the file does not read back as the very same records, in
    order.
    """
    data = writer.finish()
    found = _checked(data, given.value(), newest)
    path = segment_name(found.base_offset, clock.random_hex(8))
    store.put_new(f"{table}/{path}", data)
    # The time of the newest input is between those of the neighbours, so modificationTime stays monotone.
    return found.segment(path, data, newest.modification_time, horizons, newest.columns)


def _checked(data: pa.Buffer, digest: bytes, newest: Segment) -> SegmentStats:
    """The stats of the file `data`, if it is in order and has this `digest`. Raises CorruptSegment."""
    found, read, ordered = SegmentStats(), Digest(), True
    try:
        for batch in segments.decode(data):
            offsets = int64s(batch.column(OFFSET))
            ordered = ordered and offsets[0] > found.last_offset and bool(np.all(np.diff(offsets) > 0))
            found.add(batch)
            read.update(batch)
    except (pa.ArrowException, OSError) as error:
        raise _not_as_written(newest, str(error)) from None
    if not ordered:
        raise _not_as_written(newest, "its offsets do not grow")
    if read.value() != digest:
        raise _not_as_written(newest, "its records are not those that were written")
    return found


def _not_as_written(newest: Segment, reason: str) -> CorruptSegment:
    return CorruptSegment(
        f"the rewrite of segments up to {newest.path} does not read back ({reason}), so it was not "
        "committed; run `lakelog fsck`, and check the memory of this machine"
    )


def _check_fresh(clock: Clock, begun: float) -> None:
    """Raise InvalidArgument when files that were put since `begun` (`boottime`) may have been vacuumed."""
    if clock.boottime() - begun > REWRITE_MAX_AGE_MS / 1000:
        raise InvalidArgument(
            f"the rewrite took longer than {REWRITE_MAX_AGE_MS // 3_600_000} hours and was not committed, as "
            "a vacuum may delete its files; repeat it, with more cores if it was busy all the time"
        )


def _horizons(inputs: Sequence[Segment]) -> Horizons:
    return tuple(step for item in inputs for step in item.horizons)


def _replace(
    table: Table,
    operation: str,
    inputs: Sequence[Segment],
    made: Sequence[Segment],
    begun: float | None,
    changes: bool = False,
    cleaned: int | None = None,
) -> bool:
    """Commit `made` instead of `inputs`; it says whether the rewrite `changes` rows.

    With `cleaned`, records were dropped up to that offset.
    """
    info, since = commit_info(table.clock, operation), table.clock.boottime() if begun is None else begun
    stays = frozenset(item.path for item in inputs) & {item.path for item in made}
    adds = tuple(item.add(changes) for item in made if item.path not in stays)
    now_ms = table.clock.now_ms()
    removes = tuple(item.remove(now_ms, changes) for item in inputs if item.path not in stays)
    if cleaned is not None:
        info = replace(info, operationMetrics=file_metrics(adds, removes))
    commits: dict[int, Commit] = {}

    def commit_at(border: int) -> Commit:
        """One object as long as it says the same, so that an attempt after a lost race costs little."""
        if border not in commits:
            txns = () if cleaned is None else (Txn(TXN_CLEANED, border),)
            commits[border] = Commit(info, txns=txns, adds=adds, removes=removes, needs=stays)
        return commits[border]

    def build(snapshot: Snapshot) -> Commit | None:
        there = {item.path for item in snapshot.between(inputs[0].base_offset, inputs[-1].last_offset + 1)}
        if not all(item.path in there for item in inputs):
            return None
        # Before each put: one that lost to a vacuum's commit may have slept while its files were deleted.
        _check_fresh(table.clock, since)
        return commit_at(0 if cleaned is None else max(snapshot.cleaned, cleaned))

    return table.transact(build) is not None
