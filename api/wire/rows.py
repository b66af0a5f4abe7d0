"""Records of a request as rows, as the columns of an append, and by partition. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.partitioner import assign
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, RecordTooLarge
from log_tables.record import INPUT_SCHEMA, binary_array, constant_timestamps, headers_array, largest_record
from log_tables.record import timestamp_array as stamps

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of one request, in order. None instead of a list stands for nulls only."""

    values: Sequence[bytes | memoryview | None]
    keys: Sequence[bytes | None] | None = None
    partitions: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None
    timestamps_ms: Sequence[int | None] | None = None

    def batch(self, now_us: int) -> pa.RecordBatch:
        """The rows as INPUT_SCHEMA; a record without a timestamp gets `now_us`."""
        count = len(self.values)
        columns = [
            self._stamps(now_us),
            pa.nulls(count, pa.binary()) if self.keys is None else binary_array(self.keys),
            binary_array(self.values),
            pa.nulls(count, INPUT_SCHEMA.field("headers").type)
            if self.headers is None
            else headers_array(self.headers),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)

    def _stamps(self, now_us: int) -> pa.Array:
        if self.timestamps_ms is None:
            return constant_timestamps(now_us, len(self.values))
        given = (now_us if stamp is None else stamp * 1000 for stamp in self.timestamps_ms)
        return stamps(np.fromiter(given, np.int64, len(self.values)))


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """The records of one request that go to one partition.

    `indexes` are their positions in the request; None if they are the whole request, in order.
    """

    partition: int
    records: pa.RecordBatch
    indexes: np.ndarray | None = None


def split_by_partition(batch: pa.RecordBatch, partitions: np.ndarray) -> list[PartitionBatch]:
    """One batch for each partition in `partitions`, with its records in order."""
    if not len(partitions):
        return []
    if (partitions == partitions[0]).all():  # sorting equal numbers is not free
        return [PartitionBatch(int(partitions[0]), batch)]
    order = np.argsort(partitions, kind="stable")
    by_partition = partitions[order]
    begins = np.flatnonzero(np.diff(by_partition, prepend=-1))
    return [
        PartitionBatch(int(by_partition[begin]), batch.take(as_indices(indexes)), indexes)
        for begin, indexes in zip(begins, np.split(order, begins[1:]), strict=True)
    ]


def as_indices(indexes: np.ndarray) -> pa.Array:
    """`indexes` as an Arrow array."""
    # Not pa.array: it imports pandas if that is installed, which blocks the event loop for 0.9 s.
    return pa.Array.from_buffers(
        pa.int64(), len(indexes), [None, pa.py_buffer(np.ascontiguousarray(indexes, np.int64))]
    )


def partition_batches(
    rows: Rows, topic: Topic, fixed: int | None, sticky: int, now_us: int
) -> list[PartitionBatch]:
    """The records of a request to `topic` by partition: `fixed`, else the one that the record names, else
    that of its key, else `sticky`.

    The whole request is checked before any of it is appended. Raises InvalidRecord, RecordTooLarge.
    """
    batch = rows.batch(now_us)
    check_sizes(batch, topic)
    if fixed is not None:
        if rows.partitions is not None:
            raise InvalidRecord(
                "the path names the partition, and a record names one, too; leave 'partition' out"
            )
        return [PartitionBatch(fixed, batch)]
    if rows.keys is None and rows.partitions is None:
        return [PartitionBatch(sticky, batch)]
    nothing = [None] * len(rows.values)
    return split_by_partition(
        batch, np.array(assign(topic, rows.keys or nothing, rows.partitions or nothing, sticky))
    )


def check_sizes(batch: pa.RecordBatch, topic: Topic) -> None:
    """Raise RecordTooLarge if a record is larger than the topic's `max.message.bytes`."""
    limit = topic.config.max_message_bytes
    index, largest = largest_record(batch)
    if largest > limit:
        raise RecordTooLarge(
            f"record {index} has {largest} bytes, topic {topic.name!r} takes {limit}; send less, "
            "or raise max.message.bytes"
        )
