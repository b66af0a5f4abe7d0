"""Staged files: records that wait for a transaction to name them, and that no reader sees.

A staged file is a sequence of Arrow IPC streams (INPUT_SCHEMA, lz4): a run for each partition that it has
records for. A writer gives the `StagedFile` to a transaction, which appends the runs and deletes the file.
The seal in its path shows whether the group and the runs that the transaction names are those of the file. A
run gives the same record batches each time it is read, so an interrupted transaction begins again.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import pyarrow as pa

from log_tables.arrow_bounds import check_stream
from log_tables.clock import Clock
from log_tables.errors import CorruptSegment, InvalidArgument, InvalidRecord, ObjectMissing
from log_tables.layout import STAGING, staging_path, staging_seal
from log_tables.limits import (
    STAGED_BATCH_BYTES,
    STAGED_MAX_AGE_MS,
    STAGED_RUN_MAX_BYTES,
    STAGED_UNPACKED_MAX_BYTES,
    STAGED_UNPACKED_MAX_RECORDS,
    STAGING_RETENTION_MS,
)
from log_tables.record import INPUT_SCHEMA, batch_bytes, cut
from log_tables.segments.digest import file_digest
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Data, Store
from log_tables.topic_partition import TopicIdPartition

_CHECKED_AT_ONCE = 16
"""Files that are looked for at once: an object store takes a while for each."""


class StagedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records of one partition: `length` bytes from byte `start` of a staged file.

    `topic_id` is that of the topic for which they were staged. `digest` is that of the bytes, in hexadecimal
    digits; empty where an older version staged them.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    length: int
    records: int
    digest: str = ""


class StagedFile(msgspec.Struct, frozen=True):
    """A staged file as a transaction names it: its path, and its runs in order."""

    path: str
    runs: tuple[StagedRun, ...]


class PartitionRecords(NamedTuple):
    """Records for one partition: batches of INPUT_SCHEMA, at least one record in all."""

    topic: str
    topic_id: str
    partition: int
    batches: Iterable[pa.RecordBatch]


def stage(store: Store, clock: Clock, group: str, parts: Iterable[PartitionRecords]) -> StagedFile:
    """Put `parts`, at least one, into a new staged file, as StagedFileWriter.put does."""
    draft = StagedFileWriter()
    for part in parts:
        for batch in part.batches:
            draft.add(part.topic, part.topic_id, part.partition, batch)
    return draft.put(store, clock, group)


class StagedFileWriter:
    """Builds a staged file; records are encoded as they come."""

    def __init__(self, run_max_bytes: int = STAGED_RUN_MAX_BYTES) -> None:
        self._run_max_bytes = run_max_bytes
        self._runs: dict[TopicIdPartition, EncodedRun] = {}

    def add(self, topic: str, topic_id: str, partition: int, batch: pa.RecordBatch) -> None:
        """Add the next records of a partition, a batch of INPUT_SCHEMA.

        Raises InvalidArgument for more than a file may hold of one partition: begin another file then.
        """
        if batch.num_rows == 0:
            return
        at = TopicIdPartition(topic, topic_id, partition)
        encoded = self._runs.get(at)
        if encoded is None:
            encoded = self._runs[at] = EncodedRun()
        _check_fits(topic, partition, encoded.unpacked + batch_bytes(batch), self._run_max_bytes)
        encoded.add(batch)

    def put(self, store: Store, clock: Clock, group: str) -> StagedFile:
        """Put the file, for a transaction of the consumer group `group`; it has at least one record.

        The file is durable on return. Raises StoreUnavailable, InvalidArgument as `add` does.
        """
        assert self._runs, "nothing is staged"
        runs: list[StagedRun] = []
        data: list[pa.Buffer] = []
        start = 0
        for at, encoded in self._runs.items():
            made = encoded.finish()
            _check_fits(at.topic, at.partition, made.size, self._run_max_bytes)
            runs.append(
                StagedRun(*at, start, made.size, encoded.records, file_digest(memoryview(made)).hex())
            )
            data.append(made)
            start += made.size
        path = staging_path(clock.unique_id(), _seal(group, runs))
        store.put_new(path, b"".join(data))
        return StagedFile(path, tuple(runs))


class EncodedRun:
    """Encodes the run of one partition: an Arrow stream of `records`, whose columns take `unpacked` bytes."""

    def __init__(self) -> None:
        self._sink, self.records, self.unpacked = pa.BufferOutputStream(), 0, 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(self._sink, INPUT_SCHEMA, options=options)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next records, a batch of INPUT_SCHEMA."""
        for piece in cut(batch, STAGED_BATCH_BYTES):
            self._writer.write_batch(piece)
            self.records += piece.num_rows
            self.unpacked += batch_bytes(piece)

    def finish(self) -> pa.Buffer:
        """The whole stream."""
        self._writer.close()
        return self._sink.getvalue()


def _seal(group: str, runs: Sequence[StagedRun]) -> str:
    """16 hexadecimal digits for the group and the runs of a file."""
    return hashlib.sha256(msgspec.json.encode((group, runs))).hexdigest()[:16]


def _check_fits(topic: str, partition: int, size: int, most: int) -> None:
    """Raise InvalidArgument unless `size`, the bytes of one partition in a staged file, is at most `most`."""
    if size > most:
        raise InvalidArgument(
            f"{size} bytes for {topic}-{partition} are too many for one staged file, which holds up to "
            f"{most} for a partition; use several files, or several transactions"
        )


def read_run(
    store: Store, staged: StagedFile, run: StagedRun, unpacked_max_bytes: int = STAGED_UNPACKED_MAX_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of `run`, in order: batches of INPUT_SCHEMA, the same ones each time.

    Raises CorruptSegment for a file that is missing or does not hold the run, or has a batch that unpacks to
    more than `unpacked_max_bytes`; StoreUnavailable.
    """
    try:
        data = store.get_range(staged.path, run.start, run.length)
        if not _is_run(data, run):
            raise _not_the_run(staged, run, "its content was changed")
        check_stream(data, STAGED_UNPACKED_MAX_RECORDS, run.records, unpacked_max_bytes, one_by_one=True)
        # The whole run is read before its first batch is given: nothing of a damaged run is appended.
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            whole = reader.schema == INPUT_SCHEMA and sum(map(len, reader)) == run.records
        if not whole:
            raise _not_the_run(staged, run, "it holds something else")
    except ObjectMissing:
        raise _not_the_run(staged, run, "it is missing") from None
    except (pa.ArrowException, InvalidRecord, OSError, ValueError, struct.error) as error:
        raise _not_the_run(staged, run, f"it cannot be read: {error}") from None
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        yield from reader


def is_whole(store: Store, staged: StagedFile) -> bool:
    """Whether the bytes of `staged` are those that were put. Raises StoreUnavailable."""
    try:
        if store.head(staged.path).size < sum(run.length for run in staged.runs):
            return False
        return all(_is_run(store.get_range(staged.path, run.start, run.length), run) for run in staged.runs)
    except ObjectMissing:
        return False


def _is_run(data: Data, run: StagedRun) -> bool:
    return not run.digest or file_digest(data).hex() == run.digest


def _not_the_run(staged: StagedFile, run: StagedRun, why: str) -> CorruptSegment:
    return CorruptSegment(
        f"the staged file {staged.path} should hold {run.records} records for {run.topic}-{run.partition}, "
        f"and {why}; restore it from a backup, or stage the records again"
    )


def check(
    store: Store, group: str, files: Sequence[StagedFile], run_max_bytes: int = STAGED_RUN_MAX_BYTES
) -> None:
    """Raise InvalidArgument unless a transaction of `group` may name `files` now.

    Each was staged for the group with these runs, none of which has more than `run_max_bytes`. Each exists,
    whole and durable, and is too young for a vacuum for hours to come. Raises StoreUnavailable.
    """
    for file in files:
        _check_seal(group, file)
        for run in file.runs:
            _check_fits(run.topic, run.partition, run.length, run_max_bytes)
    with ThreadPoolExecutor(_CHECKED_AT_ONCE, thread_name_prefix="staged") as pool:
        for _ in pool.map(lambda file: _check_there(store, file), files):
            pass
    store.make_durable(STAGING)


def _check_seal(group: str, staged: StagedFile) -> None:
    seal = staging_seal(staged.path)
    if seal is None:
        raise InvalidArgument(
            f"{staged.path!r} is not the path of a staged file; name the file as staging returned it"
        )
    if seal != _seal(group, staged.runs):
        raise InvalidArgument(
            f"{staged.path} was not staged with these runs for the group {group!r}; name the runs as staging "
            "returned them, in a transaction of the group for which it was staged"
        )


def _check_there(store: Store, staged: StagedFile) -> None:
    try:
        found = store.head(staged.path)
    except ObjectMissing:
        raise InvalidArgument(
            f"the staged file {staged.path} does not exist, or no longer; stage the records again"
        ) from None
    size = sum(run.length for run in staged.runs)
    if found.size != size:
        raise InvalidArgument(
            f"the staged file {staged.path} has {found.size} bytes instead of {size}; stage the records again"
        )
    if found.modified_ms < store.now_ms() - STAGED_MAX_AGE_MS:
        raise InvalidArgument(
            f"the staged file {staged.path} is older than {STAGED_MAX_AGE_MS // 3_600_000} hours; stage the "
            "records again"
        )


def delete(store: Store, staged: Iterable[StagedFile]) -> None:
    """Delete staged files that no transaction needs. Raises StoreUnavailable."""
    for file in staged:
        store.delete(file.path)


def old_files(store: Store) -> list[ObjectInfo]:
    """The staged files older than a day, which no transaction may name any more that does not name them
    already. Raises StoreUnavailable.
    """
    oldest_ms = store.now_ms() - STAGING_RETENTION_MS
    return [file for file in store.list(f"{STAGING}/") if file.modified_ms < oldest_ms]
