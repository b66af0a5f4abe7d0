"""Records of a batch that follow one another in runs of one layout, as Arrow columns.

Where each number of a record takes as many bytes as that of the one before, and key and value are as long,
the records of a run are a table of bytes, and each field is some columns of it. So records of one length,
such as readings of sensors, take a fraction of the time of others.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from api.kafka.records.errors import InvalidBatch
from api.kafka.records.varint import LONG, read_varint, unzigzag

FIRST_RECORDS = 4
"""So many records at the beginning have to be equally long, before a run is looked for."""

RUN_RECORDS = 32
"""In shorter runs, on average, records are not read faster than others."""

LOOKED_AT = 256
"""Records behind the first of a run that are looked at at once; if all are alike, more and more of them. So
what is looked at in vain is bounded by what is read.
"""

_GROWTH = 8
_NUMBER_BYTES = 8
"""A number of more bytes is left to other readers."""

_CONTENT_MAX_BYTES = 2**31 - 1

_SAME, _GOES_ON = 0xFF, 0x80
"""The bits that a byte shares with that of the record before: all, or the one by which a number goes on."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the fields of a record are, from its first byte on. A null key or value ends where it begins."""

    size: int
    time: range
    offset: range
    key: range
    value: range
    nulls: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class _Run:
    """The bytes of records of one layout, a row for each."""

    layout: _Layout
    table: np.ndarray

    def numbers(self, places: range) -> np.ndarray:
        """The number of each record that these bytes are, as uint64, with the sign in the lowest bit."""
        value = self.table[:, places[-1]].astype(np.uint64)
        for place in reversed(places[:-1]):
            value = value << np.uint64(7) | self.table[:, place] & np.uint8(127)
        return value


def read_runs(body: bytes | memoryview, count: int) -> "tuple[np.ndarray, pa.Array, pa.Array] | None":
    """The time deltas (int64), keys and values of the `count` records that `body` has.

    None where the records have headers or too many layouts, or are not right: another reader says why.
    """
    runs = _runs_of(np.frombuffer(body, np.uint8), body, count)
    if runs is None:
        return None
    offset_deltas = _joined([run.numbers(run.layout.offset) for run in runs])
    if (offset_deltas != np.arange(0, 2 * count, 2, dtype=np.uint64)).any():
        return None
    times = unzigzag(_joined([run.numbers(run.layout.time) for run in runs]))
    return times, _column(runs, 0), _column(runs, 1)


def _runs_of(data: np.ndarray, body: bytes | memoryview, count: int) -> list[_Run] | None:
    runs: list[_Run] = []
    at = done = 0
    while done < count:
        layout = _layout(body, at)
        if layout is None or not (runs or _begin_alike(body, at, layout)):
            return None
        most = min(count - done, (len(data) - at) // layout.size)
        table = data[at : at + most * layout.size].reshape(most, layout.size)
        run = _Run(layout, table[: _alike(table, layout)])
        runs.append(run)
        done += len(run.table)
        at += len(run.table) * layout.size
        if done < RUN_RECORDS * (len(runs) - 1):
            return None
    return runs if at == len(data) <= _CONTENT_MAX_BYTES else None


def _layout(body: bytes | memoryview, at: int) -> _Layout | None:
    """The layout of the record at `at`."""
    begin = at
    try:
        size, at = read_varint(body, at)
        end = at + size
        if size < 0 or end > len(body) or body[at]:
            return None
        time = at + 1
        _, offset = read_varint(body, time, LONG)
        _, key_size = read_varint(body, offset)
        keys, key = read_varint(body, key_size)
        key_end = key + max(keys, 0)
        values, value = read_varint(body, key_end)
        value_end = value + max(values, 0)
        if min(keys, values) < -1 or value_end + 1 != end or body[value_end]:
            return None
    except (IndexError, InvalidBatch):
        return None
    if max(offset - time, key_size - offset) > _NUMBER_BYTES:
        return None
    return _Layout(
        end - begin,
        range(time - begin, offset - begin),
        range(offset - begin, key_size - begin),
        range(key - begin, key_end - begin),
        range(value - begin, value_end - begin),
        (keys < 0, values < 0),
    )


def _begin_alike(body: bytes | memoryview, at: int, layout: _Layout) -> bool:
    """Whether the records from `at` on are worth a closer look: it costs as much as to read ten of them."""
    length = body[at : at + layout.time.start]
    places = range(at, at + FIRST_RECORDS * layout.size, layout.size)
    return all(body[place : place + len(length)] == length for place in places)


def _alike(table: np.ndarray, layout: _Layout) -> int:
    """How many records have the layout of the first one."""
    done, step = 1, LOOKED_AT
    while done < len(table):
        part = table[done - 1 : done + step]
        differ = _differ_from_first(part, layout)
        if differ.any():
            return done - 1 + int(differ.argmax())
        done, step = done - 1 + len(part), step * _GROWTH
    return done


def _differ_from_first(table: np.ndarray, layout: _Layout) -> np.ndarray:
    """For each record, whether its layout differs from the first one's."""
    before, between = layout.key.start, layout.value.start - layout.key.stop
    width = -(-(before + between + 1) // 8) * 8
    masks, heads = np.zeros(width, np.uint8), np.zeros((len(table), width), np.uint8)
    masks[: before + between + 1] = _SAME
    masks[[*layout.time, *layout.offset]] = _GOES_ON
    heads[:, :before] = table[:, :before]
    heads[:, before : before + between] = table[:, layout.key.stop : layout.value.start]
    heads[:, before + between] = table[:, -1]
    words = heads.view(np.uint64)
    differ = np.zeros(len(table), np.uint64)
    for word, mask in enumerate(masks.view(np.uint64)):
        differ |= (words[:, word] ^ words[0, word]) & mask
    return differ.astype(bool)


def _column(runs: list[_Run], field: int) -> pa.Array:
    """The keys (`field` 0) or the values (1) of all runs as a binary column."""
    places = [(run.layout.key, run.layout.value)[field] for run in runs]
    nulls, counts = [run.layout.nulls[field] for run in runs], [len(run.table) for run in runs]
    count, size = sum(counts), len(places[0])
    if all(nulls):
        return pa.nulls(count, pa.binary())
    if all(len(each) == size for each in places):
        ends = np.arange(0, size * count + 1, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)
    else:
        ends = np.zeros(count + 1, np.int32)
        np.cumsum(np.repeat([*map(len, places)], counts), out=ends[1:])
    content = [run.table[:, each.start : each.stop].ravel() for run, each in zip(runs, places, strict=True)]
    validity = None
    if any(nulls):
        validity = pa.py_buffer(np.packbits(~np.repeat(nulls, counts), bitorder="little"))
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(_joined(content))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
