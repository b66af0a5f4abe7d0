"""What gateways ask of one another: to append where this one leads, and to lead what another hands over.

Nothing here is sent on again, so that no request goes round in circles.
"""

import struct
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.arrow_guard import check_unpacked_size
from api.body import read_body
from api.gateway import Gateway, Here, gateway
from coordinator.peer_wire import decode_entries, encode_outcomes
from ingest.buffer import Room
from ingest.writer import Acks, Appended, Outcome
from log_tables.errors import BufferFull, InvalidArgument, LakelogError, UnknownTopic
from log_tables.limits import BATCH_MAX_BYTES
from log_tables.partition import Entry
from log_tables.topic import Topic, check_writable

router = APIRouter(prefix="/peer", include_in_schema=False)

TopicId = Annotated[str, Query(description="Its incarnation.")]


@router.get("/ping", status_code=204)
async def ping() -> None:
    """This gateway lives."""


@router.post("/append")
async def append(
    request: Request, topic: str, topic_id: TopicId, partition: int, acks: Acks = Acks.ALL
) -> Response:
    """Append the entries of the body to one partition, in their order."""
    here = gateway(request)
    try:
        with here.buffer.room(topic) as room:
            body = await read_body(request, room, here.settings.max_request_bytes + BATCH_MAX_BYTES)
            entries = _entries(body)
            outcomes = await _appended(here, (topic, topic_id, partition), entries, acks, room)
    except BufferFull as error:  # it is for the client, and nothing was written
        outcomes = [error]
    return _answer(outcomes)


async def _appended(
    here: Gateway, place: tuple[str, str, int], entries: list[Entry], acks: Acks, room: Room
) -> list[Outcome]:
    """What becomes of entries for a topic, its id, and a partition; whatever is raised is an outcome."""
    name, topic_id, partition = place
    try:
        check_writable(name)
        topic = await _find(here, name, topic_id)
        return await here.router.append_asked(topic, partition, entries, acks, room)
    except LakelogError as error:
        return [error] * len(entries)


@router.post("/lead")
async def lead(here: Here, topic: str, topic_id: TopicId, partition: int) -> Response:
    """Lead a partition that its leader has just given up."""
    outcome: Outcome = Appended(partition, None, 0)
    try:
        await here.leadership.take(await _find(here, topic, topic_id), partition)
    except LakelogError as error:
        outcome = error
    return _answer([outcome])


def _entries(body: bytes) -> list[Entry]:
    """The entries of a body that anybody may have sent. Raises InvalidArgument, InvalidRecord."""
    try:
        check_unpacked_size(pa.py_buffer(body))
    except (pa.ArrowException, OSError, struct.error) as error:
        raise InvalidArgument(f"the body is no Arrow stream ({error}); use the public API") from None
    return decode_entries(body)


async def _find(here: Gateway, name: str, topic_id: str) -> Topic:
    """The topic, of this incarnation. Raises UnknownTopic."""
    found = here.cluster.known(name)
    if found is None or found.topic_id != topic_id:
        await run_in_threadpool(here.cluster.refresh)
        found = here.cluster.known(name)
    if found is None or found.topic_id != topic_id:
        raise UnknownTopic(f"topic {name!r} was deleted, or made again, meanwhile; look at it first")
    return found


def _answer(outcomes: list[Outcome]) -> Response:
    return Response(encode_outcomes(outcomes), media_type="application/json")
