"""A slice: what one Spark task reads, a range of offsets of one partition. Executors run this code.

The driver names the segments; where they are gone when the task comes to them, because compaction has put
others in their place and vacuum removed them, the task looks the range up again.

Records that are gone fail a query, or not, by the option failOnDataLoss.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lakelog.spark.decoding import AS_TEXT, ValueDecoder
from lakelog.spark.options import RootLocation
from lakelog.spark.rows import row_maker, stored_columns
from lakelog.spark.source.options import Options
from lakelog.spark.worker import freeze_gc, store_at
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Conflict
from log_tables.layout import partition_directory
from log_tables.partition.read_plan import read_on
from log_tables.segments.segment import read as read_segment
from log_tables.store.store import Store
from log_tables.table.snapshot import Segment
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class DataLost(Conflict):
    """Records that a query has yet to read are gone: retention, a deleted topic, an offset out of range."""

    code = "data_lost"


def report_loss(what: str, fail: bool) -> None:
    """Raise DataLost; with failOnDataLoss=false log a warning instead."""
    if fail:
        raise DataLost(
            f"{what}; some records may have been missed: correct the options, start a new query, or set "
            "failOnDataLoss=false to continue without them"
        )
    _log.warning("%s; some records may have been missed (failOnDataLoss=false)", what)


BATCH_ROWS = 65_536
BATCH_BYTES = 8 * 1024 * 1024
"""Small segments are handed to Spark together, up to about this many rows and bytes."""


@dataclass(frozen=True)
class Slice(InputPartition):
    """Offsets start ≤ offset < end of one partition, and the segments that held them when it was planned.

    `remote_root` is where the remote ones among these are: a URL, empty when there is none. `decoder`
    decodes the values.
    """

    topic: str
    partition: int
    directory: str
    start: int
    end: int
    segments: tuple[Segment, ...]
    timestamp_type: int
    remote_root: str = ""
    decoder: ValueDecoder = AS_TEXT


def read(part: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a slice, in order.

    Raises DataLost when some were removed and the query is to fail then; CorruptSegment, StoreUnavailable.
    """
    if not isinstance(part, Slice):
        return  # what Spark makes up for a batch query that has nothing to read
    freeze_gc()
    columns, declared = options.columns, options.declared
    rows = row_maker(columns, declared, part.topic, part.partition, part.timestamp_type)
    records = _records(options, part, stored_columns(columns, declared, part.decoder.encoding))
    for batch in part.decoder.beside(_gathered(records), frozenset(columns)):
        yield rows(batch)


def _records(options: Options, part: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    now = part

    def read(segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
        store = _store(options.location, segment, now)
        return read_segment(store, part.directory, segment, start, end, schema)

    def look_up(offset: int) -> tuple[Sequence[Segment], int]:
        nonlocal now
        now, offset = _look_up_again(options, part, offset)
        return now.segments, offset

    return read_on(part.segments, part.start, part.end, read, look_up)


def _store(location: RootLocation, segment: Segment, part: Slice) -> Store:
    return store_at(replace(location, root=part.remote_root) if segment.remote else location)


def _look_up_again(options: Options, part: Slice, offset: int) -> tuple[Slice, int]:
    """Where the rest of the slice is now: in which segments, and from which offset on."""
    name, fail = TopicPartition(part.topic, part.partition), options.fail_on_data_loss
    cluster = Cluster.open(store_at(options.location), create=False)
    topic = cluster.cached_topic(part.topic)
    if topic is None or partition_directory(topic.directory, part.partition) != part.directory:
        report_loss(f"topic {part.topic} was deleted while {name} was read", fail)
        return replace(part, segments=()), part.end
    partition = topic.partition(part.partition)
    log_start = partition.log_start
    if offset < log_start:
        report_loss(
            f"offsets {offset} to {min(log_start, part.end) - 1} of {name} were removed while they were read",
            fail,
        )
        offset = min(log_start, part.end)
    segments = partition.log_from(offset).between(offset, part.end)
    return replace(part, segments=segments, remote_root=cluster.remote_root or ""), offset


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of `batches` in fewer batches: each one costs Spark a fixed price."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        bytes_ = batch.nbytes
        if waiting and (rows + batch.num_rows > BATCH_ROWS or size + bytes_ > BATCH_BYTES):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + bytes_
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
