"""Records of the log as the record batches of a fetch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from api.kafka.records.batch_header import APPEND_TIME_BIT, HEADER_BYTES, header_of
from api.kafka.records.column_writer import sizes_of, write_columns
from api.kafka.records.compression import Compression, deflate
from api.kafka.records.varint import write_varint
from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.limits import MIB, NO_TIMESTAMP_MS
from log_tables.record import batch_bytes, cut, header_pairs, int64s
from log_tables.table.log_epochs import FIRST_EPOCH, LogEpochs

BATCH_BYTES = 1 * MIB
"""The largest batch, unless one record is larger: a consumer takes whole batches, up to its limits."""

_PIECE_BYTES = 16 * MIB
_PIECE_RECORDS = 65_536
"""Records that are encoded at once, which takes their bytes once more, and 200 bytes for each. Measured."""

_ROWS_MAX = 100
"""Records that are written one after the other. Measured: for more, columns take less time."""

_NUMBERS_MAX_BYTES = 36
"""The length, the attributes, the two deltas and the sizes of a record."""

_DELTA_MAX = 2**31 - 1
_NULL_SIZE = write_varint(-1)

EncodedBatch: TypeAlias = tuple[bytes, bytes | memoryview]
"""The header of a batch, and its records: to join them would be to copy them."""


def encode_batches(
    batches: Iterable[pa.RecordBatch],
    first_offset: int,
    end_offset: int,
    compression: Compression = Compression.NONE,
    append_time: bool = False,
    epochs: LogEpochs = FIRST_EPOCH,
) -> list[EncodedBatch]:
    """The records of `batches`, which have RECORD_SCHEMA and offsets from `first_offset` up to `end_offset`
    in order, as Kafka's record batches. Each batch is of one of the `epochs`.

    The last batch goes up to `end_offset`, also where compaction has removed the records there: a consumer
    goes on behind them. If it has removed all, one batch without records says so. With `append_time`, the
    records of a batch have one time, that of their append. Timestamps are cut to milliseconds.
    """
    borders = [each.start for each in epochs if first_offset < each.start < end_offset]
    if not borders:
        epoch = epochs.at(first_offset)
        return _of_epoch(batches, first_offset, end_offset, compression, append_time, epoch)
    whole, made = [*batches], list[EncodedBatch]()
    for begin, end in pairwise(dict.fromkeys((first_offset, *borders, end_offset))):
        some = _between(whole, begin, end)
        made += _of_epoch(some, begin, end, compression, append_time, epochs.at(begin))
    return made


def _between(batches: Iterable[pa.RecordBatch], begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records with begin ≤ offset < end."""
    for batch in batches:
        first, last = np.searchsorted(int64s(batch.column(OFFSET)), (begin, end)).tolist()
        if first < last:
            yield batch.slice(first, last - first)


def _of_epoch(
    batches: Iterable[pa.RecordBatch],
    first_offset: int,
    end_offset: int,
    compression: Compression,
    append_time: bool,
    epoch: int,
) -> list[EncodedBatch]:
    parts = chain.from_iterable(_cut(batch, append_time) for batch in _gathered(batches))
    made: list[EncodedBatch] = []
    for part, following in pairwise(chain(parts, [None])):
        assert part is not None
        end = end_offset if following is None else part.last_offset + 1
        made.append(_encoded(part, end, compression, append_time, epoch))
    if not made and first_offset < end_offset:
        nothing = _Batch(first_offset, first_offset, (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS), 0, b"")
        made.append(_encoded(nothing, end_offset, Compression.NONE, append_time, epoch))
    return made


def fitting(batches: Sequence[pa.RecordBatch], limit: int, append_time: bool) -> int:
    """How many of the first records surely take at most `limit` bytes as record batches that are not packed.
    Of small records twice as many may fit.
    """
    least = _NUMBERS_MAX_BYTES + (HEADER_BYTES if append_time else 0)
    ends = np.cumsum(np.concatenate([sizes_of(batch).content() + least for batch in batches]))
    ends += HEADER_BYTES * (2 + 3 * (ends // BATCH_BYTES))  # one that is full follows one that is not
    return int(np.searchsorted(ends, limit, "right"))


def first_of(batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """The first `count` records."""
    found: list[pa.RecordBatch] = []
    for batch in batches:
        if count > 0:
            found.append(batch.slice(0, count))
            count -= batch.num_rows
    return found


@dataclass(frozen=True, slots=True)
class _Batch:
    """The records of one batch; its times are the first and the latest, in milliseconds."""

    base_offset: int
    last_offset: int
    times_ms: tuple[int, int]
    count: int
    body: bytes | memoryview


def _encoded(
    part: _Batch, end_offset: int, compression: Compression, append_time: bool, epoch: int
) -> EncodedBatch:
    attributes = compression | (APPEND_TIME_BIT if append_time else 0)
    last = min(end_offset - 1, part.base_offset + _DELTA_MAX)
    body = part.body if compression is Compression.NONE else deflate(part.body, compression)
    return header_of((part.base_offset, last), attributes, part.times_ms, part.count, body, epoch), body


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of `batches`: small batches joined, large ones in pieces."""
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for piece in _pieces(batch):
            small.append(piece)
            size += batch_bytes(piece)
            if size >= BATCH_BYTES:
                yield _together(small)
                small, size = [], 0
    if small:
        yield _together(small)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, _PIECE_RECORDS):
        yield from cut(batch.slice(begin, _PIECE_RECORDS), _PIECE_BYTES)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _cut(batch: pa.RecordBatch, append_time: bool) -> Iterator[_Batch]:
    if 0 < batch.num_rows <= _ROWS_MAX and batch_bytes(batch) < BATCH_BYTES // 2 and not append_time:
        offsets, times_us = int64s(batch.column(OFFSET)).tolist(), int64s(batch.column(TIMESTAMP)).tolist()
        if offsets[-1] - offsets[0] <= _DELTA_MAX:
            yield _batch_of_rows(batch, offsets, [time_us // 1000 for time_us in times_us])
            return
    if batch.num_rows:
        yield from _batches_of_columns(batch, append_time)


def _batch_of_rows(batch: pa.RecordBatch, offsets: list[int], times_ms: list[int]) -> _Batch:
    base, base_ms = offsets[0], times_ms[0]
    body = write_rows(batch, [offset - base for offset in offsets], [time - base_ms for time in times_ms])
    return _Batch(base, offsets[-1], (base_ms, max(times_ms)), len(offsets), body)


def _batches_of_columns(batch: pa.RecordBatch, append_time: bool) -> Iterator[_Batch]:
    offsets, times_ms = int64s(batch.column(OFFSET)), int64s(batch.column(TIMESTAMP)) // 1000
    sizes = sizes_of(batch)
    begins = _begins(sizes.content() + _NUMBERS_MAX_BYTES, offsets, times_ms if append_time else None)
    ends = np.append(begins[1:], batch.num_rows)
    offset_deltas = offsets - np.repeat(offsets[begins], ends - begins)
    time_deltas = times_ms - np.repeat(times_ms[begins], ends - begins)
    body, places = write_columns(batch, sizes, offset_deltas, time_deltas)
    latest = np.maximum.reduceat(times_ms, begins).tolist()
    for begin, end, latest_ms in zip(begins.tolist(), ends.tolist(), latest, strict=True):
        yield _Batch(
            int(offsets[begin]),
            int(offsets[end - 1]),
            (int(times_ms[begin]), latest_ms),
            end - begin,
            body[places[begin] : places[end]],
        )


def _begins(sizes: np.ndarray, offsets: np.ndarray, times_ms: np.ndarray | None) -> np.ndarray:
    """The rows with which batches begin, so that each has BATCH_BYTES at most and offsets that are near; and
    one time, if `times_ms` are given.
    """
    borders = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=borders[1:])
    changes = np.zeros(0, np.int64) if times_ms is None else np.flatnonzero(np.diff(times_ms)) + 1
    begins, begin = [], 0
    while begin < len(sizes):
        begins.append(begin)
        end = int(np.searchsorted(borders, borders[begin] + BATCH_BYTES, "right")) - 1
        end = min(end, int(np.searchsorted(offsets, offsets[begin] + _DELTA_MAX, "right")))
        change = int(np.searchsorted(changes, begin, "right"))
        if change < len(changes):
            end = min(end, int(changes[change]))
        begin = max(end, begin + 1)
    return np.array(begins)


def write_rows(batch: pa.RecordBatch, offset_deltas: list[int], time_deltas_ms: list[int]) -> bytes:
    """A few records, which have RECORD_SCHEMA, as those of one batch of Kafka, one after the other."""
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
        record += _NULL_SIZE
    else:
        record += write_varint(len(content))
        record += content
