"""The records behind those that a client has been given, read while it takes these.

A consumer that is far behind asks for one stretch of a partition after the other. From the second one on, the
next is read in a thread before it is asked for, as an operating system reads a file ahead. The right to read
it, and whether the log still has it, are looked at when it is asked for.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from api.kafka.clients.record_cache import ReadRecords, RecordCache
from api.kafka.records.compression import Compression
from ingest.buffer import Buffer, Room
from log_tables.errors import BufferFull, LakelogError
from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.partition.partition import Partition

KEPT_S = 5.0
"""How long a client may take to ask for what is read ahead."""

PARTITIONS_AHEAD_MAX = 8
"""Of one client, at once."""


@dataclass(slots=True, eq=False)
class _PendingRead:
    """Records that a client will ask for, as far as can be told. Their `room` is given back when they are
    taken or dropped.
    """

    cache: RecordCache
    log: Partition
    offset: int
    limit: int
    compression: Compression
    room: Room
    began: float
    records: "asyncio.Future[ReadRecords | None]" = field(init=False)
    is_dropped: bool = False

    async def read(self, turn: asyncio.Lock) -> ReadRecords | None:
        """None where it cannot be read: then the fetch says why."""
        try:
            async with turn:
                found = await self._read()
        except LakelogError:
            found = None
        except BaseException:
            self.room.settle(0)
            raise
        try:
            self.room.settle(0 if found is None or self.is_dropped else found.size_bytes)
        except BufferFull:  # a record is larger than all that is left
            self.room.settle(0)
            return None
        return found

    async def _read(self) -> ReadRecords | None:
        if self.is_dropped:
            return None
        return await asyncio.to_thread(self.cache.read, self.log, self.offset, self.limit, self.compression)

    def drop(self) -> None:
        """Nobody asks for it. A thread that reads it gives its room back when it is done."""
        self.is_dropped = True
        if self.records.done():
            self.room.settle(0)


class ReadAhead:
    """Reads ahead for one connection; what it reads takes room in `buffer`. Used on the event loop."""

    def __init__(self, buffer: Buffer, share: str, cache: RecordCache) -> None:
        self._buffer, self._share, self._cache = buffer, share, cache
        self._reads: dict[Partition, _PendingRead] = {}
        self._ends: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        self._turn = asyncio.Lock()

    def note(
        self, log: Partition, offset: int, limit: int, read: ReadRecords, compression: Compression
    ) -> None:
        """The client gets `read`, which it asked for from `offset` on with this `limit`."""
        goes_on = self._ends.get(log) == offset
        self._ends[log] = read.end
        if goes_on and 2 * read.size_bytes > limit and self._has_more(log, read.end, limit):
            self._begin(log, read.end, limit, compression)

    def _has_more(self, log: Partition, offset: int, limit: int) -> bool:
        """Whether the log has as much again, as far as is known without I/O."""
        if not log.reaches(offset):
            return False
        try:
            plan = log.plan_read(offset, limit, READ_SEGMENTS_MAX)
        except LakelogError:
            return False
        size = sum(each.raw_bytes for each in plan.segments)
        return plan.end < log.high_watermark and 2 * size > limit

    def _begin(self, log: Partition, offset: int, limit: int, compression: Compression) -> None:
        size = 2 * limit  # the records that it is made of, too
        # Half of the room is for those who ask now.
        is_short = self._buffer.used + size > self._buffer.limit_bytes // 2
        if is_short or len(self._reads) >= PARTITIONS_AHEAD_MAX:
            return
        room = self._buffer.room(self._share)
        try:
            room.settle(size)
        except BufferFull:
            return
        if log in self._reads:  # a Fetch may name a partition twice
            self._reads.pop(log).drop()
        pending = _PendingRead(
            self._cache, log, offset, limit, compression, room, asyncio.get_running_loop().time()
        )
        pending.records = asyncio.ensure_future(pending.read(self._turn))
        self._reads[log] = pending

    def __contains__(self, log: object) -> bool:
        """Whether something of this partition is read ahead."""
        return log in self._reads

    async def take(
        self, log: Partition, offset: int, limit: int, compression: Compression
    ) -> ReadRecords | None:
        """The records from `offset` on, if they were read ahead for a fetch like this one."""
        pending = self._reads.pop(log, None)
        if pending is None:
            return None
        if (pending.offset, pending.compression) != (offset, compression) or pending.limit > limit:
            pending.drop()
            return None
        try:
            return await asyncio.shield(pending.records)
        finally:
            pending.drop()

    def expire(self, now: float) -> None:
        """Drop what nobody has asked for, by the time of the event loop."""
        self._drop(lambda pending: now - pending.began > KEPT_S)

    def close(self) -> None:
        """Drop all: the client has left."""
        self._drop(lambda _: True)

    def _drop(self, which: Callable[[_PendingRead], bool]) -> None:
        for log, pending in [*self._reads.items()]:
            if which(pending):
                del self._reads[log]
                pending.drop()
