"""Many records of the log whose keys have one length, and whose values have one, as those of batches.

Where the numbers of a record take as many bytes as those of the one before, too, such records are a table of
bytes, and each field is some columns of it (see `run_reader`).
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from api.kafka.records.varint import widths, write_varint

RUN_RECORDS = 32
"""In shorter runs, on average, records are not written faster than others."""

_ATTRIBUTES = _NO_HEADERS = b"\0"


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
    keys, values = map(_table, batch_columns, lengths)
    fixed = len(_ATTRIBUTES + key_size + value_size + _NO_HEADERS) + keys.shape[1] + values.shape[1]
    sizes = time_widths + offset_widths + fixed
    places = np.zeros(len(times) + 1, np.int64)
    np.cumsum(sizes + widths((sizes << 1).view(np.uint64)), out=places[1:])
    made = np.empty(places[-1], np.uint8)
    for begin, end in pairwise([0, *borders.tolist(), len(times)]):
        fields = [
            _constant(write_varint(int(sizes[begin])) + _ATTRIBUTES),
            _numbers(times[begin:end], int(time_widths[begin])),
            _numbers(offsets[begin:end], int(offset_widths[begin])),
            _constant(key_size),
            keys[begin:end],
            _constant(value_size),
            values[begin:end],
            _constant(_NO_HEADERS),
        ]
        _lay_down(fields, made[places[begin] : places[end]].reshape(end - begin, -1))
    return made.data, places


def _table(column: pa.Array, lengths: np.ndarray) -> np.ndarray:
    """The content of a binary column whose items have one length, a row for each."""
    size = max(0, int(lengths[0]))
    if not size:
        return np.empty((len(column), 0), np.uint8)
    first = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset])
    return np.frombuffer(column.buffers()[2], np.uint8)[first : first + size * len(column)].reshape(-1, size)


def _constant(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _numbers(values: np.ndarray, width: int) -> np.ndarray:
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
