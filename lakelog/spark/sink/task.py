"""The work of one task of a query that writes: its rows become records of topics and partitions, which go to
staged files. Executors run this code.

Spark may run a task twice, at once or one after the other, and need not give it the same rows then; so what a
task writes does not count before the driver has named its files.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from lakelog.spark.options import RootLocation
from lakelog.spark.rows import PARTITION, TOPIC
from lakelog.spark.sink.options import SinkOptions
from lakelog.spark.worker import freeze_gc, store_at
from log_tables.clock import Clock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.route import PartitionBatch, Route, SentRecords
from log_tables.cluster.topic import Topic, check_writable
from log_tables.errors import InvalidRecord, InvalidValue, LakelogError, UnknownTopic
from log_tables.layout import HEADERS, KEY, TIMESTAMP, VALUE
from log_tables.limits import STAGED_FILE_BYTES
from log_tables.record import batch_bytes, cut, input_batch_from_columns, int64s
from log_tables.rows import as_batch
from log_tables.segments import staging
from log_tables.segments.staging import StagedFile, StagedFileWriter

_QUERY_ID = "sql.streaming.queryId"
"""The local property in which a task finds the id of its streaming query, which is the checkpoint's."""

_STEP = 0.618
"""The fraction of the partitions by which records without a key move on after a batch. It reaches all."""


BATCH_GROUP = "spark-sink"
"""The consumer group whose transactions those of all batch queries are."""


class PartitionRecords(NamedTuple):
    """Records for one partition, in the order of the rows: a batch of INPUT_SCHEMA."""

    topic: Topic
    partition: int
    records: pa.RecordBatch


def route(
    rows: pa.RecordBatch,
    topic: str | None,
    topic_named: Callable[[str], Topic],
    sticky: float,
    now_us: int,
    before: int = 0,
) -> Iterator[PartitionRecords]:
    """The records of `rows` by partition: the row's own one, else its key's, else the sticky one.

    All go to `topic` if it is given, else each to its row's; `topic_named` gives the topic of a name.
    `sticky`, from 0 to below 1, chooses among the partitions of each. Rows without a time get `now_us`. There
    were so many rows `before` these, which counts where an error names a row.

    Raises InvalidRecord, InvalidTimestamp, InvalidValue, RecordTooLarge, and what `topic_named` raises.
    """
    columns = {name: rows.column(name) for name in rows.schema.names}
    _check_headers(columns.get(HEADERS))
    records = input_batch_from_columns(
        columns[VALUE],
        now_us=now_us,
        keys=columns.get(KEY),
        timestamps=columns.get(TIMESTAMP),
        headers=columns.get(HEADERS),
    )
    given = columns.get(PARTITION)
    for name, where in _by_topic(columns.get(TOPIC), topic):
        chosen = topic_named(name)
        own = records if where is None else records.take(where)
        numbers = range(before, before + rows.num_rows) if where is None else int64s(where) + before
        named = given if given is None or where is None else given.take(where)
        route = Route(chosen, None, int(sticky * chosen.partition_count), now_us)
        for batch in _split(route, SentRecords(own, named, numbers)):
            yield PartitionRecords(chosen, batch.partition, as_batch(batch.records))


def _split(route: Route, sent: SentRecords) -> list[PartitionBatch]:
    """Raises as `Route.split` does, for schemas that are known now."""
    try:
        return route.split(sent)
    except InvalidValue:
        schemas = route.topic.schemas
        before = schemas.version
        schemas.look_up(schemas.wanted())
        if schemas.version == before:
            raise
        return route.split(sent)


def _by_topic(names: pa.Array | None, topic: str | None) -> Iterator[tuple[str, pa.Array | None]]:
    """Each topic and which rows are its own; None: all."""
    if topic is not None or names is None:
        assert topic is not None
        yield topic, None
        return
    if names.null_count:
        raise InvalidRecord("a row has no topic; fill the column 'topic', or set the option topic")
    distinct = names.unique()
    for name in distinct:
        alone = len(distinct) == 1
        yield name.as_py(), None if alone else pc.indices_nonzero(pc.equal(names, name))


def _check_headers(headers: pa.Array | None) -> None:
    if headers is None:
        return
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRecord("a header has no key; name each one")


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """A task's message to the driver: the files that it has staged, and the group of their transaction."""

    group: str
    staged: tuple[StagedFile, ...]


def stream_group() -> str:
    """The consumer group of the streaming query whose task this is: each is one. Empty if it has no id."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    return f"{BATCH_GROUP}-{query_id}" if query_id else ""


def stage_rows(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, group: str, file_bytes: int = STAGED_FILE_BYTES
) -> StagedRows:
    """Stage what a task is given for a transaction of `group`, in files of about `file_bytes`. When that
    fails, nothing of it stays.

    Raises what `route`, `Draft.add` and `Draft.put` raise, UnknownTopic, MirroredTopic.
    """
    freeze_gc()
    stager = _Stager(options, group, SystemClock(), file_bytes)
    try:
        for batch in rows:
            stager.add(batch)
        staged = stager.finish()
    except BaseException:
        stager.discard()
        raise
    return StagedRows(group, staged)


@lru_cache(maxsize=16)
def _cluster_at(location: RootLocation) -> Cluster:
    """Opened once in a process, which runs many tasks."""
    return Cluster.open(store_at(location), create=False)


class _Stager:
    """The rows of one task, of which it holds about `file_bytes`."""

    def __init__(self, options: SinkOptions, group: str, clock: Clock, file_bytes: int) -> None:
        self._clock, self._group, self._topic, self._file_bytes = clock, group, options.topic, file_bytes
        self._store, self._cluster = store_at(options.location), _cluster_at(options.location)
        self._topics: dict[str, Topic] = {}
        self._draft = StagedFileWriter()
        self._bytes = self._rows = 0
        self._staged: list[StagedFile] = []
        # Micro-batches are small: tasks that all began with partition 0 would leave the others empty.
        self._sticky = clock.random()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take the next rows. Records without key and partition stay together, and move on with the next."""
        if rows.num_rows == 0:
            return
        now_us = self._clock.now_us()
        for part in cut(rows, self._file_bytes):  # Spark counts the rows of a batch, not their bytes
            self._add(part, now_us)
            self._rows += part.num_rows
        self._sticky = (self._sticky + _STEP) % 1

    def _add(self, rows: pa.RecordBatch, now_us: int) -> None:
        routed = route(rows, self._topic, self._topic_named, self._sticky, now_us, self._rows)
        for topic, partition, records in routed:
            self._draft.add(topic.name, topic.topic_id, partition, records)
            self._bytes += batch_bytes(records)
        if self._bytes >= self._file_bytes:
            self._flush()

    def finish(self) -> tuple[StagedFile, ...]:
        """Stage what waits; returns all files, in order."""
        if self._bytes:
            self._flush()
        return tuple(self._staged)

    def discard(self) -> None:
        """Delete the staged files. Vacuum deletes later what cannot be deleted now."""
        with suppress(LakelogError):
            staging.delete(self._store, self._staged)

    def _flush(self) -> None:
        self._staged.append(self._draft.put(self._store, self._clock, self._group))
        self._draft, self._bytes = StagedFileWriter(), 0

    def _topic_named(self, name: str) -> Topic:
        """The topic as the first of the task's rows that names it finds it."""
        if name not in self._topics:
            check_writable(name)
            if not self._topics:
                self._cluster.refresh()
            topic = self._cluster.cached_topic(name)
            if topic is None:
                raise UnknownTopic(f"there is no topic {name!r} to write to; create it, or name another")
            self._cluster.check_own(topic)
            self._topics[name] = topic
        return self._topics[name]
