"""Version 3 of produce: concatenated records, and batches, with their schemas for OpenAPI."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.access_log import CONTEXT
from api.client_topics import refreshed_topic, topic_to_write
from api.errors import InvalidSchemaNamed, error_responses, status_and_code
from api.gateway import Gateway
from api.requests.appending import ProduceRequest, append, record_result, refuse_if_all_failed, topic_state
from api.requests.body import room_of, take_body
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.v3.clusters import ClusterId, TopicName
from api.wire.json_bounds import ALONE_DEPTH, IN_LIST_DEPTH, Decoded, decoded_within
from api.wire.long_lists import free
from api.wire.named_schemas import NamedSchemas, no_place
from api.wire.offload import (
    INLINE_MAX_JUDGED_BYTES,
    INLINE_MAX_ROWS,
    computed,
    is_large_json,
    maybe_in_thread,
)
from api.wire.room import besides
from api.wire.v3 import Row, decode_batch, decode_stream, record_answer, sent_records
from ingest.buffer import Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.route import PartitionBatch, size_refusal, value_refusal, wrong_times, wrong_values
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, InvalidTimestamp, InvalidValue, LakelogError, RecordTooLarge
from log_tables.limits import JSON_ANSWER_BYTES
from log_tables.rows import Rows, timestamps_of

_TYPED = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "type": {
            "enum": ["BINARY", "JSON", "STRING", "AVRO", "PROTOBUF", "JSONSCHEMA"],
            "description": "The last three have a schema, which says the type if it is absent.",
        },
        "data": {
            "description": "Base64 for BINARY, a string for STRING, anything for JSON, and for those with "
            "a schema the JSON of a value."
        },
        "schema_id": {"type": "integer", "description": "The id of the schema."},
        "schema_version": {"type": "integer", "description": "A version of the subject, instead."},
        "schema": {"type": "string", "description": "A schema that the subject has, instead."},
        "subject": {"type": "string", "description": "By default that of the topic."},
        "subject_name_strategy": {"enum": ["TOPIC_NAME"]},
    },
}
_HEADER = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "value": {"type": "string", "contentEncoding": "base64"}},
}
_RECORD: dict[str, Any] = {
    "partition_id": {"type": "integer"},
    "headers": {"type": "array", "items": _HEADER},
    "key": _TYPED,
    "value": _TYPED,
    "timestamp": {"type": "string", "format": "date-time", "description": "Or milliseconds since 1970."},
}
_ENTRY = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, **_RECORD}}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _answer(status: str, schema: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {"responses": {status: {"description": "The result of each record", "content": content}}}


_PLACED: dict[str, Any] = {
    "error_code": {"type": "integer", "description": "200 for a record that was appended."},
    "cluster_id": {"type": "string"},
    "topic_name": {"type": "string"},
    "partition_id": {"type": "integer"},
    "offset": {"type": "integer"},
    "timestamp": {"type": "string", "format": "date-time"},
}
_FAILED: dict[str, Any] = {"error_code": {"type": "integer"}, "message": {"type": "string"}}


def _list(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, **properties}},
    }


RECORDS_BODY = {
    **_body({"type": "object", "properties": _RECORD}),
    **_answer("200", {"type": "object", "properties": _PLACED}),
}
BATCH_BODY = {
    **_body(
        {
            "type": "object",
            "required": ["entries"],
            "properties": {"entries": {"type": "array", "minItems": 1, "items": _ENTRY}},
        }
    ),
    **_answer(
        "207", {"type": "object", "properties": {"successes": _list(_PLACED), "failures": _list(_FAILED)}}
    ),
}


router = APIRouter(
    prefix="/v3/clusters/{cluster_id}/topics/{topic}", tags=["v3 produce"], route_class=StrictRoute
)

_ERRORS = error_responses(400, 404, 408, 409, 413, 422, 429, 503)


class _Entries(NamedTuple):
    """The entries of a batch that are appended."""

    names: list[str]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class _RecordAnswer:
    """The answer to one record: JSON of its place in the log, or an error code and a message."""

    success: bytes | None
    error_code: int = 200
    message: str = ""


@router.post(
    "/records",
    summary="Append records",
    responses=_ERRORS,
    openapi_extra=RECORDS_BODY,
)
async def produce_records(here: Here, request: Request, cluster_id: ClusterId, topic: TopicName) -> Response:
    """The body is one JSON object or more, one after the other. The answer has one JSON object for each
    record, in order, with its offset or its error.
    """
    found = await topic_to_write(here, topic)
    with room_of(here, request) as room:
        found, rows = await _rows_for_current(here, found, take_body(request), room)
        wanted = ProduceRequest(here, room, Acks.ALL, context=request.scope.get(CONTEXT))
        content = await _append(found, rows, wanted, _lines)
    return Response(content, media_type="application/json")


def _schemas_of(here: Gateway, topic: Topic) -> NamedSchemas:
    registry = here.cluster.schema_sources.registry(topic.config.schema_source)
    return NamedSchemas(topic.name, registry, no_place(topic))


async def _rows_for_current(here: Gateway, topic: Topic, body: bytes, room: Room) -> tuple[Topic, list[Row]]:
    """The rows of a stream, whose schemas are those of the current state of the topic, and the topic."""
    while True:
        before, schemas = topic_state(topic), _schemas_of(here, topic)
        decode = partial(_decode_stream_within, body, room, schemas)
        try:
            rows = await maybe_in_thread(is_large_json(body), decode)
            if schemas.wanted:
                free(rows)
                await run_in_threadpool(schemas.look_up)
                rows = await computed(decode)
            return topic, rows
        except InvalidSchemaNamed:
            topic = await refreshed_topic(here, topic)
            if topic_state(topic) == before:
                raise


def _decode_stream_within(body: bytes, room: Room, schemas: NamedSchemas) -> list[Row]:
    decode = partial(_begun, decode_stream, room, schemas)
    return decoded_within(room, body, ALONE_DEPTH, decode, partial(_until_answered, body, schemas))


def _begun(
    decode: Callable[[bytes, NamedSchemas], Decoded], room: Room, schemas: NamedSchemas, body: bytes
) -> Decoded:
    schemas.begin(besides(room))
    return decode(body, schemas)


def _until_answered(body: bytes, schemas: NamedSchemas, rows: Sequence[object]) -> int:
    """The bytes of `rows`, whose content is that of `body` or made by `schemas`, and of their answers."""
    return len(body) + schemas.made_bytes + len(rows) * JSON_ANSWER_BYTES


def _lines(answers: Iterable[_RecordAnswer]) -> bytes:
    return b"".join(b"%b\n" % (answer.success or _error(answer)) for answer in answers)


def _error(answer: _RecordAnswer) -> bytes:
    return msgspec.json.encode({"error_code": answer.error_code, "message": answer.message})


@router.post(
    "/records:batch",
    summary="Append a batch of records",
    status_code=207,
    responses=_ERRORS,
    openapi_extra=BATCH_BODY,
)
async def produce_batch(here: Here, request: Request, cluster_id: ClusterId, topic: TopicName) -> Response:
    """Entries succeed or fail one by one; `failures` lists those that failed. A batch has at most 200,000
    entries.
    """
    found = await topic_to_write(here, topic)
    with room_of(here, request) as room:
        body = take_body(request)
        found, accepted, failures = await _decode_for_current(here, found, body, room)
        del body
        encode = partial(_batch_answer, accepted.names, failures)
        if accepted.rows:
            judged = ProduceRequest(here, room, Acks.ALL, judged=True, context=request.scope.get(CONTEXT))
            content = await _append(found, accepted.rows, judged, encode)
        else:
            content = await maybe_in_thread(len(failures) > INLINE_MAX_ROWS, partial(encode, []))
    return Response(content, 207, media_type="application/json")


async def _decode_for_current(
    here: Gateway, topic: Topic, body: bytes, room: Room
) -> tuple[Topic, _Entries, list[dict[str, object]]]:
    """`_decode_entries` for the current state of the topic, and the topic."""
    schemas = _schemas_of(here, topic)
    while True:
        before = topic_state(topic)
        decode = partial(_decode_entries, topic, body, room, schemas, here.clock.now_us())
        refuses = bool(topic.config.required_columns.columns)
        large = (
            is_large_json(body)
            or topic.config.needs_schemas
            or schemas.has_some
            or (refuses and len(body) > INLINE_MAX_JUDGED_BYTES)
        )
        accepted, failures = await maybe_in_thread(large, decode)
        if schemas.wanted:
            await run_in_threadpool(schemas.look_up)
            continue
        if not failures:
            return topic, accepted, failures
        topic = await refreshed_topic(here, topic)
        if topic_state(topic) == before:
            return topic, accepted, failures
        schemas = _schemas_of(here, topic)


def _decode_entries(
    topic: Topic, body: bytes, room: Room, schemas: NamedSchemas, now_us: int
) -> tuple[_Entries, list[dict[str, object]]]:
    """The entries of a batch that `topic` accepts, and the failures of the others."""
    decode = partial(_begun, decode_batch, room, schemas)
    entries = decoded_within(room, body, IN_LIST_DEPTH, decode, partial(_until_answered, body, schemas))
    failures = [_refused(name, row) for name, row in entries if isinstance(row, InvalidRecord)]
    if schemas.wanted:
        return _Entries([], []), failures
    accepted, refused = _accepted(
        topic, [(name, row) for name, row in entries if isinstance(row, Row)], now_us
    )
    free(entries)
    return accepted, failures + refused


def _batch_answer(
    names: list[str], refused: list[dict[str, object]], answers: Iterable[_RecordAnswer]
) -> bytes:
    successes: list[bytes] = []
    failures = [*map(msgspec.json.encode, refused)]
    for name, answer in zip(names, answers, strict=True):
        if answer.success is None:
            failed = _failure(name, answer.error_code, answer.message)
            failures.append(msgspec.json.encode(failed))
        else:
            successes.append(b'{"id":%b,%b' % (msgspec.json.encode(name), answer.success[1:]))
    free(names)
    free(refused)
    return b'{"successes":[%b],"failures":[%b]}' % (b",".join(successes), b",".join(failures))


def _failure(name: str, error_code: int, message: str) -> dict[str, object]:
    return {"id": name, "error_code": error_code, "message": message}


def _refused(name: str, error: LakelogError) -> dict[str, object]:
    facts = {key: error.details[key] for key in ("path", "reason") if key in error.details}
    return _failure(name, status_and_code(error)[1], error.message) | facts


def _accepted(
    topic: Topic, entries: list[tuple[str, Row]], now_us: int
) -> tuple[_Entries, list[dict[str, object]]]:
    """The entries that the topic accepts, and the failures of the others."""
    accepted, failures = _Entries([], []), []
    for name, row in entries:
        error = _refusal(topic, row, now_us)
        if error is None:
            accepted.names.append(name)
            accepted.rows.append(row)
        else:
            failures.append(_refused(name, error))
    return accepted, failures


def _refusal(topic: Topic, row: Row, now_us: int) -> LakelogError | None:
    """The error with which `topic` refuses `row`, if it does. It makes no Arrow batch: thousands of them
    would block the event loop.
    """
    size = len(row.key or b"") + len(row.value or b"")
    if size > topic.config.max_message_bytes:
        return RecordTooLarge(f"the record: {size_refusal(topic, size)}")
    if row.partition is not None and not 0 <= row.partition < topic.partition_count:
        return InvalidRecord(
            f"topic {topic.name!r} has no partition {row.partition}; use 0 to {topic.partition_count - 1}"
        )
    time_us = now_us if row.timestamp_ms is None else row.timestamp_ms * 1_000
    rows = Rows([row.value], time_us, headers=[row.headers])
    for _, why in wrong_times(rows, topic, now_us):
        return InvalidTimestamp(why)
    for misfit in wrong_values(rows, topic):
        facts = {"path": misfit.path, "reason": misfit.reason}
        return InvalidValue(f"the value: {value_refusal(topic, misfit)}", **facts)
    return None


async def _append(
    topic: Topic,
    rows: list[Row],
    request: ProduceRequest,
    encode: Callable[[list[_RecordAnswer]], bytes],
) -> bytes:
    """Append the rows, which are gone then; the answers to all of them, in order, as `encode` writes them."""
    here = request.here
    begin = here.clock.monotonic()
    large = len(rows) > INLINE_MAX_ROWS
    made = partial(sent_records, rows, here.clock.now_us())
    result = await append(topic, await maybe_in_thread(large, made), request)
    refuse_if_all_failed(result.outcomes)

    def encoded() -> tuple[bytes, int]:
        answers = _answers_to(here, topic, rows, result.batches, result.outcomes)
        appended = sum(answer.success is not None for answer in answers)
        content = encode(answers)
        free(answers)
        free(rows)
        return content, appended

    content, appended = await maybe_in_thread(large, encoded)
    here.metrics.topic(topic.name).produced(appended, 0, here.clock.monotonic() - begin)
    return content


def _answers_to(
    here: Gateway, topic: Topic, rows: list[Row], batches: list[PartitionBatch], outcomes: list[AppendOutcome]
) -> list[_RecordAnswer]:
    answers: list[_RecordAnswer] = [_RecordAnswer(None)] * len(rows)
    for batch, outcome in zip(batches, outcomes, strict=True):
        timestamps = timestamps_of(batch.records)
        for number, index in enumerate(batch.positions()):
            answers[index] = _answer_to(here, topic, rows[index], batch, outcome, number, timestamps[number])
    return answers


def _answer_to(
    here: Gateway,
    topic: Topic,
    row: Row,
    batch: PartitionBatch,
    outcome: AppendOutcome,
    number: int,
    timestamp_us: int,
) -> _RecordAnswer:
    partition, offset, code, message = record_result(batch.partition, outcome, number)
    if code is not None:
        return _RecordAnswer(None, code, message or "")
    if isinstance(outcome, Appended) and outcome.append_time_us is not None:
        timestamp_us = outcome.append_time_us
    position = partition, offset
    return _RecordAnswer(
        msgspec.json.encode(
            record_answer(row, here.cluster.cluster_id, topic.name, position, timestamp_us // 1000)
        )
    )
