"""A digest of records, by which a rewrite compares the records that it wrote with those that it read.

It depends on every value, on nulls, and on the order, but not on how the records are cut into batches.
"""

import mmh3
import numpy as np
import pyarrow as pa

from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.record import int64s

_NULL = -1
"""The length of a null."""


class Digest:
    """A digest over RECORD_SCHEMA batches, one `update` each, in order.

    Of each column the lengths go into one hash (murmur3, 128 bit, against accidents and not against forgery)
    and the bytes into another, straight from Arrow's buffers.
    """

    def __init__(self) -> None:
        self._numbers = [mmh3.mmh3_x64_128() for _ in (OFFSET, TIMESTAMP)]
        self._bytes = [_Bytes() for _ in (KEY, VALUE, "a header's key", "a header's value")]
        self._headers = [mmh3.mmh3_x64_128() for _ in ("a record's", "which are null")]

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the records of `batch` (RECORD_SCHEMA)."""
        for hasher, name in zip(self._numbers, (OFFSET, TIMESTAMP), strict=True):
            hasher.update(int64s(batch.column(name)).data)
        headers = batch.column(HEADERS)
        self._headers[0].update(_lengths(headers).data)
        columns = [batch.column(KEY), batch.column(VALUE)]
        if headers.null_count < len(headers):
            pairs = headers.flatten()
            self._headers[1].update(_nulls(pairs).data)
            columns += pairs.flatten()
        for hashers, column in zip(self._bytes, columns, strict=False):
            hashers.update(column)

    def value(self) -> bytes:
        """The digest of all records so far: 16 bytes."""
        hashers = (*self._numbers, *self._headers, *(h for pair in self._bytes for h in pair.hashers))
        return mmh3.mmh3_x64_128_digest(b"".join(hasher.digest() for hasher in hashers))


class _Bytes:
    """The hashes of a binary or string column."""

    def __init__(self) -> None:
        self.hashers = (mmh3.mmh3_x64_128(), mmh3.mmh3_x64_128())

    def update(self, column: pa.Array) -> None:
        if len(column) == 0:
            return
        lengths, data = self.hashers
        lengths.update(_lengths(column).data)
        if column.null_count:
            column = column.drop_null()  # there may be bytes where a null is
        if len(column):
            ends = _ends(column)
            data.update(memoryview(column.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])])


def _lengths(column: pa.Array) -> np.ndarray:
    """The length of each item of a binary, string or list column (int32), _NULL of a null."""
    if column.null_count == len(column):
        return np.full(len(column), _NULL, np.int32)
    lengths = np.diff(_ends(column))
    if column.null_count:
        lengths[_nulls(column)] = _NULL
    return lengths


def _ends(column: pa.Array) -> np.ndarray:
    """Where each item begins in the data of a binary, string or list column, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _nulls(column: pa.Array) -> np.ndarray:
    """Which items are null (bool)."""
    validity = column.buffers()[0]
    if validity is None:
        return np.zeros(len(column), np.bool_)
    bits = np.frombuffer(validity, np.uint8)[column.offset // 8 :]
    skipped = column.offset % 8
    valid = np.unpackbits(bits, count=skipped + len(column), bitorder="little")[skipped:]
    return np.logical_not(valid)
