"""Many records of the log as those of batches, all at once.

Where keys have one length, values have one, and the numbers of a record take as many bytes as those of the
one before, records are written as tables of bytes: each field is some columns of it (see `run_reader`). Of
others NumPy makes the numbers that stand before a key and before a value; Arrow lays these, the keys and the
values down one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from api.kafka.records.varint import widths, write_varint, zigzag
from log_tables.layout import HEADERS, KEY, VALUE

RUN_RECORDS = 32
"""In shorter runs, on average, records are not written faster than others."""

_ATTRIBUTES = _HEADER_COUNT = b"\0"


def _constant(data: bytes) -> pa.Scalar:
    # Not pa.scalar: it imports pandas if that is installed, which blocks the event loop for 0.9 s.
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    )[0]


_NOTHING = _constant(b"")
_NO_HEADERS = _constant(_HEADER_COUNT)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of each record's key and value, -1 for a null, and of its headers; and how many it has."""

    keys: np.ndarray
    values: np.ndarray
    header_counts: np.ndarray
    header_ends: np.ndarray
    headers: pa.Buffer | None

    def content(self) -> np.ndarray:
        """The bytes of each record without its numbers."""
        content: np.ndarray = np.diff(self.header_ends)
        content += np.maximum(self.keys, 0)
        content += np.maximum(self.values, 0)
        return content


def sizes_of(batch: pa.RecordBatch) -> Sizes:
    """The sizes of the records of `batch`, which has RECORD_SCHEMA; its headers are made at once."""
    headers = batch.column(HEADERS)
    counts = np.maximum(_lengths(headers), 0)
    ends = np.zeros(batch.num_rows + 1, np.int64)
    written: pa.Buffer | None = None
    if counts.any():
        items = _written_headers(headers.flatten())
        borders = np.zeros(batch.num_rows + 1, np.int64)
        np.cumsum(counts, out=borders[1:])
        ends = _offsets(items)[borders]
        written = items.buffers()[2]
    return Sizes(_lengths(batch.column(KEY)), _lengths(batch.column(VALUE)), counts, ends, written)


def write_columns(
    batch: pa.RecordBatch, sizes: Sizes, offset_deltas: np.ndarray, time_deltas_ms: np.ndarray
) -> tuple[memoryview, np.ndarray]:
    """The records of `batch` as bytes, and where each begins in them, with the end of the last one."""
    times, offsets = zigzag(time_deltas_ms), zigzag(offset_deltas)
    if sizes.headers is None:
        alike = write_runs(
            (batch.column(KEY), batch.column(VALUE)), (sizes.keys, sizes.values), offsets, times
        )
        if alike is not None:
            return alike
    keys, values, counts = zigzag(sizes.keys), zigzag(sizes.values), zigzag(sizes.header_counts)
    numbers = sum(map(widths, (times, offsets, keys, values, counts)), np.int64(1))
    lengths = zigzag(sizes.content() + numbers)
    before = [lengths, np.zeros(len(times), np.uint64), times, offsets, keys]
    parts: list[pa.Array | pa.Scalar]
    if batch.column(KEY).null_count == batch.num_rows:
        parts = [_numbers([*before, values])]
    else:
        parts = [_numbers(before), batch.column(KEY), _numbers([values])]
    parts.append(batch.column(VALUE))
    if sizes.headers is None:
        parts.append(_NO_HEADERS)
    else:
        parts += [_numbers([counts]), _binary(sizes.header_ends, sizes.headers)]
    joined = _joined(parts)
    return memoryview(joined.buffers()[2]), _offsets(joined)


def _written_headers(items: pa.StructArray) -> pa.Array:
    names, contents = items.flatten()
    names = pc.fill_null(names.view(pa.binary()), _NOTHING)
    before, between = zigzag(_lengths(names)), zigzag(_lengths(contents))
    return _joined([_numbers([before]), names, _numbers([between]), contents])


def _joined(parts: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement=b"")


def _numbers(columns: Sequence[np.ndarray]) -> pa.Array:
    """The variable-length integers of all `columns` (uint64), those of one row together."""
    rows = len(columns[0])
    sizes = [widths(column) for column in columns]
    most = [int(size.max()) for size in sizes]
    made = np.empty((rows, sum(most)), np.uint8)
    used = np.ones((rows, sum(most)), bool)
    at = 0
    for column, size, columns_most in zip(columns, sizes, most, strict=True):
        for index in range(columns_most):
            low = (column >> np.uint64(7 * index)).astype(np.uint8) & 127
            made[:, at] = low | (size > index + 1).astype(np.uint8) << 7
            used[:, at] = size > index
            at += 1
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(sum(sizes), out=ends[1:])
    return _binary(ends, pa.py_buffer(made.reshape(-1) if used.all() else made[used]))


def _binary(ends: np.ndarray, data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), data]
    )


def _lengths(column: pa.Array) -> np.ndarray:
    """The bytes, or the items, of each element; -1 for a null."""
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    lengths = np.diff(_offsets(column))
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
        lengths[bits[column.offset : column.offset + len(column)] == 0] = -1
    return lengths


def _offsets(column: pa.Array) -> np.ndarray:
    """Where each element of a binary or list column begins, and where the last one ends."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def write_runs(
    batch_columns: tuple[pa.Array, pa.Array],
    lengths: tuple[np.ndarray, np.ndarray],
    offsets: np.ndarray,
    times: np.ndarray,
) -> tuple[memoryview, np.ndarray] | None:
    """The records with these keys and values (binary, at least one) as bytes, and where each begins in them,
    with the end of the last one.

    `lengths` are those of the keys and of the values, -1 for a null; `offsets` and `times` are the deltas
    (uint64, after zigzag). No record has headers. None where the lengths differ, or runs are short.
    """
    time_widths, offset_widths = widths(times), widths(offsets)
    borders = np.flatnonzero(np.diff(time_widths << 4 | offset_widths)) + 1
    if len(borders) * RUN_RECORDS > len(times) or any((each != each[0]).any() for each in lengths):
        return None
    key_size, value_size = (write_varint(int(each[0])) for each in lengths)
    keys, values = map(_content_table, batch_columns, lengths)
    fixed = len(_ATTRIBUTES + key_size + value_size + _HEADER_COUNT) + keys.shape[1] + values.shape[1]
    sizes = time_widths + offset_widths + fixed
    places = np.zeros(len(times) + 1, np.int64)
    np.cumsum(sizes + widths((sizes << 1).view(np.uint64)), out=places[1:])
    made = np.empty(places[-1], np.uint8)
    for begin, end in pairwise([0, *borders.tolist(), len(times)]):
        fields = [
            _row(write_varint(int(sizes[begin])) + _ATTRIBUTES),
            _number_table(times[begin:end], int(time_widths[begin])),
            _number_table(offsets[begin:end], int(offset_widths[begin])),
            _row(key_size),
            keys[begin:end],
            _row(value_size),
            values[begin:end],
            _row(_HEADER_COUNT),
        ]
        _lay_down(fields, made[places[begin] : places[end]].reshape(end - begin, -1))
    return made.data, places


def _content_table(column: pa.Array, lengths: np.ndarray) -> np.ndarray:
    """The content of a binary column whose items have one length, a row for each."""
    size = max(0, int(lengths[0]))
    if not size:
        return np.empty((len(column), 0), np.uint8)
    first = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset])
    return np.frombuffer(column.buffers()[2], np.uint8)[first : first + size * len(column)].reshape(-1, size)


def _row(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _number_table(values: np.ndarray, width: int) -> np.ndarray:
    """The variable-length integers of `values` (uint64), each of `width` bytes."""
    made = np.empty((len(values), width), np.uint8)
    for index in range(width):
        made[:, index] = values >> np.uint64(7 * index) & np.uint64(127)
    made[:, :-1] |= 128
    return made


def _lay_down(fields: list[np.ndarray], table: np.ndarray) -> None:
    """Write each field, one row for all records or one for each, behind the one before."""
    at = 0
    for field in fields:
        table[:, at : at + field.shape[-1]] = field
        at += field.shape[-1]
