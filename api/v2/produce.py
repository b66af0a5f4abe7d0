"""Produce: POST records to a topic or one of its partitions, as JSON, base64, text or Arrow."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.access_log import CONTEXT
from api.client_topics import refreshed_topic, topic_to_write
from api.errors import InvalidSchemaNamed, UnsupportedMediaType, error_responses
from api.gateway import Gateway
from api.media import Format, content_format
from api.requests.appending import ProduceRequest, append, refuse_if_all_failed, topic_state
from api.requests.body import room_of, take_body
from api.requests.heads import content_type
from api.requests.hot import HotResponse, HotRoute
from api.requests.route_gateway import gateway
from api.scalars import decimal
from api.v2.produce_answer import (
    ANSWER_HEADERS,
    AcksParameter,
    acks_of,
    offsets_by_partition,
    offsets_by_record,
    refuse_of_one_partition,
)
from api.v2.produce_schema import PRODUCE_BODY, Produced
from api.wire.arrow import decode_stream, sent_records
from api.wire.json_bounds import IN_LIST_DEPTH, decoded_within, decoding_cost
from api.wire.named_schemas import NamedSchema, NamedSchemas, no_place
from api.wire.offload import INLINE_MAX_ROWS, computed, decoded, maybe_in_thread
from api.wire.room import batch_in, besides, hold, settle
from api.wire.v2 import NO_IDS, JsonRecord, SchemasOf, decode_body, decode_records, schemas_named
from api.wire.v2 import sent_records as records_sent
from ingest.buffer import Room
from ingest.writer import Appended
from log_tables.cluster.route import SentRecords
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidArgument
from log_tables.limits import HTTP_PRODUCER_ID_MAX, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS
from log_tables.partition.partition import ProducerStamp
from log_tables.rows import as_batch, bytes_of

router = APIRouter(tags=["v2 produce"], route_class=HotRoute)

_ERRORS = error_responses(400, 403, 404, 408, 409, 412, 413, 415, 422, 429, 503)


@router.post(
    "/topics/{topic}",
    summary="Append records to a topic",
    response_model=Produced,
    responses=_ERRORS,
    openapi_extra=PRODUCE_BODY,
)
async def produce(request: Request, topic: str, acks: AcksParameter = "all") -> Response:
    """A record goes to the partition that it names, else to the partition of its key, else to the topic's
    sticky partition.

    If the append fails in some partitions only, their records carry an error code and the others are
    appended.
    """
    refuse_of_one_partition(request.scope, topic)
    return await _produce(gateway(request), request, topic, None, acks)


@router.post(
    "/topics/{topic}/partitions/{partition}",
    summary="Append records to a partition",
    response_model=Produced,
    responses=_ERRORS,
    openapi_extra=PRODUCE_BODY,
)
async def produce_to_partition(
    request: Request,
    topic: str,
    partition: int,
    acks: AcksParameter = "all",
    producer_id: Annotated[str | None, Header(description="The id of an idempotent producer.")] = None,
    producer_epoch: Annotated[str | None, Header(description="The epoch of the producer.")] = None,
    producer_seq: Annotated[str | None, Header(description="The sequence of the first record.")] = None,
    expected_offset: Annotated[
        str | None, Header(description="Append only if this is the next offset of the partition.")
    ] = None,
) -> Response:
    """With the three `Producer-` headers a repeated request appends nothing and answers the offsets of the
    first one.
    """
    stamp = _stamp(producer_id, producer_epoch, producer_seq)
    expected = _number("Expected-Offset", expected_offset, 2**63 - 1)
    return await _produce(gateway(request), request, topic, partition, acks, stamp, expected)


async def _produce(
    here: Gateway,
    request: Request,
    name: str,
    partition: int | None,
    acks_name: str,
    stamp: ProducerStamp | None = None,
    expected: int | None = None,
) -> Response:
    begin = here.clock.monotonic()
    acks, form, ids = acks_of(acks_name), content_format(content_type(request.scope)), NO_IDS
    topic = await topic_to_write(here, name)
    with room_of(here, request) as room:
        size = room.size_bytes
        context = request.scope.get(CONTEXT)
        wanted = ProduceRequest(here, room, acks, partition, stamp, expected, context=context)
        # Nothing here refers to the body and its records while they wait.
        if form.kind is None:
            decode = partial(_decode, form=form, room=room, now_us=here.clock.now_us())
            result = await append(topic, await decoded(take_body(request), form, decode), wanted)
        else:
            records, schemas = await _with_schemas(here, request, topic, form, room)
            encode = partial(_encoded, records, form, schemas, room, here.clock.now_us())
            result, ids = await append(topic, await computed(encode), wanted), schemas.ids
    batches, outcomes = result.batches, result.outcomes
    refuse_if_all_failed(outcomes)
    count = sum(outcome.count for outcome in outcomes if isinstance(outcome, Appended))
    here.metrics.topic(name).produced(count, size, here.clock.monotonic() - begin)
    answered = offsets_by_partition if form is Format.ARROW else partial(offsets_by_record, ids=ids)
    answer = await maybe_in_thread(count > INLINE_MAX_ROWS, lambda: answered(batches, outcomes))
    return HotResponse(answer, ANSWER_HEADERS[acks])


def _decode(body: bytes, form: Format, room: Room, now_us: int) -> SentRecords:
    if form is not Format.ARROW:
        decode = partial(decode_records, form=form, now_us=now_us)
        return decoded_within(room, body, IN_LIST_DEPTH, decode, _size_bytes, form)
    sent = sent_records(decode_stream(body, partial(hold, room)), now_us)
    settle(room, batch_in(body, as_batch(sent.records)))
    return sent


async def _with_schemas(
    here: Gateway, request: Request, topic: Topic, form: Format, room: Room
) -> tuple[list[JsonRecord], SchemasOf]:
    """The records of a body whose JSON stands for values of schemas, and these. `room` holds both.

    Raises UnsupportedMediaType for a topic without a place of schemas, and what `decode_body` and
    `NamedSchemas` raise.
    """
    body = await decoded(take_body(request), form, partial(_parsed, form=form, room=room))
    names = schemas_named(body, form, topic.name)
    while True:
        before = topic_state(topic)
        try:
            return body.records, await _schemas_of(here, topic, form, names)
        except (UnsupportedMediaType, InvalidSchemaNamed):
            topic = await refreshed_topic(here, topic)
            if topic_state(topic) == before:
                raise


async def _schemas_of(
    here: Gateway, topic: Topic, form: Format, names: Sequence[NamedSchema | None]
) -> SchemasOf:
    """The schemas of keys and values that the place of `topic` has. Raises as `_with_schemas`."""
    reason = no_place(topic)
    if reason is not None:
        raise UnsupportedMediaType(f"{form.value} is not taken: {reason}")
    registry = here.cluster.schema_sources.registry(topic.config.schema_source)
    schemas = NamedSchemas(topic.name, registry, None)
    for name in names:
        if name is not None:
            schemas.of(name)
    if schemas.wanted:
        await run_in_threadpool(schemas.look_up)
    keys, values = (None if name is None else schemas.of(name) for name in names)
    return SchemasOf(keys, values, schemas)


def _parsed(body: bytes, form: Format, room: Room) -> Any:
    hold(room, len(body) + decoding_cost(body, IN_LIST_DEPTH, form))
    return decode_body(body, form)


def _encoded(
    records: list[JsonRecord], form: Format, schemas: SchemasOf, room: Room, now_us: int
) -> SentRecords:
    schemas.named.begin(besides(room))
    sent = records_sent(records, form, now_us, schemas)
    settle(room, _size_bytes(sent))
    return sent


def _size_bytes(sent: SentRecords) -> int:
    return bytes_of(sent.records)


def _stamp(producer_id: str | None, epoch: str | None, sequence: str | None) -> ProducerStamp | None:
    if producer_id is None and epoch is None and sequence is None:
        return None
    if producer_id is None or epoch is None or sequence is None:
        raise InvalidArgument("Producer-Id, Producer-Epoch and Producer-Seq belong together; send all three")
    return ProducerStamp(
        _required("Producer-Id", producer_id, HTTP_PRODUCER_ID_MAX),
        _required("Producer-Epoch", epoch, PRODUCER_EPOCH_MAX),
        _required("Producer-Seq", sequence, SEQUENCE_MODULUS - 1),
    )


def _number(name: str, text: str | None, high: int) -> int | None:
    return None if text is None else _required(name, text, high)


def _required(name: str, text: str, high: int) -> int:
    number = decimal(text)
    if number is None or not 0 <= number <= high:
        raise InvalidArgument(f"{name}: {text[:40]!r} is not a number from 0 to {high}")
    return number
