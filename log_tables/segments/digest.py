"""A digest of records, by which a rewrite compares the records that it wrote with those that it read.

It depends on every value, on nulls, and on the order, but not on how the records are cut into batches. And
the digest of a file, which the log keeps. Both are against errors, not against forgers: anybody can make one.
"""

from collections.abc import Iterator

import mmh3
import numpy as np
import pyarrow as pa

from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.record import RECORD_SCHEMA, int64s
from log_tables.store.store import Data
from log_tables.table.snapshot import DIGEST_BYTES

_NULL = -1
"""The length of a null."""


def file_digest(data: Data) -> bytes:
    """The digest of the bytes of a file: the lower half of their murmur3 (128 bit, x64, seed 0)."""
    return mmh3.mmh3_x64_128_digest(data)[:DIGEST_BYTES]


class Digest:
    """A digest over batches of RECORD_SCHEMA and declared columns, one `update` each, in order.

    Of each column the lengths go into one hash (murmur3, 128 bit, against accidents and not against forgery)
    and the bytes into another, straight from Arrow's buffers.
    """

    def __init__(self) -> None:
        self._numbers = [mmh3.mmh3_x64_128() for _ in (OFFSET, TIMESTAMP)]
        self._bytes = [_Bytes() for _ in (KEY, VALUE, "a header's key", "a header's value")]
        self._headers = [mmh3.mmh3_x64_128() for _ in ("a record's", "which are null")]
        self._declared: dict[str, _TypedColumn] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the records of `batch`."""
        for field in [*batch.schema][len(RECORD_SCHEMA) :]:
            self._declared.setdefault(field.name, _TypedColumn(field.type)).update(batch.column(field.name))
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
        hashers = [*self._numbers, *self._headers, *(h for pair in self._bytes for h in pair.hashers)]
        hashers += (hasher for _, column in sorted(self._declared.items()) for hasher in column.hashers())
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


class _TypedColumn:
    """The hashes of a declared column: of its nulls, its lengths and its values, part by part."""

    def __init__(self, kind: pa.DataType) -> None:
        self._numbers = [mmh3.mmh3_x64_128() for _ in ("which are null", "values")]
        self._text = _Bytes()
        self._parts: list[_TypedColumn] = []
        if pa.types.is_struct(kind):
            self._parts = [_TypedColumn(kind.field(index).type) for index in range(kind.num_fields)]
        elif pa.types.is_map(kind):
            self._parts = [_TypedColumn(kind.key_type), _TypedColumn(kind.item_type)]
        elif pa.types.is_list(kind):
            self._parts = [_TypedColumn(kind.value_type)]

    def update(self, column: pa.Array) -> None:
        kind, (nulls, values) = column.type, self._numbers
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._text.update(column)
            return
        nulls.update(_nulls(column).data)
        column = column.drop_null() if column.null_count else column
        if len(column) == 0:
            return
        if pa.types.is_struct(kind):
            parts = column.flatten()
        elif pa.types.is_map(kind):
            values.update(_lengths(column).data)
            parts = _pairs(column)
        elif pa.types.is_list(kind):
            values.update(_lengths(column).data)
            parts = [column.flatten()]
        else:
            values.update(_raw(column))
            return
        for part, hashes in zip(parts, self._parts, strict=True):
            hashes.update(part)

    def hashers(self) -> Iterator[mmh3.mmh3_x64_128]:
        yield from self._numbers
        yield from self._text.hashers
        for part in self._parts:
            yield from part.hashers()


def _pairs(column: pa.Array) -> list[pa.Array]:
    """The keys and the items of a map column; Arrow gives those of the column of which it is a slice."""
    ends = _ends(column)
    begin, length = int(ends[0]), int(ends[-1] - ends[0])
    return [column.keys.slice(begin, length), column.items.slice(begin, length)]


def _raw(column: pa.Array) -> memoryview:
    """The bytes of numbers, times or truth values without nulls."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    data = memoryview(column.buffers()[1] or b"").cast("B")
    return data[column.offset * width : (column.offset + len(column)) * width]


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
