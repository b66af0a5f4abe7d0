"""Version 3 of produce: concatenated records, and batches."""

from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.errors import error_responses, status_and_code
from api.gateway import Gateway, Here
from api.requests.appending import Appending, append, known, place_of, refuse_if_all_failed
from api.requests.body import room_of, take_body
from api.requests.client_topics import newest, topic_to_write
from api.requests.strict import StrictRoute
from api.v3.paths import ClusterId, TopicName
from api.v3.schema import BATCH_BODY, RECORDS_BODY
from api.wire.beside import INLINE_MAX_ROWS, is_large_json, worked_out
from api.wire.json_bounds import LISTED, LOOSE, check_fits, decoding
from api.wire.rows import Part, Rows, parts_of
from api.wire.v3 import Row, answer_of, decode_batch, decode_stream
from ingest.buffer import Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, LakelogError, RecordTooLarge
from log_tables.limits import JSON_ANSWER_BYTES

router = APIRouter(
    prefix="/v3/clusters/{cluster_id}/topics/{topic}", tags=["v3 produce"], route_class=StrictRoute
)

_ERRORS = error_responses(400, 404, 408, 413, 422, 429, 503)


@dataclass(frozen=True, slots=True)
class _Done:
    """The answer to one record as JSON, or its error code and message."""

    answer: bytes | None
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
    with room_of(request) as room:
        body = take_body(request)
        decode = partial(_decoded_stream, body, room)
        rows = await worked_out(is_large_json(body), decode)
        del body, decode
        done = await _append(here, found, rows, room)
    content = await worked_out(len(done) > INLINE_MAX_ROWS, lambda: _lines(done))
    return Response(content, media_type="application/json")


def _decoded_stream(body: bytes, room: Room) -> list[Row]:
    with decoding(room, body, LOOSE):
        return decode_stream(body)


def _lines(done: list[_Done]) -> bytes:
    return b"".join(b"%b\n" % (one.answer or _error(one)) for one in done)


def _error(one: _Done) -> bytes:
    return msgspec.json.encode({"error_code": one.error_code, "message": one.message})


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
    with room_of(request) as room:
        body = take_body(request)
        found, sound, failures = await _decoded_by_newest(here, found, body, room)
        del body
        rows = [row for _, row in sound]
        done = await _append(here, found, rows, room) if rows else []
    names = [name for name, _ in sound]
    content = await worked_out(len(done) > INLINE_MAX_ROWS, lambda: _batch_answer(names, done, failures))
    return Response(content, 207, media_type="application/json")


async def _decoded_by_newest(
    here: Gateway, topic: Topic, body: bytes, room: Room
) -> tuple[Topic, list[tuple[str, Row]], list[dict[str, object]]]:
    """`_decoded`, and the topic, which is looked at again where it refuses something."""
    while True:
        before = known(topic)
        decode = partial(_decoded, topic, body, room)
        sound, failures = await worked_out(is_large_json(body), decode)
        if not failures:
            return topic, sound, failures
        topic = await newest(here, topic)
        if known(topic) == before:
            return topic, sound, failures


def _decoded(topic: Topic, body: bytes, room: Room) -> tuple[list[tuple[str, Row]], list[dict[str, object]]]:
    """The entries of a batch that `topic` takes, and the failures of the others."""
    with decoding(room, body, LISTED):
        entries = decode_batch(body)
    failures = [
        _failure(name, *status_and_code(row)[1:], row.message)
        for name, row in entries
        if isinstance(row, InvalidRecord)
    ]
    sound, refused = _check_each(topic, [(name, row) for name, row in entries if isinstance(row, Row)])
    return sound, failures + refused


def _batch_answer(names: list[str], done: list[_Done], refused: list[dict[str, object]]) -> bytes:
    successes: list[msgspec.Raw] = []
    failures = [*refused]
    for name, one in zip(names, done, strict=True):
        if one.answer is None:
            failures.append(_failure(name, one.error_code, one.message))
        else:
            successes.append(msgspec.Raw(b'{"id":%b,%b' % (msgspec.json.encode(name), one.answer[1:])))
    return msgspec.json.encode({"successes": successes, "failures": failures})


def _failure(name: str, error_code: int, message: str) -> dict[str, object]:
    return {"id": name, "error_code": error_code, "message": message}


def _check_each(
    topic: Topic, entries: list[tuple[str, Row]]
) -> tuple[list[tuple[str, Row]], list[dict[str, object]]]:
    """The entries that the topic takes, and the failures of the others."""
    sound, failures = [], []
    for name, row in entries:
        error = _problem(topic, row)
        if error is None:
            sound.append((name, row))
        else:
            failures.append(_failure(name, status_and_code(error)[1], error.message))
    return sound, failures


def _problem(topic: Topic, row: Row) -> LakelogError | None:
    """Why `topic` does not take `row`. Without a batch for each: thousands would hold up the event loop."""
    size, limit = len(row.key or b"") + len(row.value or b""), topic.config.max_message_bytes
    if size > limit:
        return RecordTooLarge(
            f"the record has {size} bytes, topic {topic.name!r} takes {limit}; send less, "
            "or raise max.message.bytes"
        )
    if row.partition is not None and not 0 <= row.partition < topic.partition_count:
        return InvalidRecord(
            f"topic {topic.name!r} has no partition {row.partition}; use 0 to {topic.partition_count - 1}"
        )
    return None


def _rows(rows: list[Row]) -> Rows:
    return Rows(
        [row.value for row in rows],
        [row.key for row in rows],
        [row.partition for row in rows],
        [row.headers for row in rows],
        [row.timestamp_ms for row in rows],
    )


async def _append(here: Gateway, topic: Topic, rows: list[Row], room: Room) -> list[_Done]:
    """Append; what became of each row, in order."""
    begin = here.clock.monotonic()
    check_fits(room, len(rows) * JSON_ANSWER_BYTES)
    room.grow(room.size_bytes + len(rows) * JSON_ANSWER_BYTES)
    large = len(rows) > INLINE_MAX_ROWS

    def parted(found: Topic, sticky: int, _: Room) -> list[Part]:
        return parts_of(_rows(rows), found, None, sticky, here.clock.now_us())

    gone = await append(here, topic, Appending(parted, large, Acks.ALL), room)
    refuse_if_all_failed(gone.outcomes)
    done = await worked_out(large, lambda: _done_of_each(here, topic, rows, gone.parts, gone.outcomes))
    appended = sum(one.answer is not None for one in done)
    here.metrics.topic(topic.name).produced(appended, 0, here.clock.monotonic() - begin)
    return done


def _done_of_each(
    here: Gateway, topic: Topic, rows: list[Row], parts: list[Part], outcomes: list[AppendOutcome]
) -> list[_Done]:
    done: list[_Done] = [_Done(None)] * len(rows)
    for part, outcome in zip(parts, outcomes, strict=True):
        indexes = range(len(rows)) if part.indexes is None else part.indexes.tolist()
        stamps = part.batch.column("timestamp").view(pa.int64()).to_pylist()
        for place, index in enumerate(indexes):
            done[index] = _done(here, topic, rows[index], part, outcome, place, stamps[place])
    return done


def _done(
    here: Gateway,
    topic: Topic,
    row: Row,
    part: Part,
    outcome: AppendOutcome,
    place: int,
    stamp_us: int,
) -> _Done:
    partition, offset, code, message = place_of(part.partition, outcome, place)
    if code is not None:
        return _Done(None, code, message or "")
    if isinstance(outcome, Appended) and outcome.append_time_us is not None:
        stamp_us = outcome.append_time_us
    placed = partition, offset
    return _Done(
        msgspec.json.encode(answer_of(row, here.cluster.cluster_id, topic.name, placed, stamp_us // 1000))
    )
