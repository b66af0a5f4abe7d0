"""Records as Kafka's clients get them, read and encoded once for all that ask for them soon.

Groups that follow the end of a log ask for the same records, each a little later than the first. They are
given the stretches that the first was given, from memory.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from api.kafka.records.compression import Compression
from api.kafka.records.fetched import EncodedBatch, encode_batches, first_of, fitting
from log_tables.layout import OFFSET
from log_tables.limits import ENCODED_BYTES, ENCODED_COST_BYTES, ENCODED_STRETCHES_MAX, READ_SEGMENTS_MAX
from log_tables.partition.partition import Partition
from log_tables.partition.read_plan import check_offset
from log_tables.record import int64s
from log_tables.table.snapshot import Snapshot

FOLLOW_S = 0.05
"""How long a fetch waits for another one that reads from the same offset on."""


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Batches that answer a fetch from an offset on; `end` is the offset behind them."""

    end: int
    batches: Sequence[EncodedBatch]
    count: int
    size_bytes: int


class _Key(NamedTuple):
    """The table, by its id, the offset at which a stretch begins, and how it is encoded."""

    table: str
    offset: int
    compression: Compression
    append_time: bool


class _Stretch(NamedTuple):
    """Records, and the files that they were read from, where these may be compacted by key once more."""

    records: ReadRecords
    files: tuple[str, ...]


class RecordCache:
    """Stretches up to the end of a log that were answered lately, at most `limit_bytes`; the oldest go first.
    Thread-safe, but for `reading` and `others_read`, which are used on the event loop.
    """

    def __init__(self, limit_bytes: int = ENCODED_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Stretch] = OrderedDict()
        self._bytes = 0
        self._reads: dict[_Key, asyncio.Future[None]] = {}

    @contextmanager
    def reading(self, begins: Iterable[tuple[Partition, int]], compression: Compression) -> Iterator[None]:
        """Let others know, within the context, that somebody reads from these offsets on."""
        over = asyncio.get_running_loop().create_future()
        keys = [_key(log, offset, compression) for log, offset in begins]
        self._reads |= dict.fromkeys(keys, over)
        try:
            yield
        finally:
            over.set_result(None)
            for key in keys:
                if self._reads.get(key) is over:
                    del self._reads[key]

    async def others_read(self, log: Partition, offset: int, compression: Compression) -> bool:
        """Wait for another that reads from `offset` on, FOLLOW_S at most: a commit wakes all groups at the
        end of a log at once. Returns whether there is one.
        """
        reading = self._reads.get(_key(log, offset, compression))
        if reading is not None:
            await asyncio.wait([reading], timeout=FOLLOW_S)
        return reading is not None

    def read(
        self, log: Partition, offset: int, limit: int, compression: Compression, needs_one: bool = True
    ) -> ReadRecords:
        """Batches of at most `limit` bytes from `offset` on: the stretches that are kept, and what follows
        them if they are few. A record that is larger is read alone if the answer `needs_one`, else there is
        no batch. Blocking.

        Raises what `PartitionReader.plan_read`, `bound` and `read` raise.
        """
        log.plan_read(offset, 1, 1)  # whether the log still has it
        found = self._stretches(log, offset, limit, compression, needs_one)
        kept = _joined(offset, found)
        if _is_enough(log, kept, limit):
            return kept
        here, key = log.snapshot, _key(log, kept.end, compression)  # before the read, as both may change
        made = read_records(log, kept.end, limit - kept.size_bytes, compression, needs_one and not found)
        # Who is behind would drive out what all at the end ask for.
        if made.end >= here.high_watermark and key.append_time == log.config.log_append_time:
            self._keep(key, _Stretch(made, _files(here, kept.end, made.end)))
        return _joined(offset, [*found, made])

    def find(
        self, log: Partition, offset: int, limit: int, compression: Compression, needs_one: bool = True
    ) -> ReadRecords | None:
        """The answer of `read`, if all of it is kept; else None. Raises InvalidOffset, OffsetOutOfRange."""
        here = log.snapshot
        if offset < here.tiered:
            return None
        check_offset(here, offset)
        kept = _joined(offset, self._stretches(log, offset, limit, compression, needs_one))
        return kept if _is_enough(log, kept, limit) else None

    def _stretches(
        self, log: Partition, offset: int, limit: int, compression: Compression, needs_one: bool
    ) -> list[ReadRecords]:
        """The stretches that are kept from `offset` on, one after the other."""
        found: list[ReadRecords] = []
        here, left, key = log.snapshot, limit, _key(log, offset, compression)
        with self._lock:
            while len(found) < ENCODED_STRETCHES_MAX:
                kept = self._kept.get(key)
                if kept is None or kept.files != _files(here, key.offset, kept.records.end):
                    break
                alone = needs_one and not found and kept.records.count <= 1
                if kept.records.size_bytes > left and not alone:
                    break
                found.append(kept.records)
                left -= kept.records.size_bytes
                key = key._replace(offset=kept.records.end)
        return found

    def _keep(self, key: _Key, stretch: _Stretch) -> None:
        size = _size(stretch)
        if stretch.records.end == key.offset or size > self._limit:
            return  # the first is no stretch: the end of the log, or a record that is too large
        with self._lock:
            before = self._kept.pop(key, None)
            self._kept[key] = stretch
            self._bytes += size - (0 if before is None else _size(before))
            while self._bytes > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= _size(gone)


def _files(here: Snapshot, offset: int, end: int) -> tuple[str, ...]:
    """The files with the records from `offset` to `end`, if the log is compacted by key beyond `offset`: only
    there may records be removed before the log begins behind them.
    """
    return tuple(each.path for each in here.between(offset, end)) if offset < here.cleaned else ()


def _joined(offset: int, parts: Sequence[ReadRecords]) -> ReadRecords:
    """Records from `offset` on, in parts that follow one another."""
    if len(parts) == 1:
        return parts[0]
    batches = [*chain.from_iterable(each.batches for each in parts)]
    count, size = sum(each.count for each in parts), sum(each.size_bytes for each in parts)
    return ReadRecords(parts[-1].end if parts else offset, batches, count, size)


def _is_enough(log: Partition, kept: ReadRecords, limit: int) -> bool:
    """Whether `kept` answers a fetch: it fills half of the answer, or the log ends there."""
    return bool(kept.batches) and (2 * kept.size_bytes >= limit or kept.end >= log.high_watermark)


def _key(log: Partition, offset: int, compression: Compression) -> _Key:
    return _Key(log.snapshot.metadata.id, offset, compression, log.config.log_append_time)


def _size(stretch: _Stretch) -> int:
    """The bytes that a stretch takes, with the objects around it."""
    return stretch.records.size_bytes + ENCODED_COST_BYTES * (1 + len(stretch.records.batches))


def read_records(
    log: Partition, offset: int, limit: int, compression: Compression, needs_one: bool = True
) -> ReadRecords:
    """Batches of at most `limit` bytes from `offset` on, read from the log. A record that is larger is read
    alone if the answer `needs_one`, else there is no batch. Blocking. Raises as `RecordCache.read`.
    """
    plan = log.bound(log.plan_read(offset, limit, READ_SEGMENTS_MAX))
    rows, end = [batch for batch in log.read(plan) if batch.num_rows], plan.end
    epochs = log.snapshot.log_epochs  # those of what is planned are in any later snapshot, too
    while True:
        batches = encode_batches(rows, plan.start, end, compression, log.config.log_append_time, epochs)
        count, size = sum(batch.num_rows for batch in rows), sum(map(len, chain.from_iterable(batches)))
        if size <= limit or (needs_one and count <= 1):
            return ReadRecords(end, batches, count, size)
        if count <= 1:
            return ReadRecords(offset, (), 0, 0)
        # The plan goes by the average of a segment, and these records are larger.
        fit = fitting(rows, limit, log.config.log_append_time)
        rows = first_of(rows, max(1, min(fit, count - 1)))
        end = int(int64s(rows[-1].column(OFFSET))[-1]) + 1
