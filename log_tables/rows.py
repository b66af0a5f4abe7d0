"""Records that wait for their segment: a few as rows, many as a batch. One place makes columns of both.

A request of a few records costs no Arrow kernel before the commit, which makes columns of all that it gathers
at once. A request of many records, or one that came as Arrow, is a batch of INPUT_SCHEMA from the beginning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from operator import add
from types import NoneType
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from log_tables.layout import TIMESTAMP
from log_tables.limits import ROW_BYTES, ROW_HEADER_BYTES, ROWS_MAX
from log_tables.record import (
    HEADERS_TYPE,
    INPUT_SCHEMA,
    Buffer,
    batch_bytes,
    binary_array,
    checked_timestamps,
    headers_array,
    int64s,
)

Headers = Sequence[tuple[str, bytes | None]]
Item = TypeVar("Item")


@dataclass(slots=True)  # frozen, it would take longer to make than its lists
class Rows:
    """A few records, in order, which nobody changes. None instead of a list stands for nulls only.

    `timestamps_us` is the time of each in microseconds, or one number for all of them, in the years 1 to
    9999.
    """

    values: Sequence[Buffer | None]
    timestamps_us: Sequence[int] | int
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None
    _counted: int = field(default=-1, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indexes: Iterable[int]) -> "Rows":
        """The rows at `indexes`, in that order."""
        indexes = [*indexes]
        values, keys, headers, times = self.values, self.keys, self.headers, self.timestamps_us
        return Rows(
            [values[index] for index in indexes],
            times if isinstance(times, int) else [times[index] for index in indexes],
            None if keys is None else [keys[index] for index in indexes],
            None if headers is None else [headers[index] for index in indexes],
        )

    def grouped(self, groups: "Sequence[Sequence[int] | np.ndarray]") -> list["Rows"]:
        """The rows at each of `groups`; taken and counted all at once, as a group has mostly a few rows."""
        ordered = self.take(chain.from_iterable(groups))
        sizes, made, begin = ordered.sizes(), [], 0
        for group in groups:
            end = begin + len(group)
            rows = ordered._slice(begin, end)
            rows._counted = rows._in_memory(sum(sizes[begin:end]))
            made.append(rows)
            begin = end
        return made

    def _slice(self, begin: int, end: int) -> "Rows":
        times, keys, headers = self.timestamps_us, self.keys, self.headers
        return Rows(
            self.values[begin:end],
            times if isinstance(times, int) else times[begin:end],
            None if keys is None else keys[begin:end],
            None if headers is None else headers[begin:end],
        )

    def sizes(self) -> list[int]:
        """The bytes of key and value of each row."""
        values = _lengths(self.values)
        return values if self.keys is None else [*map(add, values, _lengths(self.keys))]

    def size_bytes(self) -> int:
        """About the bytes that the rows take in memory, with those of Python's objects; counted once."""
        if self._counted < 0:
            self._counted = self._in_memory(sum(self.sizes()))
        return self._counted

    def _in_memory(self, content: int) -> int:
        """The bytes of the rows, whose keys and values have `content` bytes."""
        size = content + len(self.values) * ROW_BYTES
        if self.headers is None:
            return size
        pairs = [*chain.from_iterable(self.headers)]
        named = sum(len(name) + len(value or b"") for name, value in pairs)
        return size + named + len(pairs) * ROW_HEADER_BYTES

    @property
    def owned(self) -> bool:
        """Whether each value is bytes of its own, and no view of a body that is larger."""
        return {*map(type, self.values)} <= {bytes, NoneType}

    def arrow_bytes(self) -> int:
        """The bytes of the rows as a batch of RECORD_SCHEMA, as `batch_bytes` counts them."""
        count, keys, headers = len(self.values), self.keys, self.headers
        bitmap = -(-count // 8)
        size = sum(self.sizes()) + count * _COLUMNS_BYTES
        size += bitmap * ((keys is None or None in keys) + (None in self.values) + 1)
        if headers is None:
            return size
        pairs = [*chain.from_iterable(headers)]
        if not pairs:
            return size
        named = sum(len(name.encode()) + len(value or b"") for name, value in pairs)
        nulls = any(value is None for _, value in pairs)
        return size + named + len(pairs) * 8 + -(-len(pairs) // 8) * nulls


_COLUMNS_BYTES = 8 + 8 + 4 + 4 + 4
"""A row's offset, time, and where its key, value and headers end."""


def _lengths(items: Sequence[Buffer | None]) -> list[int]:
    try:
        return [*map(len, items)]  # type: ignore[arg-type]
    except TypeError:  # there are nulls, which are rare
        return [0 if item is None else len(item) for item in items]


Records: TypeAlias = Rows | pa.RecordBatch
"""Records that have no offset yet, in either form; a batch has INPUT_SCHEMA."""


def count_of(records: Records) -> int:
    """The number of records."""
    return len(records) if isinstance(records, Rows) else int(records.num_rows)


def bytes_of(records: Records) -> int:
    """About the bytes that `records` take in memory."""
    return records.size_bytes() if isinstance(records, Rows) else batch_bytes(records)


def timestamps_of(records: Records) -> list[int]:
    """The time of each record in microseconds since 1970 UTC."""
    if not isinstance(records, Rows):
        times: list[int] = int64s(records.column(TIMESTAMP)).tolist()
        return times
    times_us = records.timestamps_us
    return [times_us] * len(records) if isinstance(times_us, int) else [*times_us]


def taken(records: Records, indexes: "Sequence[int] | np.ndarray") -> Records:
    """The records at `indexes`, in that order."""
    if isinstance(records, Rows):
        return records.take(indexes)
    return records.take(numbers_array(indexes))


def grouped(records: Records, groups: "Sequence[Sequence[int] | np.ndarray]") -> list[Records]:
    """The records at each of `groups`."""
    if isinstance(records, Rows):
        return [*records.grouped(groups)]
    return [records.take(numbers_array(group)) for group in groups]


def chained(parts: Sequence[Records]) -> Records:
    """Parts of one request, which have the same form, one after the other."""
    rows = [part for part in parts if isinstance(part, Rows)]
    return pa.concat_batches(parts) if len(rows) < len(parts) else joined(rows)


def numbers_array(numbers: "Sequence[int] | np.ndarray") -> pa.Array:
    """`numbers` as an int64 column."""
    # Not pa.array: it imports pandas if that is installed, which blocks the event loop for 0.9 s.
    values = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def rows_or_batch(rows: Rows) -> Records:
    """`rows`, as a batch if they are many."""
    return rows if len(rows) <= ROWS_MAX else as_batch(rows)


def as_batch(records: Records) -> pa.RecordBatch:
    """`records` as one batch of INPUT_SCHEMA."""
    return _columns([records]) if isinstance(records, Rows) else records


def as_batches(parts: Sequence[Records]) -> list[pa.RecordBatch]:
    """All records, in order, as batches of INPUT_SCHEMA: rows that follow one another are one batch."""
    batches: list[pa.RecordBatch] = []
    for are_rows, group in groupby(parts, lambda part: isinstance(part, Rows)):
        alike = [*group]
        batches += [_columns(alike)] if are_rows else alike
    return batches


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several requests, at least one, as one."""
    if len(parts) == 1:
        return parts[0]
    times = {part.timestamps_us if isinstance(part.timestamps_us, int) else None for part in parts}
    return Rows(
        [*chain.from_iterable(part.values for part in parts)],
        parts[0].timestamps_us
        if len(times) == 1 and None not in times
        else [*chain.from_iterable(map(timestamps_of, parts))],
        _chained([part.keys for part in parts], parts, None),
        _chained([part.headers for part in parts], parts, ()),
    )


def _columns(parts: Sequence[Rows]) -> pa.RecordBatch:
    rows = joined(parts)
    count = len(rows)
    columns = [
        checked_timestamps(np.full(count, rows.timestamps_us, np.int64)),
        pa.nulls(count, pa.binary()) if rows.keys is None else binary_array(rows.keys),
        binary_array(rows.values),
        pa.nulls(count, HEADERS_TYPE) if rows.headers is None else headers_array(rows.headers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _chained(
    columns: Sequence[Sequence[Item] | None], parts: Sequence[Rows], empty: Item
) -> list[Item] | None:
    """The lists of `columns` as one; each row of a part without a list has the `empty` item."""
    if not any(column is not None for column in columns):
        return None
    return [
        *chain.from_iterable(
            repeat(empty, len(part)) if column is None else column
            for column, part in zip(columns, parts, strict=True)
        )
    ]
