"""Produce: one record batch for each partition, appended in the order of arrival (KIP-98)."""

import asyncio
from dataclasses import dataclass
from functools import partial

from api.client_topics import know_ids, know_names, known_name_of, known_topic_to_write, refreshed_topic
from api.kafka.clients.client import Client
from api.kafka.clients.door import ROOM_PAUSE_S, Door
from api.kafka.clients.errors import ErrorCode, Refusal, error_code
from api.kafka.logs.culprits import RefusedRecords, check_keys, refused_records
from api.kafka.logs.produce_answer import (
    EMPTY_LOG_START,
    NO_OFFSET,
    Coming,
    PendingAppend,
    answered,
    forgotten,
    response_of,
    unknown_id,
)
from api.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from api.kafka.records.batch_header import follows_another, is_packed
from api.kafka.records.errors import InvalidBatch, too_large
from api.kafka.records.produced import DecodedBatch, decode_batch
from api.wire.offload import INLINE_MAX_JUDGED, INLINE_MAX_JUDGED_BYTES, computed
from coordinator.access.principal import author_of
from coordinator.groups.producers.producer_wire import Batch
from ingest.buffer import Room
from ingest.writer import Acks
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.route import Route, SentRecords
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    AuthorizationFailed,
    BufferFull,
    InvalidRecord,
    LakelogError,
    RecordTooLarge,
    UnknownPartition,
)
from log_tables.limits import ONCE_PRODUCER_ID_MIN, PART_BYTES
from log_tables.partition.partition import AppendRequest, Author, ProducerStamp
from log_tables.rows import Records, bytes_of, count_of
from log_tables.topic_partition import TopicIdPartition

_ACKS = {0: Acks.NONE, 1: Acks.LEADER, -1: Acks.ALL}

INLINE_BATCH_BYTES = 64 * 1024
"""A larger batch is decoded in a thread: on the event loop it would hold up others for milliseconds."""

INLINE_PACKED_BYTES = 16 * 1024
"""The same for one that is compressed."""

IMPLICIT_PARTITIONS_SINCE = 12
"""The version of Produce whose batches add their partitions to their transaction (KIP-890)."""

IDS_SINCE = 13
"""The version of Produce from which on topics are named by their ids."""

_REFUSED_BY_TOPIC = (InvalidRecord, RecordTooLarge, UnknownPartition)
"""Refusals that depend on the known state of the topic."""


@dataclass(frozen=True, slots=True)
class _Append:
    """How a request is to be answered, and whether it names topics by their ids. `transaction` is the
    transactional id of its batches, if any; they add their partitions to it themselves if they are `implicit`
    (KIP-890).
    """

    acks: Acks
    timeout_s: float
    by_id: bool
    transaction: str | None
    implicit: bool


async def produce(
    door: Door, client: Client, request: ProduceRequest, version: int, room: Room
) -> "asyncio.Future[ProduceResponse | None]":
    """The answer to come, None with acks=0. When this returns, every batch is sequenced, refused, or in its
    line. `room` is that of the frame.
    """
    began, acks = door.here.clock.monotonic(), _ACKS.get(request.acks)
    coming: list[list[Coming]] = []
    by_id = version >= IDS_SINCE
    if by_id:
        await know_ids(door.here, (each.topic_id.hex() for each in request.topic_data))
    else:
        names = (each.name for each in request.topic_data)
        await know_names(door.here, names, partial(client.caller.allows, Operation.WRITE, ResourceType.TOPIC))
    denied = _may_transact(client, request)
    async for topic in door.here.loop_share.each(request.topic_data):
        found = await _topic_of(door, client, topic, by_id)
        if denied is not None and not isinstance(found, Refusal):
            found = denied
        if acks is None:
            found = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; use 0, 1 or -1")
        if isinstance(found, Refusal):
            refused = door.here.loop_share.each(topic.partition_data)
            coming.append([_unplaced(part, found) async for part in refused])
            continue
        timeout_s = max(request.timeout_ms, 1) / 1_000
        implicit = version >= IMPLICIT_PARTITIONS_SINCE
        asked = _Append(acks or Acks.ALL, timeout_s, by_id, request.transactional_id, implicit)
        coming.append(
            [
                await _begin(door, client, (found, part.index), part, asked, room)
                async for part in door.here.loop_share.each(topic.partition_data)
            ]
        )
    return asyncio.ensure_future(answered(door, request, coming, began))


def _may_transact(client: Client, request: ProduceRequest) -> Refusal | None:
    """Why the records of a transactional id are refused."""
    name = request.transactional_id
    if name is None or client.caller.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return None
    why = f"the principal may not write by the transactional id {name[:100]!r}"
    return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)


def _follows(part: PartitionProduceData) -> bool:
    return follows_another(memoryview(part.records or b""))


def _unplaced(part: PartitionProduceData, refusal: Refusal) -> PartitionProduceResponse:
    """The answer for a batch whose topic was not found, or may not be written to."""
    if refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and _follows(part):
        return response_of(part.index, forgotten(refusal.message), EMPTY_LOG_START)
    return response_of(part.index, refusal)


async def _topic_of(door: Door, client: Client, asked: TopicProduceData, by_id: bool) -> Topic | Refusal:
    name = known_name_of(door.here, asked.topic_id.hex()) if by_id else asked.name
    if name is None:
        return unknown_id()
    try:
        client.caller.check(Operation.WRITE, ResourceType.TOPIC, name)
        topic = await known_topic_to_write(door.here, name)
        if any(not 0 <= part.index < topic.partition_count for part in asked.partition_data):
            topic = await refreshed_topic(door.here, topic)  # once for all of them
        return unknown_id() if by_id and topic.topic_id != asked.topic_id.hex() else topic
    except AuthorizationFailed as error:
        # A client that has only the id of a topic does not learn its name.
        why = "not allowed" if by_id else error.message
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    except LakelogError as error:
        return Refusal(error_code(error), error.message)


async def _begin(
    door: Door,
    client: Client,
    at: tuple[Topic, int],
    part: PartitionProduceData,
    asked: "_Append",
    room: Room,
) -> "Coming":
    """Give the batch of one partition to the pipeline."""
    if not 0 <= at[1] < at[0].partition_count:
        message = f"topic {at[0].name} has no partition {at[1]}; it has 0 to {at[0].partition_count - 1}"
        return response_of(part.index, UnknownPartition(message))
    own = door.here.buffer.room(at[0].name)
    try:
        batch = await _decoded(door, part, own, asked.timeout_s, room)
        at, refused = await _judged(door, at, batch, asked.by_id)
        if batch.is_transactional:
            return await _stage(door, at, part, batch, asked, own, room, refused)
        entry = _entry(batch, refused, author_of(client.caller.identified))
        own.settle(entry.size_bytes + PART_BYTES)
    except (Refusal, InvalidBatch, LakelogError) as error:
        own.settle(0)
        return response_of(part.index, error)
    except BaseException:
        own.settle(0)
        raise
    size, follows = len(part.records or b""), _follows(part)
    part.records = None  # it would keep the whole request
    room.settle(max(0, room.size_bytes - size))
    outcome = door.pipeline.append(client, at, entry, asked.acks, own, asked.timeout_s)
    return PendingAppend(at[0], asked.by_id, follows, size, outcome, refused)


async def _stage(
    door: Door,
    at: tuple[Topic, int],
    part: PartitionProduceData,
    batch: DecodedBatch,
    asked: "_Append",
    own: Room,
    room: Room,
    refused: RefusedRecords | None,
) -> "Coming":
    """Stage a batch until its transaction is committed. Raises RefusedRecords, Refusal."""
    if refused is not None:
        raise refused
    if asked.transaction is None or batch.producer_id < 0:
        raise Refusal(ErrorCode.INVALID_TXN_STATE, "the batch is of a transaction; name its transactional id")
    own.settle(bytes_of(batch.records) + PART_BYTES)
    size, follows = len(part.records or b""), _follows(part)
    part.records = None  # it would keep the whole request
    room.settle(max(0, room.size_bytes - size))
    topic, partition = at
    place = TopicIdPartition(topic.name, topic.topic_id, partition)
    stamp = asked.transaction, batch.producer_id, batch.producer_epoch, batch.base_sequence
    staged = Batch(*stamp, place, asked.implicit, count_of(batch.records))
    outcome = await door.here.stager.stage(staged, batch.records, own)
    return PendingAppend(topic, asked.by_id, follows, size, outcome, None)


async def _decoded(
    door: Door, part: PartitionProduceData, own: Room, timeout_s: float, room: Room
) -> DecodedBatch:
    """The records of a batch, once there is room for them besides that of the frame. Raises InvalidBatch,
    BufferFull, Refusal.
    """
    data = part.records
    if not data:
        raise Refusal(ErrorCode.INVALID_RECORD, "the partition has no record batch; send one")
    most = own.limit_bytes - door.here.buffer.needed(room.size_bytes)
    decode = partial(
        decode_batch,
        memoryview(data),
        int(door.here.settings.max_request_bytes),
        door.here.clock.now_us(),
        partial(_hold, own, most),
    )
    deadline = door.here.clock.monotonic() + timeout_s
    with door.room_line.place() as place:
        while True:
            try:
                batch = await computed(decode) if _takes_long(data) else decode()
                break
            except BufferFull:
                own.settle(0)
                if door.here.clock.monotonic() > deadline or place.gives_way():
                    raise
                await asyncio.sleep(ROOM_PAUSE_S)
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise Refusal(ErrorCode.INVALID_RECORD, "a producer with an id has an epoch and a sequence, too")
    if batch.producer_id >= ONCE_PRODUCER_ID_MIN:
        raise Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer {batch.producer_id} is lakelog's own; use the id that InitProducerId gave",
        )
    return batch


def _takes_long(data: bytes | bytearray | memoryview) -> bool:
    """Whether the batch `data` may take milliseconds to read: packed, it may be many times as large."""
    return len(data) > (INLINE_PACKED_BYTES if is_packed(memoryview(data)) else INLINE_BATCH_BYTES)


def _hold(own: Room, most: int, size_bytes: int) -> None:
    """Take room for what is made of a batch. Raises BufferFull; InvalidBatch for more than the `most` that
    there ever is.
    """
    if size_bytes > most:
        raise too_large(
            f"the batch takes {size_bytes} bytes while it is read, buffer_memory leaves {most}; "
            "send fewer records at once"
        )
    own.grow(size_bytes)


async def _judged(
    door: Door, at: tuple[Topic, int], batch: DecodedBatch, by_id: bool
) -> tuple[tuple[Topic, int], RefusedRecords | None]:
    """The topic as it is now, and why it refuses a batch that may be a repeat of an older one.

    Records for an id are for no other topic of its name. Raises RefusedRecords for one that is no repeat,
    Refusal, UnknownPartition.
    """
    topic, partition = at
    now_us = door.here.clock.now_us()
    try:
        await _check(topic, partition, batch.records, now_us)
        return at, None
    except _REFUSED_BY_TOPIC:
        known = topic
        topic = await refreshed_topic(door.here, known)
        if by_id and topic.topic_id != known.topic_id:
            raise unknown_id() from None
    try:
        await _check(topic, partition, batch.records, now_us)
        return (topic, partition), None
    except (InvalidRecord, RecordTooLarge):
        refused = await computed(partial(refused_records, topic, batch.records, now_us))
        if refused is not None and (batch.producer_id < 0 or refused.code is ErrorCode.MESSAGE_TOO_LARGE):
            raise refused from None
    return (topic, partition), refused


def _entry(batch: DecodedBatch, refused: RefusedRecords | None, author: Author | None) -> AppendRequest:
    """The append of a batch. A `refused` one is appended nowhere, as the log does not end where it expects it
    to; but if it is a repeat, the leader knows its sequence.
    """
    stamp = None
    if batch.producer_id >= 0:
        stamp = ProducerStamp(batch.producer_id, batch.producer_epoch, batch.base_sequence)
    return AppendRequest(batch.records, stamp, None if refused is None else NO_OFFSET, author=author)


async def _check(topic: Topic, partition: int, records: Records, now_us: int) -> None:
    """Raise what `Route.split` and `check_keys` raise for what the topic refuses."""
    split = partial(Route(topic, partition, 0, now_us).split, SentRecords(records))
    if topic.config.required_columns.columns and (
        topic.config.needs_schemas
        or count_of(records) > INLINE_MAX_JUDGED
        or bytes_of(records) > INLINE_MAX_JUDGED_BYTES
    ):
        await computed(split)
    else:
        split()
    check_keys(topic, records)
