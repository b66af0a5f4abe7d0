"""An export: all records that match a form, as one file that is made while it is sent.

A slow reader holds about one piece of it here: the next is read when the connection has taken the last one.
Each format encodes records as they come. Bytes are exact in all of them. NDJSON and CSV have keys and values
that are UTF-8 as text, and others as base64 under another name; in Parquet they are bytes.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.client_topics import with_topic_to_read
from api.console.page_route import PageRoute
from api.console.record_query import AskedRecords, RecordFilter, RecordQuery, partitions_of
from api.gateway import Gateway
from api.requests.access import Asked, check_again
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.layout import PARTITION
from log_tables.limits import (
    EVENTS_BYTES,
    HEARTBEAT_S,
    MIB,
    READ_SEGMENTS_MAX,
    ROW_GROUP_MAX_ROWS,
    ROW_GROUP_TARGET_BYTES,
)
from log_tables.record import RECORD_SCHEMA, Record, batch_bytes, cut, timestamp_text, to_records
from log_tables.sql.answer_file import MEDIA_TYPES, FileFormat, Sink

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

READ_BYTES = 8 * MIB
"""Records of a plan: a row group of a segment is read again where a plan ends inside of it."""

CSV_COLUMNS = (
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
)
EXPORT_SCHEMA = pa.schema([pa.field(PARTITION, pa.int32(), nullable=False), *RECORD_SCHEMA])


class Writer(Protocol):
    """Records in, bytes out."""

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        """The bytes that are ready after these records; there may be none yet."""
        ...

    def end(self) -> bytes:
        """The rest of the file."""
        ...


class _JsonWriter:
    """A JSON object on each line."""

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        return b"".join(_line(partition, record) for record in to_records(batch))

    def end(self) -> bytes:
        return b""


class _CsvWriter:
    """RFC 4180 in UTF-8, with a head. A field that is there is quoted, also an empty one; a null is not.

    No field is changed for the sake of programs that take a text that begins with = for a formula.
    """

    def __init__(self) -> None:
        self._head = ",".join(CSV_COLUMNS) + "\r\n"

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        head, self._head = self._head, ""
        return (head + "".join(_csv_row(partition, record) for record in to_records(batch))).encode()

    def end(self) -> bytes:
        return self._head.encode()


class _ParquetWriter:
    """One file, row group by row group: each is handed on when it is written."""

    def __init__(self) -> None:
        self._sink = Sink()
        self._writer = pq.ParquetWriter(self._sink, EXPORT_SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        where = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        self._waiting.append(pa.RecordBatch.from_arrays([where, *batch.columns], schema=EXPORT_SCHEMA))
        self._rows += batch.num_rows
        self._bytes += batch_bytes(batch)
        if self._bytes >= ROW_GROUP_TARGET_BYTES or self._rows >= ROW_GROUP_MAX_ROWS:
            self._flush()
        return self._sink.taken()

    def end(self) -> bytes:
        self._flush()
        self._writer.close()
        return self._sink.taken()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0


WRITERS: Mapping[FileFormat, Callable[[], Writer]] = {
    "ndjson": _JsonWriter,
    "csv": _CsvWriter,
    "parquet": _ParquetWriter,
}


def _line(partition: int, record: Record) -> bytes:
    row = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": (record.timestamp_us or 0) // 1000,
        **_as_text("key", record.key),
        **_as_text("value", record.value),
        "headers": _headers(record),
    }
    return msgspec.json.encode(row) + b"\n"


def _headers(record: Record) -> list[dict[str, str | None]]:
    return [{"key": key, **_as_text("value", value)} for key, value in record.headers]


def _as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    """A key or value as text under its name, or as base64 under another one if it is not UTF-8."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {f"{name}_base64": b64encode(data).decode()}


def _csv_row(partition: int, record: Record) -> str:
    key, value = _as_text("key", record.key), _as_text("value", record.value)
    fields = [
        str(partition),
        str(record.offset),
        timestamp_text(record.timestamp_us or 0),
        _quoted(key.get("key")),
        _quoted(key.get("key_base64")),
        _quoted(value.get("value")),
        _quoted(value.get("value_base64")),
        _quoted(msgspec.json.encode(_headers(record)).decode()) if record.headers else "",
    ]
    return ",".join(fields) + "\r\n"


def _quoted(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'


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
    format: Annotated[FileFormat, Query()],  # noqa: A002 (so it stands in the address)
) -> Response:
    """The file: partition by partition, each up to its end at that moment."""
    wanted = query.filter()

    async def begun(found: Topic) -> tuple[Iterator[bytes], bytes | None]:
        numbers = partitions_of(query.partition, found.partition_count)
        parts = _pieces(_Export(found, numbers, query, wanted), WRITERS[format]())
        # The first piece is made before the answer begins: a page says what is wrong with the form.
        return parts, await run_in_threadpool(next, parts, None)

    parts, first = await with_topic_to_read(here, topic, begun)
    headers = {
        "Content-Disposition": f'attachment; filename="{topic}.{format}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    sent = _sent(here, request, asked, topic, chain(() if first is None else (first,), parts))
    return StreamingResponse(sent, media_type=MEDIA_TYPES[format], headers=headers)


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
