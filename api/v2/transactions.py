"""Transactions: records for several partitions and the offsets they were made from, all or nothing."""

from functools import partial
from hashlib import blake2b
from typing import Annotated

from fastapi import APIRouter, Header
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import is_current, look_up_wanted, topic_to_write
from api.errors import UnsupportedMediaType, error_responses
from api.gateway import Gateway
from api.media import Format, content_format
from api.requests.access import caller_of, check_each
from api.requests.appending import is_much
from api.requests.body import room_of, take_body
from api.requests.envelope import V2Response
from api.requests.group_route import GroupRoute
from api.requests.heads import content_type
from api.requests.route_gateway import gateway
from api.v2.consumer_schema import GroupName, InstanceName
from api.v2.produce_schema import TRANSACTION_BODY
from api.wire.offload import INLINE_MAX_BYTES, INLINE_MAX_ROWS, is_large, maybe_in_thread
from api.wire.room import hold
from api.wire.transaction import TransactionBody, TransactionTopics, decode_transaction
from coordinator.access.caller import Caller
from coordinator.groups.transactions.transaction_coordinator import TransactionRequest, TransactionResult
from ingest.buffer import Room
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import AppendedRange, check_retry_key
from log_tables.cluster.route import Route, SentRecords
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidValue, RetryKeyReused, UnknownPartition, UnknownTopic
from log_tables.rows import as_batch, bytes_of
from log_tables.segments.staging import PartitionRecords

router = APIRouter(
    prefix="/consumers/{group}",
    tags=["v2 consumers"],
    default_response_class=V2Response,
    route_class=GroupRoute,
)

_ERRORS = error_responses(400, 404, 408, 409, 413, 415, 416, 422, 429, 503)
_RetryKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        description="The retry key of the transaction. A repeat with the same key and body is answered like "
        "the first request and not executed again.",
    ),
]


class PlacedRecords(BaseModel):
    """A run of consecutive records in one partition."""

    topic: str
    partition: int
    base_offset: int | None = Field(
        description="The offset of the first record; null if it is not known, or not yet."
    )
    count: int


class TransactionDone(BaseModel):
    """A committed transaction."""

    transaction: int = Field(description="The number of the transaction within its group.")
    offsets: list[PlacedRecords]
    earlier: bool = Field(
        description="Whether an earlier request with this retry key has committed other staged files. The "
        "files of this request are then not used."
    )


@router.post(
    "/instances/{instance}/transactions",
    summary="Commit offsets and records atomically, as an instance",
    response_model=TransactionDone,
    responses=_ERRORS,
    openapi_extra=TRANSACTION_BODY,
)
async def transact_as_member(
    request: Request, group: GroupName, instance: InstanceName, retry_key: _RetryKey = ""
) -> Response:
    """Each `offset` is that of the last record that the instance has *processed*, in a partition that it
    owns. The answer is sent when all records and offsets are durable.
    """
    return await _transact(request, group, instance, retry_key)


@router.post(
    "/transactions",
    summary="Commit offsets and records atomically, as a group",
    response_model=TransactionDone,
    responses=_ERRORS,
    openapi_extra=TRANSACTION_BODY,
)
async def transact(request: Request, group: GroupName, retry_key: _RetryKey = "") -> Response:
    """For clients that keep their own positions. Each `offset` is that of the *next* record to read. 409
    while members share topics.
    """
    return await _transact(request, group, None, retry_key)


async def _transact(request: Request, group_id: str, member_id: str | None, key: str) -> Response:
    here, form = gateway(request), content_format(content_type(request.scope))
    if form.kind is not None:
        raise UnsupportedMediaType(
            f"a transaction takes no {form.value}; send values that are encoded as binary or Arrow"
        )
    check_retry_key(key)
    with room_of(here, request).detach() as room:  # given back before the wait for the result
        body = take_body(request)
        digest = await maybe_in_thread(len(body) > INLINE_MAX_BYTES, partial(_digest, body, form))
        retry = key, digest
        asked, repeated, earlier = caller_of(request.scope), None, False
        if key:
            repeated, earlier = await _find_repeat(here, room, group_id, retry, body, form)
        transaction = repeated or await _commit(here, asked, room, group_id, member_id, retry, body, form)
        del body
    ranges = await transaction.where()
    if repeated is not None:  # the body may name others than the first one did
        asked.check_all(Operation.WRITE, ResourceType.TOPIC, sorted({each.topic for each in ranges}))
    return await maybe_in_thread(
        len(ranges) > INLINE_MAX_ROWS, lambda: _answer(transaction.number, ranges, earlier)
    )


def _digest(body: bytes, form: Format) -> str:
    return blake2b(body, digest_size=16, key=form.name.encode()).hexdigest()


async def _find_repeat(
    here: Gateway, room: Room, group_id: str, retry: tuple[str, str], body: bytes, form: Format
) -> tuple[TransactionResult | None, bool]:
    """The transaction that has this retry key already, and whether its content differs.

    Only a request with staged files may differ: a client that repeats its work after a crash stages new
    files. Raises RetryKeyReused for any other.
    """
    try:
        return await here.coordinator.find_repeat(group_id, *retry), False
    except RetryKeyReused:
        large = is_large(body, form)
        sent = await maybe_in_thread(large, lambda: decode_transaction(body, form, room, here.clock.now_us()))
        if not sent.frame.staged:
            raise
    found = await here.coordinator.find_repeat(group_id, retry[0], None)
    return found, found is not None


async def _commit(
    here: Gateway,
    asked: Caller,
    room: Room,
    group_id: str,
    member_id: str | None,
    retry: tuple[str, str],
    body: bytes,
    form: Format,
) -> TransactionResult:
    """The transaction, committed. If a topic was re-created in the meantime, its records go to the new topic.

    Raises the errors of `GroupCoordinator.transact`.
    """
    large = is_large(body, form)
    while True:
        sent = await maybe_in_thread(large, lambda: decode_transaction(body, form, room, here.clock.now_us()))
        records_bytes = sum(bytes_of(each.records) for each in sent.records.values())
        hold(room, len(body) + 2 * records_bytes)  # they are copied
        elements, step = sent.elements, 0 if member_id is None else 1
        named = await maybe_in_thread(large, partial(sent.named, step))
        with here.access.named(asked.context, len(named.written) + len(named.read), elements):
            request, size_bytes = await _request(here, asked, sent, named, retry, large)
            del sent, named
            room.settle(len(body) + size_bytes)
            try:
                return await here.coordinator.transact(group_id, member_id, request)
            except (UnknownTopic, UnknownPartition):
                await here.shard_manager.refresh_topics()
                if all(is_current(here, part.topic, part.topic_id) for part in request.parts):
                    raise


async def _request(
    here: Gateway,
    asked: Caller,
    sent: TransactionBody,
    named: TransactionTopics,
    retry: tuple[str, str],
    large: bool,
) -> tuple[TransactionRequest, int]:
    """The request to the group's coordinator, and the size of its records in bytes. Raises
    AuthorizationFailed.
    """
    frame = sent.frame
    await check_each(here, asked, Operation.WRITE, ResourceType.TOPIC, named.written)
    await check_each(here, asked, Operation.READ, ResourceType.TOPIC, named.read)
    await here.shard_manager.refresh_topics()  # the records are for the current topics
    topics = [await topic_to_write(here, name) for name in sent.records]
    sticky = [here.router.sticky_partition(topic) for topic in topics]
    large = large or any(is_much(sent.records[topic.name].records, topic) for topic in topics)

    def build() -> tuple[TransactionRequest, int]:
        records = [
            each
            for topic, partition in zip(topics, sticky, strict=True)
            for each in _partition_records(sent.records[topic.name], topic, partition, here.clock.now_us())
        ]
        size_bytes = sum(batch.nbytes for each in records for batch in each.batches)
        request = TransactionRequest(
            named.offsets, records, frame.staged, frame.generation, *retry, frame.forget, asked.identified
        )
        return request, size_bytes

    known = [topic.schemas.version for topic in topics]
    try:
        return await maybe_in_thread(large, build)
    except InvalidValue:
        if [await look_up_wanted(topic) for topic in topics] == known:
            raise
        return await maybe_in_thread(large, build)


def _partition_records(sent: SentRecords, topic: Topic, sticky: int, now_us: int) -> list[PartitionRecords]:
    return [
        PartitionRecords(topic.name, topic.topic_id, batch.partition, [as_batch(batch.records)])
        for batch in Route(topic, None, sticky, now_us).split(sent)
    ]


def _answer(number: int, ranges: tuple[AppendedRange, ...], earlier: bool) -> V2Response:
    offsets = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "base_offset": each.base_offset,
            "count": each.count,
        }
        for each in ranges
    ]
    return V2Response({"transaction": number, "offsets": offsets, "earlier": earlier})
