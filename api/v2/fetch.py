"""Fetch: GET the records of a partition from an offset on. Stateless: any gateway answers."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.client_topics import with_topic_to_read
from api.errors import error_responses
from api.gateway import Gateway
from api.media import EVENT_STREAM, Format, accepted_format, wants_events
from api.requests.access import caller_of, check_again
from api.requests.hot import HotRoute
from api.requests.route_gateway import gateway
from api.scalars import decimal
from api.v2.event_stream import Tail, event_format, event_response, stored_keys, wait_for_records
from api.wire.arrow import encode_stream
from api.wire.records import Decodings, FetchedRecord, decodings_of, json_records
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidArgument, InvalidOffset
from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader

router = APIRouter(tags=["v2 fetch"], route_class=HotRoute)

_EARLIEST, _LATEST = "earliest", "latest"


@router.get(
    "/topics/{topic}/partitions/{partition}/records",
    summary="Fetch records from an offset on",
    response_model=list[FetchedRecord],
    responses=error_responses(400, 404, 406, 416, 422, 503)
    | {200: {"content": {Format.ARROW.value: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def fetch(
    request: Request,
    topic: str,
    partition: int,
    offset: Annotated[str, Query(description="An offset, `earliest` or `latest`.")] = _EARLIEST,
    timeout: Annotated[int, Query(description="How long to wait for the first record, in ms.")] = 0,
    max_bytes: Annotated[int | None, Query(description="About how many bytes of records to return.")] = None,
    format: Annotated[str | None, Query(description="Of events: `json`, `binary` or `text`.")] = None,  # noqa: A002
    key: Annotated[str | None, Query(description="Of events: only records with this key.")] = None,
) -> Response:
    """Records up to the high watermark. The header `Next-Offset` is the offset to continue from. Without new
    records the list is empty.

    With `Accept: text/event-stream` the answer goes on: each record is an event, as soon as it is there. The
    header `Last-Event-ID` is the offset after which it begins.

    The answer has at least one record if there is one, even if it is larger than `max_bytes`. A JSON answer
    ends before a record that is not JSON, and in a format with schemas before one that cannot be decoded; if
    that is the first record, the answer is 42203.
    """
    here = gateway(request)
    if wants_events(request):
        if timeout or max_bytes is not None:
            raise InvalidArgument("events have no timeout and no max_bytes; leave them out")
        seen = request.headers.get("last-event-id")
        begin = offset if seen is None else _following(seen)
        return await _tail(here, request, (topic, partition), begin, event_format(format), key)
    if format is not None or key is not None:
        raise InvalidArgument(f"format and key are for events; accept {EVENT_STREAM}, or leave them out")
    form = accepted_format(request)
    if timeout < 0 or (max_bytes is not None and max_bytes < 1):
        raise InvalidArgument(f"timeout={timeout} and max_bytes={max_bytes} must be 0 or 1 and more")
    deadline = here.clock.monotonic() + min(timeout, here.settings.fetch_timeout_ms_max) / 1000
    limit = min(max_bytes or here.settings.fetch_max_bytes, here.settings.fetch_max_bytes)

    async def answer(named: Topic) -> Response:
        decodings = decodings_of(named, form)
        found = await _open(named, partition)
        start = _start(found, offset)
        if start > found.high_watermark:
            # Another gateway may have shown a commit of this one that is there and not answered yet.
            await run_in_threadpool(found.refresh, True)
        if start == found.high_watermark:
            await wait_for_records(here, request, found, start, deadline)
            await check_again(here, request.scope)
            caller_of(request.scope).check(Operation.READ, ResourceType.TOPIC, topic)  # it may have changed
        if not found.reaches(start):
            await run_in_threadpool(found.log_from, start)
        plan = found.plan_read(start, limit, READ_SEGMENTS_MAX)
        if form is Format.ARROW:
            return await _arrow_answer(here, topic, found, plan)
        return await _json_answer(here, (topic, partition), found, plan, form, decodings)

    return await with_topic_to_read(here, topic, answer)


async def _tail(
    here: Gateway, request: Request, place: tuple[str, int], offset: str, form: Format, key: str | None
) -> Response:
    name, number = place
    keys, allowed = stored_keys(key, form), caller_of(request.scope)

    async def check() -> float:
        await check_again(here, request.scope)
        allowed.check(Operation.READ, ResourceType.TOPIC, name)
        return allowed.consumer_delay_s()

    async def answer(named: Topic) -> Response:
        found = await _open(named, number)
        start = _start(found, offset)
        if start > found.high_watermark:
            await run_in_threadpool(found.refresh, True)  # as for other fetches
        if not found.reaches(start):
            await run_in_threadpool(found.log_from, start)
        found.plan_read(start, 1, 1)  # an offset that is not there is refused before the answer begins
        tail = Tail(name, found, number, start, form, keys, offset == _LATEST)
        return event_response(here, request, tail, check)

    return await with_topic_to_read(here, name, answer)


def _following(last_event_id: str) -> str:
    """The offset after the one that a client has seen last. Raises InvalidOffset."""
    seen = decimal(last_event_id)
    if seen is None:
        raise InvalidOffset(f"Last-Event-ID {last_event_id[:40]!r} is no offset; send the id of an event")
    return str(seen + 1)


async def _open(topic: Topic, number: int) -> PartitionReader:
    """The partition, at what is committed now."""
    found = (
        topic.partition(number) if topic.is_open(number) else await run_in_threadpool(topic.partition, number)
    )
    await run_in_threadpool(found.refresh)
    return found


def _start(partition: PartitionReader, offset: str) -> int:
    if offset == _EARLIEST:
        return partition.log_start
    if offset == _LATEST:
        return partition.high_watermark
    number = decimal(offset)
    if number is None:
        raise InvalidOffset(f"offset {offset[:40]!r} is not a number; send one, earliest or latest")
    return number


def _headers(plan: ReadPlan, following: int) -> dict[str, str]:
    return {
        "Next-Offset": str(following),
        "High-Watermark": str(plan.high_watermark),
        "Log-Start-Offset": str(plan.log_start),
    }


async def _arrow_answer(here: Gateway, topic: str, partition: PartitionReader, plan: ReadPlan) -> Response:
    """The stream, made as it is read: a slow reader holds one row group.

    The first one is read before the answer begins, so that a segment that cannot be read is a clear error.
    """
    metrics, begin = here.metrics.topic(topic), here.clock.monotonic()

    def opened() -> tuple[ReadPlan, Iterator[pa.RecordBatch], pa.RecordBatch | None]:
        settled = partition.bound(plan)
        batches = partition.read(settled)
        return settled, batches, next(batches, None)

    settled, batches, first = await run_in_threadpool(opened)

    def stream() -> Iterator[memoryview | bytes]:
        size = records = 0

        def counted() -> Iterator[Any]:
            nonlocal records
            for batch in chain(() if first is None else (first,), batches):
                records += batch.num_rows
                yield batch

        for message in encode_stream(counted()):
            size += len(message)
            yield message
        metrics.fetched(records, size, here.clock.monotonic() - begin)

    return StreamingResponse(stream(), media_type=Format.ARROW.value, headers=_headers(settled, settled.end))


async def _json_answer(
    here: Gateway,
    place: tuple[str, int],
    partition: PartitionReader,
    plan: ReadPlan,
    form: Format,
    decodings: Decodings | None,
) -> Response:
    begin = here.clock.monotonic()
    limit = here.settings.fetch_json_max_bytes
    rows, following = await run_in_threadpool(
        json_records, place, partition, plan, form, limit, decodings=decodings
    )
    body = f"[{','.join(rows)}]".encode()
    here.metrics.topic(place[0]).fetched(len(rows), len(body), here.clock.monotonic() - begin)
    return Response(body, media_type=form.value, headers=_headers(plan, following))
