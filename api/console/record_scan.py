"""Some records of a topic from a place on, newer or older ones, within bounds. Blocking.

A scan reads so many records, bytes and seconds at most, shared by its partitions, and says where it stopped.
So a search for a rare key is many short requests, which the reader of the page asks for one by one.

Which records of several partitions are the newest goes by when they were appended, because a producer may
give a record any time. A commit has a time, its records do not: those of one segment are taken to have come
evenly since the segment before it.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from api.console.record_decoding import AS_IT_IS, RecordDecoding, Shown, hint_of
from api.console.record_query import RecordFilter
from api.console.record_view import Field
from log_tables.clock import Clock
from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.limits import KIB, MIB, READ_SEGMENTS_MAX
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader
from log_tables.record import batch_bytes, int64s, timestamp_us
from log_tables.table.snapshot import Segment

HEADERS_SHOWN = 20
PARTITIONS_AT_ONCE = 32
"""Partitions of one scan: each costs a look at its table."""


class Bounds(NamedTuple):
    """The most that a scan gives and reads, and what decodes the records that it gives."""

    rows: int = 50
    records: int = 200_000
    size_bytes: int = 64 * MIB
    seconds: float = 2.0
    segments: int = READ_SEGMENTS_MAX
    cut_bytes: int = 4 * KIB
    """Bytes of each key and value that are kept; of a header a sixteenth, as there may be many."""

    decoding: RecordDecoding | None = None


BOUNDS = Bounds()


class Found(NamedTuple):
    """A record of which long parts are cut."""

    partition: int
    offset: int
    timestamp_us: int
    key: Field
    value: Field
    headers: Sequence[tuple[str, Field]]
    header_count: int
    key_shown: Shown = AS_IT_IS
    value_shown: Shown = AS_IT_IS


class Scan(NamedTuple):
    """The records of a scan: of one partition in order, of several by record time, the oldest first. It has
    covered `low` ≤ offset < `high` of each partition.
    """

    rows: Sequence[Found]
    low: Mapping[int, int]
    high: Mapping[int, int]
    scanned: int
    ended: bool
    """Whether a bound has ended it before it had all that it was to give."""


class _PartitionScan(NamedTuple):
    """A scan of one partition, in the order in which it went; it stopped at `position`."""

    rows: Sequence[Found]
    position: int
    scanned: int


class _Budget:
    """The records, bytes and time that a scan of one partition may still take."""

    def __init__(self, records: int, size_bytes: int, segments: int, deadline: float, clock: Clock) -> None:
        self.records, self.size_bytes, self.segments = records, size_bytes, segments
        self._whole, self._deadline, self._clock = records, deadline, clock

    def is_used(self) -> bool:
        """Whether nothing is left. Some records are read in any case, or a scan would never get on."""
        return min(self.records, self.size_bytes) <= 0 or (
            self._clock.monotonic() >= self._deadline and self.scanned > 0
        )

    @property
    def scanned(self) -> int:
        return self._whole - self.records

    def use(self, batch: pa.RecordBatch) -> None:
        self.records -= batch.num_rows
        self.size_bytes -= batch_bytes(batch)


def scanned_after(
    readers: Mapping[int, PartitionReader],
    start: Mapping[int, int],
    wanted: RecordFilter,
    clock: Clock,
    bounds: Bounds = BOUNDS,
    by_time: bool = False,
) -> Scan:
    """The records at or after `start` in each partition that were appended first, as far as they are there;
    `by_time` those of which the record time is first.

    Raises what reading raises.
    """
    begin = {number: _within(reader, start[number]) for number, reader in readers.items()}
    parts = {
        number: _newer(reader, number, begin[number], wanted, bounds, share)
        for number, reader, share in _shares(readers, bounds, clock)
    }
    of_time = {number: [(row.timestamp_us, 0) for row in part.rows] for number, part in parts.items()}
    ranks = of_time if by_time else _appended(readers, parts, 1)
    rows = _first(parts, ranks, bounds.rows)
    high = _ends(parts, rows, beyond=1)
    ended = len(rows) < bounds.rows and any(high[at] < readers[at].high_watermark for at in high)
    return Scan(_sorted(rows), begin, high, sum(part.scanned for part in parts.values()), ended)


def scanned_before(
    readers: Mapping[int, PartitionReader],
    end: Mapping[int, int],
    wanted: RecordFilter,
    clock: Clock,
    bounds: Bounds = BOUNDS,
) -> Scan:
    """The records before `end` in each partition that were appended last, as far as they are there.

    Raises what reading raises.
    """
    stop = {number: _within(reader, end[number]) for number, reader in readers.items()}
    parts = {
        number: _older(reader, number, stop[number], wanted, bounds, share)
        for number, reader, share in _shares(readers, bounds, clock)
    }
    rows = _first(parts, _appended(readers, parts, -1), bounds.rows)
    low = _ends(parts, rows, beyond=0)
    ended = len(rows) < bounds.rows and any(low[at] > readers[at].log_start for at in low)
    return Scan(_sorted(rows[::-1]), low, stop, sum(part.scanned for part in parts.values()), ended)


def record_at(reader: PartitionReader, number: int, offset: int, bounds: Bounds) -> Found | None:
    """The record at `offset`; None if there is none. Raises what reading raises."""
    found = raw_at(reader, offset)
    return None if found is None else next(_found(found, number, bounds))


def raw_at(reader: PartitionReader, offset: int) -> pa.RecordBatch | None:
    """The record at `offset` as a batch of one row, nothing cut."""
    if not reader.log_start <= offset < reader.high_watermark:
        return None
    plan = dataclasses.replace(reader.plan_read(offset, 1, 1), end=offset + 1, limit=None)
    return next((batch.slice(0, 1) for batch in reader.read(plan) if batch.num_rows), None)


def _shares(
    readers: Mapping[int, PartitionReader], bounds: Bounds, clock: Clock
) -> Iterator[tuple[int, PartitionReader, _Budget]]:
    """Each partition with an equal part of the rest: those after it get the part that it does not use."""
    deadline = clock.monotonic() + bounds.seconds
    records, size_bytes, segments = bounds.records, bounds.size_bytes, bounds.segments
    for done, (number, reader) in enumerate(readers.items()):
        rest, now = len(readers) - done, clock.monotonic()
        own = [max(1, -(-whole // rest)) for whole in (records, size_bytes, segments)]
        share = _Budget(own[0], own[1], own[2], now + max(0.0, deadline - now) / rest, clock)
        yield number, reader, share
        records -= own[0] - share.records
        size_bytes -= own[1] - share.size_bytes
        segments -= own[2] - share.segments


def _within(reader: PartitionReader, offset: int) -> int:
    return min(max(offset, reader.log_start), reader.high_watermark)


_Ranks = Mapping[int, Sequence[tuple[int, ...]]]
"""Of each record of each partition its place among those of all: the least comes first."""


def _appended(
    readers: Mapping[int, PartitionReader], parts: Mapping[int, _PartitionScan], sign: Literal[1, -1]
) -> _Ranks:
    """Places by the time of the append, with -1 from the newest on. Where it is the same, each partition has
    its turn.
    """
    return {
        number: [
            (sign * _appended_us(readers[number], row.offset), turn, sign * row.timestamp_us)
            for turn, row in enumerate(part.rows)
        ]
        for number, part in parts.items()
    }


def _appended_us(reader: PartitionReader, offset: int) -> int:
    """About when a record that was read came to the log: see the top of this module."""
    here = reader.log_from(offset)
    if not here.segments:
        return 0  # it was deleted meanwhile
    index = min(here.first_segment(offset), len(here.segments) - 1)
    segment = here.segments[index]
    last_us = segment.modification_time * 1000
    if index:
        first_us = here.segments[index - 1].modification_time * 1000
    else:
        first_us = timestamp_us(segment.min_timestamp)
    first_us = min(first_us, last_us)
    offsets = segment.last_offset + 1 - segment.base_offset
    return first_us + (last_us - first_us) * (offset + 1 - segment.base_offset) // offsets


def _first(parts: Mapping[int, _PartitionScan], ranks: _Ranks, count: int) -> list[Found]:
    """The first `count` rows of all partitions."""
    placed = (zip(ranks[number], part.rows, strict=True) for number, part in parts.items())
    return [row for _, row in islice(merge(*placed, key=itemgetter(0)), count)]


def _sorted(rows: Sequence[Found]) -> Sequence[Found]:
    """The rows of several partitions by record time; those of one stay in order."""
    if len({row.partition for row in rows}) <= 1:
        return rows
    return sorted(rows, key=lambda row: row.timestamp_us)


def _ends(parts: Mapping[int, _PartitionScan], taken: Sequence[Found], beyond: int) -> dict[int, int]:
    """Where each partition goes on: at the first record that was found and not taken, else where its scan
    stopped. `beyond` is 1 where that is after the last one taken, as a scan goes to newer ones.
    """
    counts = dict.fromkeys(parts, 0)
    for row in taken:
        counts[row.partition] += 1
    return {
        number: part.position
        if counts[number] == len(part.rows)
        else part.rows[counts[number]].offset + (1 - beyond)
        for number, part in parts.items()
    }


def _newer(
    reader: PartitionReader, number: int, start: int, wanted: RecordFilter, bounds: Bounds, share: _Budget
) -> _PartitionScan:
    rows: list[Found] = []
    position, end = start, reader.high_watermark
    while position < end and len(rows) < bounds.rows and share.segments > 0 and not share.is_used():
        plan = reader.bound(reader.plan_read(position, share.size_bytes, share.segments))
        share.segments -= len(plan.segments)
        position = plan.end
        for batch in filter(len, reader.read(plan)):
            left = bounds.rows - len(rows)
            part = batch.slice(0, min(share.records, left) if wanted.takes_all else share.records)
            share.use(part)
            matched = wanted.of(part).slice(0, left)
            rows += _found(matched, number, bounds)
            if len(rows) == bounds.rows:
                return _PartitionScan(rows, rows[-1].offset + 1, share.scanned)
            if share.is_used():
                return _PartitionScan(rows, int(int64s(part.column(OFFSET))[-1]) + 1, share.scanned)
    return _PartitionScan(rows, position, share.scanned)


def _older(
    reader: PartitionReader, number: int, end: int, wanted: RecordFilter, bounds: Bounds, share: _Budget
) -> _PartitionScan:
    rows: list[Found] = []
    position = end
    while (
        position > reader.log_start and len(rows) < bounds.rows and share.segments > 0 and not share.is_used()
    ):
        plan = _plan_before(reader, position, wanted, bounds.rows - len(rows), share)
        if plan is None:
            position = reader.log_start
            break
        share.segments -= 1
        last: deque[Found] = deque(maxlen=bounds.rows - len(rows))
        more = False
        for batch in reader.read(plan):
            share.use(batch)
            matched = wanted.of(batch)
            more = more or len(last) + matched.num_rows > bounds.rows - len(rows)
            last.extend(_found(matched.slice(max(0, matched.num_rows - last.maxlen)), number, bounds))
        rows += reversed(last)
        position = rows[-1].offset if more else plan.start
    return _PartitionScan(rows, position, share.scanned)


def _plan_before(
    reader: PartitionReader, end: int, wanted: RecordFilter, rows: int, share: _Budget
) -> ReadPlan | None:
    """The records of one segment that stand directly before `end`; None where there are none."""
    here = reader.log_from(end - 1)
    index = here.first_segment(end - 1)
    if index == len(here.segments) or here.segments[index].base_offset >= end:
        index -= 1
    if index < 0:
        # Its remote part ends where the table begins, and is looked at only for an offset in it.
        is_local = end > here.tiered > here.log_start
        return _plan_before(reader, here.tiered, wanted, rows, share) if is_local else None
    segment = here.segments[index]
    low, high = max(segment.base_offset, here.log_start), min(end, segment.last_offset + 1)
    if low >= high:
        return None
    width = max(1, segment.raw_bytes // segment.records)
    count = min(share.records, max(1, share.size_bytes // width))
    plan = ReadPlan(
        start=low,
        end=high,
        log_start=here.log_start,
        high_watermark=here.high_watermark,
        segments=(segment,),
    )
    begin = _begin(reader, plan, segment, min(count, rows) if wanted.takes_all else count)
    return dataclasses.replace(plan, start=begin)


def _begin(reader: PartitionReader, plan: ReadPlan, segment: Segment, count: int) -> int:
    """Where the last `count` records of a plan begin; of a segment with gaps its offsets are read."""
    if plan.end - plan.start <= count:
        return plan.start
    if segment.dense:
        return plan.end - count
    offsets = [int64s(batch.column(OFFSET)) for batch in reader.read(plan, (OFFSET,))]
    joined = np.concatenate(offsets) if offsets else np.zeros(0, np.int64)
    return plan.start if len(joined) <= count else int(joined[-count])


def _found(batch: pa.RecordBatch, number: int, bounds: Bounds) -> Iterator[Found]:
    """The rows of a batch; only their beginnings become objects, however long they are."""
    offsets, times = int64s(batch.column(OFFSET)).tolist(), int64s(batch.column(TIMESTAMP)).tolist()
    keys, values = (_contents(batch.column(name), bounds.cut_bytes) for name in (KEY, VALUE))
    headers = batch.column(HEADERS)
    rows = zip(offsets, times, keys, values, _shown(batch, values, bounds), strict=True)
    for row, (offset, time_us, key, value, shown) in enumerate(rows):
        listed = headers[row].values
        some = () if listed is None else _headers(listed.slice(0, HEADERS_SHOWN), bounds.cut_bytes)
        yield Found(number, offset, time_us, key, value, some, 0 if listed is None else len(listed), *shown)


def _shown(batch: pa.RecordBatch, values: Sequence[Field], bounds: Bounds) -> Iterable[tuple[Shown, Shown]]:
    if bounds.decoding is None:
        return [(AS_IT_IS, Shown(None, hint_of(value))) for value in values]
    return bounds.decoding.of(batch, bounds.cut_bytes)


def _headers(items: pa.StructArray, cut_bytes: int) -> list[tuple[str, Field]]:
    names = items.field("key").to_pylist()
    return [*zip(names, _contents(items.field("value"), cut_bytes // 16), strict=True)]


def _contents(column: pa.Array, cut_bytes: int) -> list[Field]:
    sizes = pc.fill_null(pc.binary_length(column), 0).to_pylist()
    return [*map(Field, pc.binary_slice(column, 0, cut_bytes).to_pylist(), sizes)]
