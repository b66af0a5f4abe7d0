"""Records that wait for a transaction to name them: files that no reader sees.

A staged file is one Arrow IPC stream (INPUT_SCHEMA, lz4) after the other, a run for each partition that it
has records for. Who stages one gives its `Staged` to a transaction, which appends the runs and deletes the
file. A run's record batches are the same at every reading, so who is interrupted in that begins again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
import pyarrow as pa

from log_tables.clock import Clock
from log_tables.errors import CorruptSegment, InvalidArgument, ObjectMissing
from log_tables.layout import STAGING, is_staged, staging_path
from log_tables.limits import STAGED_BATCH_BYTES, STAGED_MAX_AGE_MS, STAGING_RETENTION_MS
from log_tables.objects import ObjectInfo
from log_tables.record import INPUT_SCHEMA, batch_bytes
from log_tables.store import Store


class Run(msgspec.Struct, frozen=True):
    """The records of one partition: `length` bytes from byte `start` of a staged file.

    `topic_id` is the incarnation of the topic that they are meant for.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    length: int
    records: int


class Staged(msgspec.Struct, frozen=True):
    """A staged file, and what is in it, in order: what a transaction names."""

    path: str
    runs: tuple[Run, ...]


class Part(NamedTuple):
    """Records for one partition: batches of INPUT_SCHEMA, at least one record in all."""

    topic: str
    topic_id: str
    partition: int
    batches: Iterable[pa.RecordBatch]


def stage(store: Store, clock: Clock, parts: Iterable[Part]) -> Staged:
    """Put `parts`, at least one, into a new staged file, durable on return. Raises StoreUnavailable."""
    sink = pa.BufferOutputStream()
    runs: list[Run] = []
    for part in parts:
        start = sink.tell()
        records = _write(sink, part.batches)
        assert records, f"nothing is staged for {part.topic}-{part.partition}"
        length = sink.tell() - start
        runs.append(Run(part.topic, part.topic_id, part.partition, start, length, records))
    path = staging_path(clock.unique_id())
    store.put_new(path, sink.getvalue())
    return Staged(path, tuple(runs))


def _write(sink: pa.NativeFile, batches: Iterable[pa.RecordBatch]) -> int:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    records = 0
    with pa.ipc.new_stream(sink, INPUT_SCHEMA, options=options) as writer:
        for batch in batches:
            for piece in _pieces(batch):
                writer.write_batch(piece)
                records += piece.num_rows
    return records


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most STAGED_BATCH_BYTES, or of one record."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or batch_bytes(batch) <= STAGED_BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def read_run(store: Store, staged: Staged, run: Run) -> Iterator[pa.RecordBatch]:
    """The records of `run`, in order: batches of INPUT_SCHEMA, the same ones every time.

    Raises CorruptSegment for a file that is missing or does not hold the run, StoreUnavailable.
    """
    try:
        data = store.get_range(staged.path, run.start, run.length)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batches = list(reader)
        if reader.schema != INPUT_SCHEMA or sum(batch.num_rows for batch in batches) != run.records:
            raise _not_the_run(staged, run, "it holds something else")
    except ObjectMissing:
        raise _not_the_run(staged, run, "it is missing") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _not_the_run(staged, run, f"it cannot be read: {error}") from None
    yield from batches


def _not_the_run(staged: Staged, run: Run, why: str) -> CorruptSegment:
    return CorruptSegment(
        f"the staged file {staged.path} should hold {run.records} records for {run.topic}-{run.partition}, "
        f"and {why}; restore it from a backup, or stage the records again"
    )


def check(store: Store, staged: Staged) -> None:
    """Raise InvalidArgument unless a transaction may name `staged` now: its file is there, holds as many
    bytes as the runs say, and is too young for a vacuum for hours to come. Raises StoreUnavailable.
    """
    if not is_staged(staged.path):
        raise InvalidArgument(
            f"{staged.path!r} is not the path of a staged file; name one as it was given when it was staged"
        )
    try:
        found = store.head(staged.path)
    except ObjectMissing:
        raise InvalidArgument(
            f"the staged file {staged.path} is not there: it was used, or vacuumed; stage the records again"
        ) from None
    if not _add_up(staged.runs, found.size):
        raise InvalidArgument(
            f"the runs of {staged.path} do not add up to its {found.size} bytes; name them as they were "
            "given when it was staged"
        )
    if found.modified_ms < store.now_ms() - STAGED_MAX_AGE_MS:
        raise InvalidArgument(
            f"the staged file {staged.path} is older than {STAGED_MAX_AGE_MS // 3_600_000} hours; stage the "
            "records again"
        )


def _add_up(runs: Sequence[Run], size: int) -> bool:
    """Whether `runs` follow one another without a gap through the whole file."""
    ends = list(accumulate((run.length for run in runs), initial=0))
    starts = [run.start for run in runs]
    return starts == ends[:-1] and ends[-1] == size and all(min(run.length, run.records) > 0 for run in runs)


def delete(store: Store, staged: Iterable[Staged]) -> None:
    """Remove staged files that nobody needs (any more). Raises StoreUnavailable."""
    for file in staged:
        store.delete(file.path)


def vacuum(store: Store, named: Collection[str], dry_run: bool = False) -> list[ObjectInfo]:
    """Delete the staged files older than a day that are not among `named`, the paths in pending intents as
    read just now. Returns them; with `dry_run` they stay. Raises StoreUnavailable.
    """
    oldest_ms = store.now_ms() - STAGING_RETENTION_MS
    files = store.list(f"{STAGING}/")
    old = [file for file in files if file.modified_ms < oldest_ms and file.path not in named]
    if not dry_run:
        for file in old:
            store.delete(file.path)
    return old
