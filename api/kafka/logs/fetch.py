"""Fetch: the records of partitions from offsets on, with a wait for them (KIP-74, KIP-227, KIP-516).

There are no fetch sessions: the answer's session id is 0, so a client names all its partitions each time. Any
gateway answers. Kafka gives whole batches; here an answer begins exactly at the offset that was asked for.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby

from api.client_topics import current_topic, know_ids, know_names, known_name_of, known_topic_to_read
from api.kafka.clients.client import Client
from api.kafka.clients.door import ROOM_PAUSE_S, Door
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.clients.read_ahead import ReadAhead
from api.kafka.clients.record_cache import ReadRecords, RecordCache
from api.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from api.kafka.protocol.notation import has_more
from api.kafka.protocol.primitives import Fragments
from api.kafka.records.batch_header import HEADER_BYTES
from api.kafka.records.compression import Compression
from coordinator.access.quota_manager import QuotaKind
from ingest.loop_share import to_its_end
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.errors import AuthorizationFailed, BufferFull, LakelogError, TopicDeleted, UnknownTopic
from log_tables.limits import KAFKA_ANSWER_MAX_BYTES, KAFKA_INLINE_ELEMENTS, READ_SEGMENTS_MAX
from log_tables.partition.partition import Partition

FRESH_S = 0.02
"""How old a look at a partition may be that is led elsewhere, when a fetch begins."""

ROOM_WAIT_S = 5.0
"""How long an answer with records waits for room."""

FOLLOWED_PARTITIONS_MAX = 8
"""Of more partitions, what others were given is looked for in a thread: some 100 µs each."""

INLINE_PARTITIONS_MAX = 64
"""More partitions are looked at in a thread: some 10 µs each."""

ZSTD_SINCE = 10
"""The version of Fetch from which on clients know zstd."""

IDS_SINCE = 13
"""The version of Fetch from which on topics are named by their ids."""

NONE = -1
"""No such offset."""


def _unknown_id() -> UnknownTopic:
    return UnknownTopic("there is no topic with this id; ask for the metadata")


@dataclass(slots=True, eq=False)
class _PartitionRead:
    """A partition of a request: its log, or why there is none, and the batches that are read."""

    asked: FetchPartition
    by_id: bool
    topic: Topic | None = None
    log: Partition | None = None
    error: LakelogError | None = None
    code: ErrorCode = ErrorCode.NONE
    records: ReadRecords | None = None

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

    @property
    def readable(self) -> bool:
        return self.log is not None and self.code is ErrorCode.NONE

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
            records=b"" if self.records is None else Fragments([*chain.from_iterable(self.records.batches)]),
        )


@dataclass(slots=True)
class _Answer:
    """All partitions of a request, by topic in its order."""

    topics: list[tuple[FetchTopic, str, list[_PartitionRead]]] = field(default_factory=list)
    parts: list[_PartitionRead] = field(default_factory=list)

    def add(self, topic: FetchTopic, name: str, parts: list[_PartitionRead]) -> None:
        self.topics.append((topic, name, parts))
        self.parts += parts

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def logs(self) -> list[Partition]:
        return [part.log for part in self.parts if part.log is not None]

    @property
    def failed(self) -> bool:
        return any(part.code is not ErrorCode.NONE for part in self.parts)


async def fetch(door: Door, client: Client, request: FetchRequest, version: int) -> FetchResponse:
    """At most KAFKA_ANSWER_MAX_BYTES, and some seconds of a quota; a client that asked for more asks on from
    there. A client that has used up its quota for long gets nothing, and hears for how long.
    """
    here = door.here
    if client.is_in_debt(QuotaKind.CONSUMER_BYTES):
        return FetchResponse(responses=[])
    wait_s = min(max(request.max_wait_ms, 0), here.settings.fetch_timeout_ms_max) / 1_000
    deadline = here.clock.monotonic() + wait_s
    answer, by_id, share = _Answer(), version >= IDS_SINCE, here.loop_share
    if by_id:
        await know_ids(here, (topic.topic_id.hex() for topic in request.topics))
    else:
        names = (topic.topic for topic in request.topics)
        await know_names(here, names, partial(client.caller.allows, Operation.READ, ResourceType.TOPIC))
    async for topic in share.each(request.topics):
        name = known_name_of(here, topic.topic_id.hex()) if by_id else topic.topic
        answer.add(topic, name or "", await _found(door, client, name, topic, by_id))
    await _open(door, answer.parts)
    await here.tails.follow(answer.logs, FRESH_S)

    async def is_ready(_: Sequence[LakelogError]) -> bool:
        enough = await _available(answer) >= request.min_bytes
        return enough or answer.failed or here.stopping.is_set()

    if await here.tails.wait_until(is_ready, answer.logs, deadline, share):
        _check_again(client, answer)
    began = here.clock.monotonic()
    most = min(max(1, request.max_bytes), KAFKA_ANSWER_MAX_BYTES, max(1, client.fetch_max_bytes))
    available = min(most, await _available(answer))
    if available and await _has_room(door, client, available):
        with client.room.detach():  # the connection gives back its own when it ends, before a thread does
            await _read(door, client, answer, most, _compression(door, version))
        _keep_room(client, answer)
    await _forget_old_topics(door, answer)
    _measure(door, answer, here.clock.monotonic() - began)
    client.charge(QuotaKind.CONSUMER_BYTES, answer.size_bytes)
    return await share.maybe_in_thread(has_more(request, KAFKA_INLINE_ELEMENTS), lambda: _response(answer))


async def _found(
    door: Door, client: Client, name: str | None, asked: FetchTopic, by_id: bool
) -> list[_PartitionRead]:
    share = door.here.loop_share
    parts = [_PartitionRead(each, by_id) async for each in share.each(asked.partitions)]
    try:
        if name is None:
            raise _unknown_id()
        client.caller.check(Operation.READ, ResourceType.TOPIC, name)
        topic = known_topic_to_read(door.here, name)
        if by_id and topic.topic_id != asked.topic_id.hex():
            raise _unknown_id()
    except LakelogError as error:
        async for part in share.each(parts):
            part.fail(error)
        return parts
    for part in parts:
        part.topic = topic
    return parts


async def _open(door: Door, parts: Sequence[_PartitionRead]) -> None:
    """Open the partitions, those that are not open in this process side by side: each asks the store."""

    async def open_late(part: _PartitionRead) -> None:
        async with door.looks.turn:
            await asyncio.to_thread(part.open)

    late = []
    async for part in door.here.loop_share.each(parts):
        topic, number = part.topic, part.asked.partition
        if topic is None:
            continue
        if topic.is_open(number) or not 0 <= number < topic.partition_count:
            part.open()
        else:
            late.append(part)
    await door.looks.each(open_late, late)


async def _available(answer: _Answer) -> int:
    """About the bytes that are there; a partition that cannot be read notes why."""
    parts = [part for part in answer.parts if part.readable]
    if len(parts) <= INLINE_PARTITIONS_MAX and all(
        part.log is not None and part.log.reaches(part.asked.fetch_offset) for part in parts
    ):
        return sum(part.available() for part in parts)
    return await asyncio.to_thread(lambda: sum(part.available() for part in parts))


def _check_again(client: Client, answer: _Answer) -> None:
    """The rights of a client may have changed while it waited."""
    for _, name, parts in answer.topics:
        if any(part.readable for part in parts) and not client.caller.may(
            Operation.READ, ResourceType.TOPIC, name
        ):
            for part in parts:
                part.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _has_room(door: Door, client: Client, limit: int) -> bool:
    """Whether the memory for an answer is there within ROOM_WAIT_S. Without it the answer has no records, and
    the client asks once more.
    """
    until = door.here.clock.monotonic() + ROOM_WAIT_S
    while True:
        try:
            client.room.settle(2 * limit)  # the records that it is made of, too
            return True
        except BufferFull:
            if door.here.clock.monotonic() > until:
                return False
            await asyncio.sleep(ROOM_PAUSE_S)


def _keep_room(client: Client, answer: _Answer) -> None:
    """Hold what the answer takes: more than was asked for, if its first record is larger. Without room for
    that the answer has no records, and the client asks once more. A record that is larger than all the room
    takes all of it.
    """
    try:
        client.room.settle(min(answer.size_bytes, client.room.limit_bytes))
    except BufferFull:
        client.room.settle(0)
        for part in answer.parts:
            part.drop()


def _compression(door: Door, version: int) -> Compression:
    """How records are packed: by a codec that a client of this version knows (KIP-110)."""
    wanted = Compression[door.here.settings.kafka_compression_type.upper()]
    return Compression.NONE if wanted is Compression.ZSTD and version < ZSTD_SINCE else wanted


@dataclass(slots=True)
class _FetchRead:
    """An answer that is read. It may still take `left` bytes; only its first records may be more."""

    cache: RecordCache
    left: int
    compression: Compression
    is_empty: bool = True
    is_over: bool = False

    def keep(self, part: _PartitionRead, records: ReadRecords | None) -> None:
        """Answer these `records`, if they fit."""
        if records is None or (records.size_bytes > part.limit(self.left) and not self.is_empty):
            return  # a record that was read ahead, and is larger than the limit
        part.records = records
        self.left -= records.size_bytes
        self.is_empty = self.is_empty and not records.batches

    async def take(self, part: _PartitionRead, ahead: ReadAhead) -> None:
        """Take what was read ahead."""
        if self.left > 0 and part.log is not None:
            limit = part.limit(self.left)
            self.keep(part, await ahead.take(part.log, part.asked.fetch_offset, limit, self.compression))

    def read(self, parts: Sequence[_PartitionRead]) -> None:
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

    def find(self, parts: Sequence[_PartitionRead]) -> Sequence[_PartitionRead]:
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


async def _read(door: Door, client: Client, answer: _Answer, limit: int, compression: Compression) -> None:
    """Read at most `limit` bytes, of the first partition with records at least one; and what follows, if this
    client will ask for it (KIP-74).
    """
    reading = _FetchRead(door.records, limit, compression)
    parts = [part for part in answer.parts if part.readable]
    for is_ahead, some in groupby(parts, lambda part: part.log in client.ahead):
        asked = [*some]
        if is_ahead:
            for part in asked:
                await reading.take(part, client.ahead)
        await _read_missing(reading, [part for part in asked if part.records is None])
    for part in parts:
        if part.records is not None and part.log is not None:
            client.ahead.note(part.log, part.asked.fetch_offset, part.limit(limit), part.records, compression)


async def _read_missing(reading: _FetchRead, parts: Sequence[_PartitionRead]) -> None:
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


def _begins(parts: Sequence[_PartitionRead]) -> list[tuple[Partition, int]]:
    return [(part.log, part.asked.fetch_offset) for part in parts if part.log is not None]


async def _forget_old_topics(door: Door, answer: _Answer) -> None:
    """See to it that the next request finds the topic as it is now, where this one met an old one."""
    met = {(part.topic, type(part.error)): part.error for part in answer.parts}
    for (topic, _), error in met.items():
        if error is not None and topic is not None:
            with suppress(LakelogError):
                await current_topic(door.here, topic, topic.partition_count, error)


def _measure(door: Door, answer: _Answer, seconds: float) -> None:
    if not answer.size_bytes:
        return
    for _, name, parts in answer.topics:
        records = sum(0 if part.records is None else part.records.count for part in parts)
        if records:
            size = sum(part.size_bytes for part in parts)
            door.here.metrics.topic(name).fetched(records, size, seconds)


def _response(answer: _Answer) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[part.data() for part in parts],
            )
            for topic, _, parts in answer.topics
        ]
    )
