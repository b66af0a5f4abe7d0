"""A few records of the log as those of a batch, one after the other."""

import pyarrow as pa

from api.kafka.records.varint import write_varint
from log_tables.layout import HEADERS, KEY, VALUE
from log_tables.record import header_pairs

_NULL = write_varint(-1)


def write_rows(batch: pa.RecordBatch, offset_deltas: list[int], time_deltas_ms: list[int]) -> bytes:
    """The records of `batch`, which has RECORD_SCHEMA, as the records of one batch of Kafka."""
    keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
    headers = header_pairs(batch.column(HEADERS))
    body = bytearray()
    for key, value, named, offset, time in zip(
        keys, values, headers, offset_deltas, time_deltas_ms, strict=True
    ):
        record = bytearray(1)
        record += write_varint(time)
        record += write_varint(offset)
        _add_bytes(record, key)
        _add_bytes(record, value)
        record += write_varint(len(named))
        for name, content in named:
            _add_bytes(record, (name or "").encode())
            _add_bytes(record, content)
        body += write_varint(len(record))
        body += record
    return bytes(body)


def _add_bytes(record: bytearray, content: bytes | None) -> None:
    if content is None:
        record += _NULL
    else:
        record += write_varint(len(content))
        record += content
