"""Many records of the log as those of batches, all at once.

Records of one length are written as tables of bytes (`run_writer`). Of others NumPy makes the numbers that
stand before a key and before a value; Arrow lays these, the keys and the values down one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from api.kafka.records.run_writer import write_runs
from api.kafka.records.varint import widths, zigzag
from log_tables.layout import HEADERS, KEY, VALUE


def _constant(data: bytes) -> pa.Scalar:
    # Not pa.scalar: it imports pandas if that is installed, which blocks the event loop for 0.9 s.
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    )[0]


_NOTHING = _constant(b"")
_NO_HEADERS = _constant(b"\0")


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
