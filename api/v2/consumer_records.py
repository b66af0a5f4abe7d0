"""A consumer instance's poll: records of its partitions. At their ends the poll waits for new records."""

import logging
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.client_topics import known_topic_to_read
from api.errors import FormatMismatch, NotJson, error_responses
from api.gateway import Gateway
from api.media import Format, accepts
from api.requests.access import caller_of, check_again
from api.requests.group_route import GroupRoute
from api.requests.route_gateway import gateway
from api.v2.consumer_schema import FORMATS, GroupName, InstanceName
from api.wire.arrow import encode_stream, with_topic_partition
from api.wire.records import FetchedRecord, decodings_of, json_records
from coordinator.groups.sessions.consumer_session import ConsumerSession, PlannedRead, PollResult
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import Damaged, InvalidArgument
from log_tables.layout import OFFSET
from log_tables.record import POLL_SCHEMA, int64s, record_sizes
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

ONLY_OTHERS = "a poll returns records of other partitions only: %s"

router = APIRouter(
    prefix="/consumers/{group}/instances/{instance}", tags=["v2 consumers"], route_class=GroupRoute
)


@router.get(
    "/records",
    summary="Poll for records",
    response_model=list[FetchedRecord],
    responses=error_responses(400, 404, 406, 409, 422, 503)
    | {200: {"content": {Format.ARROW.value: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def poll(
    request: Request,
    group: GroupName,
    instance: InstanceName,
    timeout: Annotated[
        int, Query(description="How long to wait for records, in ms; -1 for consumer.request.timeout.ms.")
    ] = -1,
    max_bytes: Annotated[
        int, Query(description="About how many bytes of records to return; -1 for the maximum.")
    ] = -1,
    generation: Annotated[
        int | None,
        Query(
            description="The newest `Generation` that the client knows. If the assignment has changed since, "
            "the answer has no records and the new `Generation`."
        ),
    ] = None,
) -> Response:
    """A poll says that the records of the previous poll are processed. With auto-commit their offsets are
    committed, and partitions that go to another member are released. `Accept` must allow the format of the
    instance. The header `Generation` changes when the assignment changes.

    The answer ends before a record that the format cannot show; if that is the first record, the answer is
    42203. If a partition is damaged, the answer has records of the others, or 50002 if they have none.
    """
    here = gateway(request)
    asked, member = caller_of(request.scope), await here.coordinator.member(group, instance)
    asked.check_all(Operation.READ, ResourceType.TOPIC, sorted(member.topics))
    config = member.config
    form = FORMATS[config.format]
    if not accepts(request, form):
        raise FormatMismatch(
            f"the format of the consumer instance {instance!r} is {form.value}, which Accept does not allow; "
            f"send Accept: {form.value}"
        )
    if timeout < -1 or max_bytes < -1:
        raise InvalidArgument(f"timeout={timeout} and max_bytes={max_bytes} must both be -1 or more")
    settings = here.settings
    timeout_s = (
        min(config.request_timeout_ms if timeout < 0 else timeout, settings.fetch_timeout_ms_max) / 1000
    )
    most = settings.fetch_max_bytes if form is Format.ARROW else settings.fetch_json_max_bytes
    limit = min(max_bytes, most) if max_bytes > 0 else most

    async def ended() -> bool:
        await check_again(here, request.scope)
        return await request.is_disconnected()

    async def give(consumer: ConsumerSession, polled: PollResult) -> Response:
        await check_again(here, request.scope)
        asked.check(Operation.READ, ResourceType.GROUP, group)
        if form is Format.ARROW:
            return await _arrow_answer(here, consumer, polled, limit)
        rows, following = await run_in_threadpool(_json_rows, here, polled.reads, form, limit)
        if not await request.is_disconnected():
            consumer.advance(polled.serial, following)
        body = f"[{','.join(rows)}]".encode()
        return Response(body, media_type=form.value, headers=_headers(polled))

    return await here.coordinator.poll(
        group, instance, generation, limit, timeout_s, ended, asked.reads, give
    )


def _headers(polled: PollResult) -> dict[str, str]:
    return {"Generation": str(polled.epoch)}


async def _arrow_answer(here: Gateway, consumer: ConsumerSession, polled: PollResult, limit: int) -> Response:
    following: dict[TopicPartition, int] = {}
    batches = _batches(here, polled.reads, following, limit)
    first = await run_in_threadpool(next, batches, None)  # while an error can still be the answer
    given = batches if first is None else chain([first], batches)
    body = _arrow_stream(given, consumer, polled.serial, following)
    return StreamingResponse(body, media_type=Format.ARROW.value, headers=_headers(polled))


def _json_rows(
    here: Gateway, reads: list[PlannedRead], form: Format, limit: int
) -> tuple[list[str], dict[TopicPartition, int]]:
    """The rows of the answer, and the next offset of each partition."""
    rows: list[str] = []
    following: dict[TopicPartition, int] = {}
    unshown: NotJson | FormatMismatch | Damaged | None = None
    size = 0
    for reading in reads:
        begin = here.clock.monotonic()
        try:
            decodings = decodings_of(known_topic_to_read(here, reading.at.topic), form)
            made, following[reading.at] = json_records(
                reading.at, reading.partition, reading.plan, form, limit - size, not rows, decodings
            )
        except (NotJson, FormatMismatch, Damaged) as error:
            unshown = unshown or error
            continue
        length = sum(map(len, made))
        rows += made
        size += length
        here.metrics.topic(reading.at.topic).fetched(len(made), length, here.clock.monotonic() - begin)
        if size >= limit:
            break
    if unshown is not None and not rows:
        raise unshown
    if isinstance(unshown, Damaged):
        _log.error(ONLY_OTHERS, unshown)
    return rows, following


async def _arrow_stream(
    batches: Iterator[pa.RecordBatch],
    consumer: ConsumerSession,
    serial: int,
    following: dict[TopicPartition, int],
) -> AsyncIterator[memoryview | bytes]:
    """The stream, made as it is read. The consumer advances when the last record is taken."""
    messages = encode_stream(batches, POLL_SCHEMA)
    message = await run_in_threadpool(next, messages, None)
    while message is not None:
        coming = await run_in_threadpool(next, messages, None)
        if coming is None:
            # Before the end of the stream is sent: a client that has read it may be gone at once.
            consumer.advance(serial, following)
        yield message
        message = coming


def _batches(
    here: Gateway, reads: list[PlannedRead], following: dict[TopicPartition, int], limit: int
) -> Iterator[pa.RecordBatch]:
    """The records of `reads`: `limit` bytes, of which those of the first partition may be more.

    `following` gets the next offset of each partition once its records are taken. Raises Damaged if no record
    can be read because of it.
    """
    damage: Damaged | None = None
    left = limit
    for reading in reads:
        is_first = left == limit
        if left <= 0 and not is_first:
            break
        begin, records, size = here.clock.monotonic(), 0, 0
        try:
            plan = reading.partition.bound(reading.plan)
            for found in reading.partition.read(plan):
                batch = found if is_first else _fitting(found, left)
                if batch.num_rows:
                    records, size = records + batch.num_rows, size + batch.nbytes
                    left -= pc.sum(record_sizes(batch)).as_py()
                    yield with_topic_partition(batch, *reading.at)
                    following[reading.at] = batch.column(OFFSET)[-1].as_py() + 1
                if batch.num_rows < found.num_rows:
                    break
            else:
                following[reading.at] = plan.end
        except Damaged as error:
            damage = damage or error
        here.metrics.topic(reading.at.topic).fetched(records, size, here.clock.monotonic() - begin)
    if damage is not None:
        if not following:
            raise damage
        _log.error(ONLY_OTHERS, damage)


def _fitting(batch: pa.RecordBatch, size_bytes: int) -> pa.RecordBatch:
    """The first records of `batch`, of `size_bytes` of keys and values at most."""
    ends = np.cumsum(int64s(record_sizes(batch).cast(pa.int64())))
    return batch.slice(0, int(np.searchsorted(ends, size_bytes, side="right")))
