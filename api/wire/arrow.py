"""Arrow IPC streams in and out: the bulk format. Pure.

A stream may have plain columns only: a dictionary or a view names one long value many times.
log_tables/arrow_bounds.py says how much it may hold.
"""

import struct
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from api.errors import MalformedBody
from api.wire.room import Reserve
from log_tables.arrow_bounds import check_stream
from log_tables.cluster.route import SentRecords
from log_tables.errors import InvalidRecord
from log_tables.limits import MIB
from log_tables.record import POLL_SCHEMA, RECORD_SCHEMA, input_batch_from_columns

MESSAGE_BYTES = 1 * MIB
"""One message of an answer: what a slow reader makes us hold, where a batch in memory has up to 64 MiB."""

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""End of stream: the continuation marker and a length of 0 (Arrow columnar format)."""


_PLAIN_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)


def _is_bytes(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _PLAIN_BYTES)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_time(kind: pa.DataType) -> bool:
    return _is_number(kind) or bool(pa.types.is_timestamp(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    return (
        pa.types.is_struct(item)
        and [field.name for field in item] == ["key", "value"]
        and (pa.types.is_string(item[0].type) or pa.types.is_large_string(item[0].type))
        and _is_bytes(item[1].type)
    )


_COLUMNS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "value": (_is_bytes, "binary or string"),
    "key": (_is_bytes, "binary or string"),
    "partition": (_is_number, "an integer"),
    "timestamp": (_is_time, "a timestamp, or an integer (milliseconds)"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
}


_TOPIC: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "topic": (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
}


def check_schema(schema: pa.Schema, topics: bool = False) -> None:
    """Raise InvalidRecord unless there is a `value`, with `topics` a `topic`, and every column is known and
    plain.
    """
    columns = {**_COLUMNS, **_TOPIC} if topics else _COLUMNS
    for name in ("value", *_TOPIC) if topics else ("value",):
        if name not in schema.names:
            raise InvalidRecord(
                f"the stream has no column {name!r}, only {', '.join(schema.names) or 'none'}; add it"
            )
    if set(schema.names) - set(columns) or len(set(schema.names)) < len(schema.names):
        raise InvalidRecord(
            f"the columns {', '.join(schema.names)} include unknown or repeated ones; "
            f"use each of {', '.join(columns)} at most once"
        )
    for field in schema:
        fits, wanted = columns[field.name]
        if not fits(field.type):
            raise InvalidRecord(f"the column {field.name!r} has type {field.type}; send it as {wanted}")


def decode_stream(body: bytes, hold: Reserve) -> pa.RecordBatch:
    """The record batches of an IPC stream as one.

    Raises MalformedBody, InvalidRecord, and what `hold` raises.
    """
    batch = open_stream(body, hold)
    if batch.num_rows == 0:
        raise InvalidRecord("there are no records in the stream; send at least one")
    return batch


def open_stream(body: bytes, hold: Reserve, topics: bool = False) -> pa.RecordBatch:
    """Open an Arrow stream that may have no records; with `topics` each record names its topic."""
    try:
        size = len(body) + check_stream(body)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            check_schema(reader.schema, topics)
            hold(size)
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
        if len(batches) > 1:
            hold(size + sum(batch.nbytes for batch in batches))
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, struct.error) as error:
        raise MalformedBody(
            f"the body is not a whole Arrow IPC stream: {error}; send all of it, with its end"
        ) from None
    if not batches:
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in reader.schema], schema=reader.schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def sent_records(sent: pa.RecordBatch, now_us: int) -> SentRecords:
    """The records of a stream; those without a timestamp get `now_us`. Raises InvalidRecord."""

    def column(name: str) -> pa.Array | None:
        return sent.column(name) if name in sent.schema.names else None

    batch = input_batch_from_columns(
        sent.column("value"),
        now_us=now_us,
        keys=column("key"),
        timestamps=column("timestamp"),
        headers=column("headers"),
    )
    _check_header_keys(batch.column("headers"))
    return SentRecords(batch, column("partition"))


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
