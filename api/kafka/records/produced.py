"""A producer's record batch as records of the log."""

from dataclasses import dataclass

from api.kafka.records.batch_header import (
    COMPRESSION_BITS,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from api.kafka.records.column_reader import read_columns
from api.kafka.records.compression import inflate
from api.kafka.records.errors import invalid, too_large
from api.kafka.records.row_reader import read_rows
from api.wire.room import Reserve
from log_tables.limits import ROW_BYTES, ROW_HEADER_BYTES, STREAM_RECORDS_MAX
from log_tables.rows import Records

ROWS_MAX = 40
"""Records of a batch that are read one after the other. Measured: for more, columns take less time."""

_RECORD_MIN_BYTES = 7
_COLUMNS_BYTES = 200
"""Memory of a record while it is read into columns, besides its bytes. Measured."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The records of a batch, and the stamp of its producer: -1 in each field if it has none."""

    records: Records
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


def decode_batch(
    data: bytes | memoryview, most_bytes: int, append_time_us: int, hold: Reserve = lambda _: None
) -> DecodedBatch:
    """The one batch that `data` is, whose records have `most_bytes` at most when they are unpacked.

    A record without a timestamp gets `append_time_us`. `hold` is told, each time that it grows, the memory
    that the records and the work on them take. Raises InvalidBatch, and what `hold` raises.
    """
    data = memoryview(data)
    header = read_header(data)
    body = inflate(data[HEADER_BYTES:], header.attributes & COMPRESSION_BITS, most_bytes, hold)
    return DecodedBatch(
        _read(header, body, append_time_us, hold),
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        bool(header.attributes & TRANSACTIONAL_BIT),
    )


def _read(header: BatchHeader, body: bytes | memoryview, append_time_us: int, hold: Reserve) -> Records:
    count = header.count
    if count * _RECORD_MIN_BYTES > len(body):
        raise invalid(f"the batch says that it has {count} records, and has {len(body)} bytes for them")
    _check_number(count, "records")
    few = count <= ROWS_MAX
    made_of = len(body) if isinstance(body, bytes) else 0  # else it is the request itself
    size = made_of + len(body) + count * (ROW_BYTES if few else _COLUMNS_BYTES)
    hold(size)

    def hold_headers(number: int) -> None:
        _check_number(number, "headers")
        hold(size + number * ROW_HEADER_BYTES)

    read = read_rows if few else read_columns
    return read(body, count, header.base_timestamp_ms, append_time_us, hold_headers)


def _check_number(number: int, noun: str) -> None:
    if number > STREAM_RECORDS_MAX:
        raise too_large(f"the batch has {number} {noun}; send {STREAM_RECORDS_MAX} at most")
