"""An export: all records that match a form, as one file that is made while it is sent.

A slow reader holds about one piece of it here: the next is read when the connection has taken the last one.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, NamedTuple

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.client_topics import with_topic_to_read
from api.console.drawing.page_route import PageRoute
from api.console.records.export_format import FORMATS, ExportFormat, Writer
from api.console.records.record_filter import RecordFilter, partitions_of
from api.console.records.record_query import AskedRecords, RecordQuery
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.credential import check_again
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.limits import EVENTS_BYTES, HEARTBEAT_S, MIB, READ_SEGMENTS_MAX
from log_tables.record import cut

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

READ_BYTES = 8 * MIB
"""Records of a plan: a row group of a segment is read again where a plan ends inside of it."""


class _Export(NamedTuple):
    """The records of an export."""

    topic: Topic
    partitions: Sequence[int]
    query: RecordQuery
    wanted: RecordFilter


@router.get("/export")
async def export(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    query: AskedRecords,
    format: Annotated[ExportFormat, Query()],  # noqa: A002 (so it stands in the address)
) -> Response:
    """The file: partition by partition, each up to its end at that moment."""
    wanted = query.filter()

    async def begun(found: Topic) -> tuple[Iterator[bytes], bytes | None]:
        numbers = partitions_of(query.partition, found.partition_count)
        parts = _pieces(_Export(found, numbers, query, wanted), FORMATS[format].writer())
        # The first piece is made before the answer begins: a page says what is wrong with the form.
        return parts, await run_in_threadpool(next, parts, None)

    parts, first = await with_topic_to_read(here, topic, begun)
    kind = FORMATS[format]
    headers = {
        "Content-Disposition": f'attachment; filename="{topic}.{kind.extension}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    sent = _sent(here, request, asked, topic, chain(() if first is None else (first,), parts))
    return StreamingResponse(sent, media_type=kind.media_type, headers=headers)


async def _sent(
    here: Gateway, request: Request, asked: Caller, topic: str, parts: Iterator[bytes]
) -> AsyncIterator[bytes]:
    """The pieces, each when its quota has room for it, and as long as the client may read the topic.

    An error ends the connection before the file is whole, so that no part is taken for all of it.
    """
    metrics = here.metrics.topic(topic)
    while True:
        await check_again(here, request.scope)
        asked.check(Operation.READ, ResourceType.TOPIC, topic)
        while (wait_s := asked.consumer_delay_s()) > 0 and not here.stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(here.stopping.wait(), min(wait_s, HEARTBEAT_S))
        begin = here.clock.monotonic()
        piece = await run_in_threadpool(next, parts, None)
        if piece is None:
            return
        if not piece:
            continue
        metrics.fetched(0, len(piece), here.clock.monotonic() - begin)
        yield piece


def _pieces(asked: _Export, writer: Writer) -> Iterator[bytes]:
    """The file in pieces of about `EVENTS_BYTES`; blocking. An empty one says that some more was read: so a
    search that finds nothing ends with its client, too.
    """
    for number in asked.partitions:
        for batch in _batches(asked, number):
            yield b""
            for part in cut(asked.wanted.of(batch), EVENTS_BYTES):
                if part.num_rows:
                    yield writer.add(number, part)
    yield writer.end()


def _batches(asked: _Export, number: int) -> Iterator[pa.RecordBatch]:
    """The records of a partition from its place on, up to its end as it is now."""
    reader = asked.topic.partition(number)
    reader.refresh()
    position, end = asked.query.first_of(reader), reader.high_watermark
    while position < end:
        plan = reader.bound(reader.plan_read(position, READ_BYTES, READ_SEGMENTS_MAX))
        yield from reader.read(plan)
        position = plan.end
