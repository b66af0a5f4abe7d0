"""Arrow IPC streams in and out: the bulk format. Pure."""

import struct
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from api.errors import MalformedBody
from api.wire.arrow_guard import check_schema
from api.wire.rows import PartitionBatch, check_sizes, split_by_partition
from log_tables.arrow_bounds import check_stream
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord
from log_tables.limits import MIB
from log_tables.record import RECORD_SCHEMA, input_batch_from_columns
from log_tables.topic_partition import partition_for_key

MESSAGE_BYTES = 1 * MIB
"""One message of an answer: what a slow reader makes us hold, where a batch in memory has up to 64 MiB."""

POLL_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The columns of a poll by a consumer instance of the format arrow."""

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""End of stream: the continuation marker and a length of 0 (Arrow columnar format)."""


Reserve = Callable[[int], None]
"""Told the bytes that columns take before they are made. Raises BufferFull when there is no room for them."""


def decode_stream(body: bytes, hold: Reserve) -> pa.RecordBatch:
    """The record batches of an IPC stream as one.

    Raises MalformedBody, InvalidRecord, and what `hold` raises.
    """
    batch = open_stream(body, hold)
    if batch.num_rows == 0:
        raise InvalidRecord("there are no records in the stream; send at least one")
    return batch


def open_stream(body: bytes, hold: Reserve, topics: bool = False) -> pa.RecordBatch:
    """The same of a stream that may have no records, and with `topics` names the topic of each."""
    try:
        size = check_stream(body)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            check_schema(reader.schema, topics)
            hold(size)
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, struct.error) as error:
        raise MalformedBody(
            f"the body is not a whole Arrow IPC stream: {error}; send all of it, with its end"
        ) from None
    if not batches:
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in reader.schema], schema=reader.schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def partition_batches_of_stream(
    sent: pa.RecordBatch, topic: Topic, fixed: int | None, sticky: int, now_us: int
) -> list[PartitionBatch]:
    """The parts of a stream by partition: `fixed`, else its column `partition`, else its key, else `sticky`.

    Raises InvalidRecord, RecordTooLarge.
    """

    def column(name: str) -> pa.Array | None:
        return sent.column(name) if name in sent.schema.names else None

    named = column("partition")
    if fixed is not None and named is not None:
        raise InvalidRecord(
            "the path names the partition, and so does the column 'partition'; leave the column out"
        )
    batch = input_batch_from_columns(
        sent.column("value"),
        now_us=now_us,
        keys=column("key"),
        timestamps=_microseconds(column("timestamp")),
        headers=column("headers"),
    )
    _check_header_keys(batch.column("headers"))
    check_sizes(batch, topic)
    keys = batch.column("key")
    if fixed is not None or (named is None and keys.null_count == len(keys)):
        return [PartitionBatch(sticky if fixed is None else fixed, batch)]
    return split_by_partition(batch, _choose(keys, named, topic, sticky))


def _choose(keys: pa.Array, named: pa.Array | None, topic: Topic, sticky: int) -> np.ndarray:
    count = topic.partition_count
    chosen = np.full(len(keys), -1, dtype=np.int64)
    if named is not None:
        chosen, given = _numbers(named), named.is_valid().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(given & ((chosen < 0) | (chosen >= count)))
        if len(wrong):
            index = int(wrong[0])
            raise InvalidRecord(
                f"record {index}: topic {topic.name!r} has no partition {chosen[index]}; use 0 to {count - 1}"
            )
    return np.where(chosen == -1, _by_key(keys, count, sticky), chosen)


def _by_key(keys: pa.Array, count: int, sticky: int) -> np.ndarray:
    """The partition of each key, `sticky` where it is null; each different key is hashed once."""
    encoded = keys.dictionary_encode()
    found = [partition_for_key(key, count) for key in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    chosen: np.ndarray = np.array([*found, sticky], np.int64)[places]
    return chosen


def _numbers(named: pa.Array) -> np.ndarray:
    """The column `partition` as int64, -1 where it is null. Raises InvalidRecord."""
    try:
        numbers: np.ndarray = named.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise InvalidRecord(f"the column 'partition' does not fit int64: {error}; send integers") from None
    return numbers


def _microseconds(stamps: pa.Array | None) -> pa.Array | None:
    """Times in nanoseconds, pandas' unit, without what the log does not keep."""
    if stamps is None or not pa.types.is_timestamp(stamps.type) or stamps.type.unit != "ns":
        return stamps
    return stamps.cast(pa.timestamp("us", tz=stamps.type.tz), safe=False)


def _check_header_keys(headers: pa.Array) -> None:
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRecord("a header has no key; name each one")


def with_topic_partition(batch: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    """RECORD_SCHEMA rows as POLL_SCHEMA: with where they are from."""
    rows = batch.num_rows
    where = [pa.repeat(pa.scalar(topic), rows), pa.repeat(pa.scalar(partition, pa.int32()), rows)]
    return pa.RecordBatch.from_arrays([*where, *batch.columns], schema=POLL_SCHEMA)


def encode_stream(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema = RECORD_SCHEMA
) -> Iterator[memoryview | bytes]:
    """Batches of `schema` as an IPC stream, one message of about MESSAGE_BYTES at a time."""
    yield memoryview(schema.serialize())
    for batch in batches:
        rows = max(1, batch.num_rows * MESSAGE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield memoryview(batch.slice(start, rows).serialize())
    yield _END
