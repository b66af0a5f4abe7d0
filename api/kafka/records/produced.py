"""A producer's record batch as records of the log: rows, or Arrow columns where there are many.

Many records of a few layouts are read as tables of bytes (`run_reader`). Where there are more layouts, the
lengths of the records are walked one after the other. Each field is then read of all records together, and
Arrow copies keys and values out of the bytes between them.
"""

from array import array
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from api.kafka.records.batch_header import (
    COMPRESSION_BITS,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from api.kafka.records.compression import inflate
from api.kafka.records.errors import invalid, too_large
from api.kafka.records.row_reader import (
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
    check_header_count,
    misfit,
    not_utf8,
    read_rows,
    wrong_times,
)
from api.kafka.records.run_reader import read_runs
from api.kafka.records.varint import LONG, read_varint, read_varints
from api.wire.room import Reserve
from log_tables.limits import ROW_BYTES, ROW_HEADER_BYTES, STREAM_RECORDS_MAX
from log_tables.record import HEADERS_TYPE, INPUT_SCHEMA, checked_timestamps, times_or_append_us
from log_tables.rows import Records

ROWS_MAX = 40
"""Records of a batch that are read one after the other. Measured: for more, columns take less time."""

_RECORD_MIN_BYTES = 7
_COLUMNS_BYTES = 200
"""Memory of a record while it is read into columns, besides its bytes. Measured."""

_FEW = 16
"""So many headers, each of another record, are read faster together than one after the other."""

_ARROW_MAX_BYTES = 2**31 - 1


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


def read_columns(
    body: bytes | memoryview, count: int, base_ms: int, append_time_us: int, hold_headers: Reserve
) -> pa.RecordBatch:
    """The `count` records that `body` has, as INPUT_SCHEMA.

    Raises InvalidBatch, and what `hold_headers` raises, which is told the number of headers.
    """
    if len(body) > _ARROW_MAX_BYTES:
        raise too_large(f"the batch unpacks to {len(body)} bytes; send less than 2 GiB")
    if (alike := read_runs(body, count)) is not None:
        deltas, key_column, value_column = alike
        times = _times(deltas, base_ms, append_time_us)
        return _batch(times, key_column, value_column, None)
    at, ends = _walk(body, count)
    data = np.frombuffer(body, np.uint8)
    if data.take(at, mode="clip").any():
        raise invalid("a record has unknown attributes; send them as 0")
    deltas, at = read_varints(data, at + 1, LONG)
    times = _times(deltas, base_ms, append_time_us)
    deltas, at = read_varints(data, at)
    if (deltas != np.arange(count)).any():
        raise invalid("the offset deltas of the records are not 0, 1, 2 and so on; send them in order")
    keys, at = _read_ranges(data, at)
    values, at = _read_ranges(data, at)
    header_counts, at = read_varints(data, at)
    headers: pa.Array | None = None
    if header_counts.any():
        headers = _read_headers(body, at, header_counts, ends, hold_headers)
    else:
        _check_ends(at, ends)
    key_column, value_column = _columns(body, keys, values)
    return _batch(times, key_column, value_column, headers)


def _batch(times: pa.Array, keys: pa.Array, values: pa.Array, headers: pa.Array | None) -> pa.RecordBatch:
    if headers is None:
        headers = pa.nulls(len(times), HEADERS_TYPE)
    return pa.RecordBatch.from_arrays([times, keys, values, headers], schema=INPUT_SCHEMA)


def _walk(body: bytes | memoryview, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places behind the length of each record, and behind the record."""
    begins, ends = array("q"), array("q")
    begun, ended = begins.append, ends.append
    at = 0
    try:
        for _ in range(count):
            size = body[at]
            if size < 128:
                at += 1
            elif (high := body[at + 1]) < 128:
                size += (high - 1) << 7
                at += 2
            else:
                size, at = read_varint(body, at)
                size <<= 1
            if size & 1 or size < 0:
                raise invalid("a record has a negative length")
            begun(at)
            at += size >> 1
            ended(at)
    except IndexError:
        at = len(body) + 1
    if at > len(body):
        raise invalid(f"the records end within one of them; the batch says that it has {count}")
    if at < len(body):
        raise invalid(f"{len(body) - at} bytes follow the last of {count} records")
    return np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64)


def _times(deltas: np.ndarray, base_ms: int, append_time_us: int) -> pa.Array:
    low, high = base_ms + int(deltas.min()), base_ms + int(deltas.max())
    if low < TIMESTAMP_MIN_MS or high > TIMESTAMP_MAX_MS:
        times = ((index, base_ms + delta) for index, delta in enumerate(deltas.tolist()))
        raise wrong_times(each for each in times if not TIMESTAMP_MIN_MS <= each[1] <= TIMESTAMP_MAX_MS)
    # The sum of two numbers of 64 bits that fits them is right, also where one of them is far outside.
    times_ms = deltas + np.int64(base_ms)
    return checked_timestamps(times_or_append_us(times_ms * 1000, append_time_us))


@dataclass(slots=True)
class _Ranges:
    """Where the keys, or the values, of all records begin and end; a null is empty."""

    begins: np.ndarray
    ends: np.ndarray
    nulls: np.ndarray | None


def _read_ranges(data: np.ndarray, at: np.ndarray) -> tuple[_Ranges, np.ndarray]:
    sizes, at = read_varints(data, at)
    nulls = None
    if (least := sizes.min()) < 0:
        if least < -1:
            raise invalid(f"a key or a value has the length {least}; send -1 for null")
        nulls = sizes < 0
        sizes = np.maximum(sizes, 0)
    ends = at + sizes
    return _Ranges(at, ends, nulls), ends


def _check_ends(at: np.ndarray, ends: np.ndarray) -> None:
    """Raise InvalidBatch unless each record is filled. As no field has a negative length, all of them are
    then where they should be.
    """
    if (wrong := at != ends).any():
        raise misfit(int(wrong.argmax()))


def _columns(body: bytes | memoryview, first: _Ranges, second: _Ranges) -> tuple[pa.Array, pa.Array]:
    """The bytes of both ranges of each record as binary columns.

    A binary column over all of `body` has, for each record, the one, the bytes between them, the other, and
    the bytes before the next record: two of these four are taken.
    """
    count = len(first.begins)
    borders = np.empty(4 * count + 1, np.int32)
    borders[0:-1:4] = first.begins
    borders[1::4] = first.ends
    borders[2::4] = second.begins
    borders[3::4] = second.ends
    borders[-1] = second.ends[-1]
    pieces = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(borders), pa.py_buffer(body)])
    return _taken(pieces, 0, first), _taken(pieces, 2, second)


def _taken(pieces: pa.Array, begin: int, ranges: _Ranges) -> pa.Array:
    count = len(ranges.begins)
    if ranges.nulls is not None and ranges.nulls.all():
        return pa.nulls(count, pa.binary())
    indexes = np.arange(begin, 4 * count, 4, dtype=np.int32)
    column = pieces.take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(indexes)]))
    if ranges.nulls is None:
        return column
    validity = np.packbits(~ranges.nulls, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(validity), *column.buffers()[1:]])


def _read_headers(
    body: bytes | memoryview, at: np.ndarray, counts: np.ndarray, ends: np.ndarray, hold_headers: Reserve
) -> pa.Array:
    """The headers of all records, those of the i-th from `at[i]` to `ends[i]`."""
    wrong = (counts < 0) | (2 * counts > ends - at)
    if wrong.any():
        index = int(wrong.argmax())
        check_header_count(int(counts[index]), int(ends[index] - at[index]))
    borders = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    hold_headers(int(borders[-1]))
    keys, values = _header_ranges(body, at, counts, borders, ends)
    if keys.nulls is not None:
        raise invalid("the key of a header is null; send a text")
    names, contents = _columns(body, keys, values)
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise not_utf8() from None
    items = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    validity = np.packbits(counts > 0, bitorder="little")
    buffers = [pa.py_buffer(validity), pa.py_buffer(borders.astype(np.int32))]
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), buffers, children=[items])


def _header_ranges(
    body: bytes | memoryview, at: np.ndarray, counts: np.ndarray, borders: np.ndarray, ends: np.ndarray
) -> tuple[_Ranges, _Ranges]:
    """Where key and value of each header are: the first ones of all records, then the second ones and so on,
    as long as many records have another one.
    """
    data = np.frombuffer(body, np.uint8)
    places = np.empty((4, borders[-1]), np.int64)
    nulls = np.zeros((2, borders[-1]), bool)
    at = at.copy()
    active = np.flatnonzero(counts)
    read = 0
    while len(active) >= _FEW:
        at_once = borders[active] + read
        where = at[active]
        for field in (0, 1):
            ranges, where = _read_ranges(data, where)
            places[2 * field, at_once] = ranges.begins
            places[2 * field + 1, at_once] = ranges.ends
            if ranges.nulls is not None:
                nulls[field, at_once] = ranges.nulls
        at[active] = where
        read += 1
        active = active[counts[active] > read]
    for index in active.tolist():
        slots = range(borders[index] + read, borders[index + 1])
        at[index] = _walk_headers(body, int(at[index]), (places, nulls), slots)
    _check_ends(at, ends)
    keys, values = (
        _Ranges(places[2 * field], places[2 * field + 1], nulls[field] if nulls[field].any() else None)
        for field in (0, 1)
    )
    return keys, values


def _walk_headers(
    body: bytes | memoryview, at: int, found: tuple[np.ndarray, np.ndarray], slots: range
) -> int:
    """Read the headers of one record from `at` on into `slots` of what is found, and say where they end."""
    places, nulls = found
    try:
        for slot in slots:
            for field in (0, 1):
                size, at = read_varint(body, at)
                if size < -1:
                    raise invalid(f"a header has the length {size}; send -1 for null")
                nulls[field, slot] = size < 0
                places[2 * field, slot] = at
                at += max(size, 0)
                places[2 * field + 1, slot] = at
    except IndexError:
        raise invalid("the headers of a record end behind it") from None
    return at
