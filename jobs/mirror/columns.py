"""Messages of librdkafka as columns of records, at their own offsets."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from log_tables.errors import InvalidRecord
from log_tables.limits import (
    BATCH_MAX_BYTES,
    RECORD_HARD_MAX_BYTES,
    TIMESTAMP_BOUNDS,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
)
from log_tables.record import (
    INPUT_SCHEMA,
    RECORD_SCHEMA,
    binary_array,
    checked_timestamps,
    headers_array,
    with_offsets,
)

NO_RECORDS = pa.RecordBatch.from_arrays(
    [pa.nulls(0, field.type) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA
)

_OVERHEAD = 64
"""What a record costs beside its key and value, in bytes, about."""


def size_of(messages: Sequence[Message]) -> int:
    """About how many bytes they are in memory."""
    keys = sum(map(len, filter(None, map(Message.key, messages))))
    return sum(map(len, messages)) + keys + _OVERHEAD * len(messages)


def runs(messages: Sequence[Message], size: int) -> Iterator[Sequence[Message]]:
    """`messages` of `size` bytes in runs of at most BATCH_MAX_BYTES: what was compressed at the source may be
    large here. Raises InvalidRecord for a record that is larger than any of a table.
    """
    if size <= BATCH_MAX_BYTES:
        yield messages
        return
    begin, held = 0, 0
    for at, message in enumerate(messages):
        its = len(message) + len(message.key() or b"")
        if its > RECORD_HARD_MAX_BYTES:
            raise InvalidRecord(
                f"the record at offset {message.offset()} has {its} bytes, and a table holds records of at "
                f"most {RECORD_HARD_MAX_BYTES}"
            )
        if held and held + its > BATCH_MAX_BYTES:
            yield messages[begin:at]
            begin, held = at, 0
        held += its
    yield messages[begin:]


def records_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """`messages` of one partition as RECORD_SCHEMA.

    Raises InvalidRecord for a time that no table can hold, and a name of a header that is no text.
    """
    if not messages:
        return NO_RECORDS
    count = len(messages)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    times_ms = np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), np.int64, count)
    outside = (times_ms < -(-TIMESTAMP_MIN_US // 1000)) | (times_ms > TIMESTAMP_MAX_US // 1000)
    if outside.any():
        at = int(np.argmax(outside))
        raise InvalidRecord(
            f"the record at offset {int(offsets[at])} has the time {int(times_ms[at])} ms, which is outside "
            f"{TIMESTAMP_BOUNDS}: no table can hold it"
        )
    columns = [
        checked_timestamps(times_ms * 1000),
        binary_array([*map(Message.key, messages)]),
        binary_array([*map(Message.value, messages)]),
        headers_array(_headers(messages)),
    ]
    return with_offsets([pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)], offsets)


def _headers(messages: Sequence[Message]) -> list[Any]:
    try:
        return [each or () for each in map(Message.headers, messages)]
    except UnicodeDecodeError as error:
        raise InvalidRecord(
            f"of the records at offsets {messages[0].offset()} to {messages[-1].offset()} one has a header "
            f"whose name is not UTF-8 ({error}): no table can hold it"
        ) from None
