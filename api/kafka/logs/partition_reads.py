"""The partitions of a Fetch: their logs, or why there are none, and the batches that are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby

from api.kafka.clients.door import NO_LEADER_EPOCH
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.clients.read_ahead import ReadAhead
from api.kafka.clients.record_cache import ReadRecords, RecordCache
from api.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    LeaderIdAndEpoch,
    PartitionData,
)
from api.kafka.protocol.primitives import Fragments
from api.kafka.records.batch_header import HEADER_BYTES
from api.kafka.records.compression import Compression
from ingest.loop_share import to_its_end
from log_tables.cluster.topic import Topic
from log_tables.errors import AuthorizationFailed, LakelogError, TopicDeleted, UnknownTopic
from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.partition.partition import Partition

FOLLOWED_PARTITIONS_MAX = 8
"""Of more partitions, what others were given is looked for in a thread: some 100 µs each."""

NONE = -1
"""No such offset, or no gateway."""


@dataclass(slots=True, eq=False)
class PartitionRead:
    """A partition of a request: its log, or why there is none, and the batches that are read."""

    asked: FetchPartition
    by_id: bool
    topic: Topic | None = None
    log: Partition | None = None
    error: LakelogError | None = None
    code: ErrorCode = ErrorCode.NONE
    records: ReadRecords | None = None
    read_at: int = NONE
    """The gateway that the client is to read from."""

    leader: LeaderIdAndEpoch | None = None
    """Another gateway that leads it."""

    diverging: EpochEndOffset | None = None
    """Where the log and that of the client part, if it has read on from there in another one."""

    def fail(self, error: LakelogError) -> None:
        self.error, self.code, self.records = error, error_code(error), None
        if isinstance(error, AuthorizationFailed):
            self.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif self.by_id and isinstance(error, UnknownTopic | TopicDeleted):
            self.code = ErrorCode.UNKNOWN_TOPIC_ID

    def open(self) -> None:
        """Open its log; blocking where it is not open yet."""
        if self.topic is not None:
            try:
                self.log = self.topic.partition(self.asked.partition)
            except LakelogError as error:
                self.fail(error)

    def compare(self) -> None:
        """Find out whether the record before the offset is the one that the client has read, if it says of
        which epoch that is. Only what a later epoch proves counts: the end of the log may not be known here.
        """
        last, offset = self.asked.last_fetched_epoch, self.asked.fetch_offset
        if last > NO_LEADER_EPOCH and self.log is not None:
            epoch, end = self.log.snapshot.log_epochs.end_of(last, offset)
            if end < offset:
                self.diverging = EpochEndOffset(epoch, end)

    @property
    def readable(self) -> bool:
        is_there = self.log is not None and self.code is ErrorCode.NONE
        return is_there and self.read_at == NONE and self.diverging is None

    def drop(self) -> None:
        """Answer none of the records that are read."""
        self.records = None

    def available(self) -> int:
        """About the bytes of an answer with the records from the offset on; 0 where that is an error.

        Offsets whose records compaction has removed count as a byte each: the answer says that they are gone.
        """
        assert self.log is not None
        try:
            self.log.check_live()
            plan = self.log.plan_read(
                self.asked.fetch_offset, max(1, self.asked.partition_max_bytes), READ_SEGMENTS_MAX
            )
        except LakelogError as error:
            self.fail(error)
            return 0
        count = plan.end - plan.start
        if not plan.segments or not count:
            return count
        width = sum(each.raw_bytes for each in plan.segments) // sum(each.records for each in plan.segments)
        return HEADER_BYTES + max(1, width) * count

    def limit(self, left: int) -> int:
        """The bytes that it may read where `left` are left for the whole answer."""
        return min(left, max(1, self.asked.partition_max_bytes))

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes

    def data(self) -> PartitionData:
        """As the answer has it."""
        number, here = self.asked.partition, None if self.log is None else self.log.snapshot
        if here is None or self.code is not ErrorCode.NONE:
            return PartitionData(
                partition_index=number,
                error_code=self.code,
                high_watermark=NONE if here is None else here.high_watermark,
                log_start_offset=NONE if here is None else here.log_start,
                records=b"",
            )
        return PartitionData(
            partition_index=number,
            high_watermark=here.high_watermark,
            last_stable_offset=here.high_watermark,
            log_start_offset=here.log_start,
            diverging_epoch=self.diverging,
            current_leader=self.leader,
            preferred_read_replica=self.read_at,
            records=b"" if self.records is None else Fragments([*chain.from_iterable(self.records.batches)]),
        )


@dataclass(slots=True)
class FetchRead:
    """An answer that is read. It may still take `left` bytes; only its first records may be more."""

    cache: RecordCache
    left: int
    compression: Compression
    is_empty: bool = True
    is_over: bool = False

    def keep(self, part: PartitionRead, records: ReadRecords | None) -> None:
        """Answer these `records`, if they fit."""
        if records is None or (records.size_bytes > part.limit(self.left) and not self.is_empty):
            return  # a record that was read ahead, and is larger than the limit
        part.records = records
        self.left -= records.size_bytes
        self.is_empty = self.is_empty and not records.batches

    async def take(self, part: PartitionRead, ahead: ReadAhead) -> None:
        """Take what was read ahead."""
        if self.left > 0 and part.log is not None:
            limit = part.limit(self.left)
            self.keep(part, await ahead.take(part.log, part.asked.fetch_offset, limit, self.compression))

    def read(self, parts: Sequence[PartitionRead]) -> None:
        """Read them one after the other, until the answer is full or nobody waits for it. Blocking."""
        for part in parts:
            if self.left > 0 and part.log is not None and not self.is_over:
                try:
                    limit, needed = part.limit(self.left), self.is_empty
                    found = self.cache.read(
                        part.log, part.asked.fetch_offset, limit, self.compression, needed
                    )
                    self.keep(part, found)
                except LakelogError as error:
                    part.fail(error)

    def find(self, parts: Sequence[PartitionRead]) -> Sequence[PartitionRead]:
        """Take those that others have just been given, up to the first that is to be read; returns the rest:
        an earlier partition comes first where the answer gets full.
        """
        for index, part in enumerate(parts):
            if self.left <= 0:
                return ()
            if part.log is None:
                continue
            limit, needed = part.limit(self.left), self.is_empty
            try:
                found = self.cache.find(part.log, part.asked.fetch_offset, limit, self.compression, needed)
            except LakelogError as error:
                part.fail(error)
                continue
            if found is None:
                return parts[index:]
            self.keep(part, found)
        return ()

    def end(self) -> None:
        """Read no further."""
        self.is_over = True


async def read_parts(parts: Sequence[PartitionRead], reading: FetchRead, ahead: ReadAhead) -> None:
    """Read for one answer, of the first partition with records at least one; and what follows, if its client
    will ask for it (KIP-74).
    """
    limit, compression = reading.left, reading.compression
    for is_ahead, some in groupby(parts, lambda part: part.log in ahead):
        asked = [*some]
        if is_ahead:
            for part in asked:
                await reading.take(part, ahead)
        await _read_missing(reading, [part for part in asked if part.records is None])
    for part in parts:
        if part.records is not None and part.log is not None:
            ahead.note(part.log, part.asked.fetch_offset, part.limit(limit), part.records, compression)


async def _read_missing(reading: FetchRead, parts: Sequence[PartitionRead]) -> None:
    """Take what others have been given, wait for who reads the first that is missing, and read the rest."""
    if not parts or reading.left <= 0:
        return
    if len(parts) > FOLLOWED_PARTITIONS_MAX:
        await to_its_end(partial(reading.read, parts), reading.end)
        return
    missing = reading.find(parts)
    for log, offset in _begins(missing[:1]):
        if await reading.cache.others_read(log, offset, reading.compression):
            missing = reading.find(missing)
    if missing and reading.left > 0:
        with reading.cache.reading(_begins(missing), reading.compression):
            await to_its_end(partial(reading.read, missing), reading.end)


def _begins(parts: Sequence[PartitionRead]) -> list[tuple[Partition, int]]:
    return [(part.log, part.asked.fetch_offset) for part in parts if part.log is not None]
