"""Transactions: records for several partitions and the offsets they were made from, all or nothing."""

from hashlib import blake2b
from typing import Annotated

from fastapi import APIRouter, Header
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.errors import error_responses
from api.gateway import Gateway, gateway
from api.media import Format, content_format
from api.requests.body import room_of, take_body
from api.requests.client_topics import is_current, topic_to_write
from api.requests.envelope import V2Response
from api.requests.group_route import GroupRoute
from api.v2.paths import GroupName, InstanceName
from api.v2.produce_schema import TRANSACTION_BODY
from api.wire.beside import INLINE_MAX_ROWS, is_large, worked_out
from api.wire.transaction import TransactionBody, decode_transaction
from coordinator.groups.transaction_coordinator import TransactionRequest, TransactionResult
from ingest.buffer import Room
from log_tables.cluster.group_log import AppendedRange, check_retry_key
from log_tables.cluster.topic import Topic
from log_tables.errors import RetryKeyReused, UnknownPartition, UnknownTopic
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


async def _transact(request: Request, group: str, member: str | None, key: str) -> Response:
    here, form = gateway(request), content_format(request)
    check_retry_key(key)
    with room_of(request).detach() as room:  # what it holds is given back before the answer is waited for
        body = take_body(request)
        digest = blake2b(body, digest_size=16, key=form.name.encode()).hexdigest()
        done, earlier = await _known(here, room, group, (key, digest), body, form) if key else (None, False)
        if done is None:
            done = await _done(here, room, group, member, (key, digest), body, form)
        del body
    placed = await done.where()
    return await worked_out(len(placed) > INLINE_MAX_ROWS, lambda: _answer(done.number, placed, earlier))


async def _known(
    here: Gateway, room: Room, group: str, retry: tuple[str, str], body: bytes, form: Format
) -> tuple[TransactionResult | None, bool]:
    """The transaction that has this retry key already, and whether with another content.

    That is allowed to one with staged files: who does its work again, after a crash, has staged anew. Raises
    RetryKeyReused.
    """
    try:
        return await here.coordinator.find_repeat(group, *retry), False
    except RetryKeyReused:
        large = is_large(body, form)
        sent = await worked_out(large, lambda: decode_transaction(body, form, room))
        if not sent.frame.staged:
            raise
    found = await here.coordinator.find_repeat(group, retry[0], None)
    return found, found is not None


async def _done(
    here: Gateway,
    room: Room,
    group: str,
    member: str | None,
    retry: tuple[str, str],
    body: bytes,
    form: Format,
) -> TransactionResult:
    """The transaction, committed: with the topics that are there now, where some were made again meanwhile.

    Raises what `GroupCoordinator.transact` raises.
    """
    large = is_large(body, form)
    while True:
        sent = await worked_out(large, lambda: decode_transaction(body, form, room))
        asked, size = await _asked(here, sent, member, retry, large)
        del sent
        room.grow(size)
        try:
            return await here.coordinator.transact(group, member, asked)
        except (UnknownTopic, UnknownPartition):
            await here.shard_manager.refresh_topics()
            if all(is_current(here, part.topic, part.topic_id) for part in asked.parts):
                raise


async def _asked(
    here: Gateway, sent: TransactionBody, member: str | None, retry: tuple[str, str], large: bool
) -> tuple[TransactionRequest, int]:
    """What is asked for, and how many bytes its records take."""
    frame = sent.frame
    for key in frame.forget:
        check_retry_key(key)
    await here.shard_manager.refresh_topics()  # records are for the topics that are there now
    topics = [await topic_to_write(here, name) for name in sent.records]
    sticky = [here.router.sticky_partition(topic) for topic in topics]

    def asked() -> tuple[TransactionRequest, int]:
        parts = [part for at in zip(topics, sticky, strict=True) for part in _parts(here, sent, *at)]
        places = frame.places(step=0 if member is None else 1)
        size = sum(batch.nbytes for part in parts for batch in part.batches)
        return TransactionRequest(places, parts, frame.staged, frame.generation, *retry, frame.forget), size

    return await worked_out(large, asked)


def _parts(here: Gateway, sent: TransactionBody, topic: Topic, sticky: int) -> list[PartitionRecords]:
    parts = sent.parts(topic, sticky, here.clock.now_us())
    return [PartitionRecords(topic.name, topic.topic_id, part.partition, [part.batch]) for part in parts]


def _answer(number: int, placed: tuple[AppendedRange, ...], earlier: bool) -> V2Response:
    offsets = [
        {"topic": p.topic, "partition": p.partition, "base_offset": p.base_offset, "count": p.count}
        for p in placed
    ]
    return V2Response({"transaction": number, "offsets": offsets, "earlier": earlier})
