"""SQL over topics: a page that shows the first rows of an answer, and the route that streams them to scripts.

A query sees the topics that its principal may READ, and of the tables about groups the rows that it may
DESCRIBE. The rest does not exist for it. The answer counts to the quota of what the principal reads.
"""

import shlex
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from api.client_topics import listed_topics
from api.console.page import HEADERS, render
from api.console.page_route import PageRoute, check_console
from api.console.query_process import Frame
from api.console.state import console
from api.errors import answer_to
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.heads import foreign_site
from api.requests.route_gateway import Here
from api.requests.strict import StrictBody, StrictRoute
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.layout import KEY_TEXT, VALUE_TEXT
from log_tables.limits import KIB, MIB
from log_tables.sql.answer_file import MEDIA_TYPES, FileFormat
from log_tables.sql.query_request import (
    AnswerColumn,
    AnswerForm,
    FrameKind,
    QueryRequest,
    QueryResult,
    TableAccess,
    TablesRead,
)
from log_tables.sql.system_tables import (
    AUDIT_TABLE,
    GAPS_TABLE,
    LAG_TABLE,
    OFFSETS_TABLE,
    RUNS_TABLE,
    SYSTEM_TABLES,
    WRITES_TABLE,
)
from log_tables.sql.topic_files import SCAN_SCHEMA

router = APIRouter(prefix="/console/sql", include_in_schema=False, route_class=PageRoute)

SQL_MAX_CHARS = 32 * KIB
PAGE_ROWS = 200
ROWS_MAX = 1_000
"""Rows of one answer; a program reads more by `lakelog sql`, a fetch or Spark."""

BYTES_MAX = 8 * MIB
"""Bytes of one answer, as JSON."""

TOPICS_LISTED = 200
EXAMPLE = "SELECT topic, partition, offset, timestamp, value_text FROM {topic} LIMIT 20"

_OF_GROUPS = (OFFSETS_TABLE, LAG_TABLE)
_OF_CLUSTER = (RUNS_TABLE, AUDIT_TABLE, WRITES_TABLE, GAPS_TABLE)
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
_MEDIA_TYPE = "application/x-ndjson"


class QueryBody(StrictBody):
    """A query, and how many rows are wanted: as Arrow, all of them."""

    sql: str = Field(min_length=1, max_length=SQL_MAX_CHARS)
    rows: int = Field(default=ROWS_MAX, ge=1, le=ROWS_MAX)
    format: Literal["json", "arrow"] = "json"


class ListedTable(NamedTuple):
    """A table that a query may name, and its columns."""

    name: str
    columns: Sequence[pa.Field]


class Answer(NamedTuple):
    """The first rows of an answer, or why there is none."""

    columns: Sequence[AnswerColumn] = ()
    rows: Sequence[Sequence[object]] = ()
    result: QueryResult | None = None
    failed: str = ""


@router.get("/file")
async def file(
    request: Request,
    here: Here,
    asked: Asked,
    query: Annotated[str, Query(min_length=1, max_length=SQL_MAX_CHARS)],
    format: Annotated[FileFormat, Query()],  # noqa: A002 (so it stands in the address)
) -> Response:
    """The whole answer as a file. A page of another origin is led to the page, where it does not run."""
    if foreign_site(request.scope):
        return RedirectResponse(f"{router.prefix}?{urlencode({'query': query})}", 303, HEADERS)
    frames = _frames(request, here, asked, query, ROWS_MAX, format)
    await anext(frames)  # the columns: an error before them is a page

    async def pieces() -> AsyncIterator[bytes]:
        """An error ends the connection before the file is whole, so that no part is taken for all of it."""
        async with aclosing(frames):
            async for frame in frames:
                if frame.kind is FrameKind.ROWS:
                    yield frame.content

    headers = _HEADERS | {
        "Content-Disposition": f'attachment; filename="answer.{format}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(pieces(), media_type=MEDIA_TYPES[format], headers=headers)


@router.get("")
async def page(
    request: Request,
    here: Here,
    asked: Asked,
    query: Annotated[str, Query(max_length=SQL_MAX_CHARS)] = "",
) -> Response:
    """The editor, and the answer to `query`. A page of another origin may fill in a query, and not run it."""
    console(request).queries.warm()
    topics, more = await run_in_threadpool(_topics, here, asked)
    run = bool(query.strip()) and not foreign_site(request.scope)
    answer = await _answer(request, here, asked, query) if run else None
    example = EXAMPLE.format(topic=quoted(topics[0].name)) if topics else "SHOW TABLES"
    values = {
        "query": query or example,
        "answer": answer,
        "topics": topics,
        "more": more,
        "tables": [ListedTable(name, SYSTEM_TABLES[name]) for name in sorted(_system_tables(asked))],
        "command": f"lakelog sql {shlex.quote(query or example)}",
        "timeout_s": here.settings.sql_timeout_ms / 1000,
        "memory": int(here.settings.sql_memory),
        "page_rows": PAGE_ROWS,
        "rows_max": ROWS_MAX,
        "bytes_max": BYTES_MAX,
        "sql_max": SQL_MAX_CHARS,
        "quoted": quoted,
    }
    return render(request, "sql.html", values, asked)


async def stream(request: Request, here: Here, asked: Asked, body: QueryBody) -> Response:
    """The answer as lines of JSON: {"columns": …}, {"rows": …} as they come, and {"done": …} or {"error": …}.
    As Arrow it has {"arrow": …} in place of the rows, each an IPC stream in base64.

    An error before the first row is one of the request.
    """
    check_console(here)
    arrow = body.format == "arrow"
    frames = _frames(request, here, asked, body.sql, body.rows, body.format)
    first = await anext(frames)

    async def lines() -> AsyncIterator[bytes]:
        yield _line(first, arrow)
        try:
            async with aclosing(frames):
                async for frame in frames:
                    yield _line(frame, arrow)
        except Exception as error:  # noqa: BLE001 (it is logged and counted, as on every route)
            told = await answer_to(request, error)
            yield b'{"error":%b}\n' % bytes(told.body)

    return StreamingResponse(lines(), media_type=_MEDIA_TYPE, headers=_HEADERS)


# A program that fails gets JSON, no page.
router.add_api_route("", stream, methods=["POST"], route_class_override=StrictRoute)


def quoted(name: str) -> str:
    """The name as SQL has it: one that is no plain word needs quotes."""
    plain = name.isidentifier() and name.isascii()
    return name if plain else '"' + name.replace('"', '""') + '"'


def table_access(here: Gateway, asked: Caller, groups: Sequence[str]) -> TableAccess:
    """The access of this principal. `groups` are those that there are."""
    names = [topic.name for topic in listed_topics(here)]
    return TableAccess(
        frozenset(name for name in names if asked.allows(Operation.READ, ResourceType.TOPIC, name)),
        _system_tables(asked),
        frozenset(each for each in groups if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, each)),
        frozenset(filter(asked.describes, names)),
    )


def _system_tables(asked: Caller) -> frozenset[str]:
    of_cluster = asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return frozenset((*_OF_GROUPS, *(_OF_CLUSTER if of_cluster else ())))


async def _frames(
    request: Request, here: Gateway, asked: Caller, sql: str, rows: int, form: AnswerForm = "json"
) -> AsyncGenerator[Frame]:
    """The columns, the rows and the end of an answer. The topics that it reads are noted as read.

    Raises AuthorizationFailed if that is no longer allowed, and as `QueryRunner.frames`.
    """
    named = "consumer_" in sql  # without their tables nobody needs to know the groups
    groups = [group.id for group in await here.shard_manager.groups()] if named else []
    access = await run_in_threadpool(table_access, here, asked, groups)
    frames = console(request).queries.frames(QueryRequest(sql, access, rows, BYTES_MAX, form), _gone(request))
    async with aclosing(frames):
        async for frame in frames:
            if frame.kind is FrameKind.TABLES:
                _check_reads(asked, msgspec.json.decode(frame.content, type=TablesRead))
            else:
                yield frame


def _check_reads(asked: Caller, read: TablesRead) -> None:
    """Raise AuthorizationFailed unless all this may be read, which is audited as a fetch is."""
    asked.check_all(Operation.READ, ResourceType.TOPIC, read.topics)
    if any(name in _OF_CLUSTER for name in read.tables):
        asked.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def _gone(request: Request) -> Callable[[], Awaitable[None]]:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # the rest of a body that nobody reads

    return gone


def _line(frame: Frame, arrow: bool) -> bytes:
    if frame.kind is FrameKind.DONE:
        result = msgspec.json.decode(frame.content, type=QueryResult)
        told = {"rows": result.rows, "cut": result.cut, "scans": result.scans}
        return msgspec.json.encode({"done": told}) + b"\n"
    if arrow and frame.kind is FrameKind.ROWS:
        return b'{"arrow":"%b"}\n' % b64encode(frame.content)
    name = b"columns" if frame.kind is FrameKind.COLUMNS else b"rows"
    return b'{"%b":%b}\n' % (name, frame.content)


async def _answer(request: Request, here: Gateway, asked: Caller, sql: str) -> Answer:
    """The first rows, all at once."""
    columns, rows = list[AnswerColumn](), list[Sequence[object]]()
    try:
        async with aclosing(_frames(request, here, asked, sql, PAGE_ROWS)) as frames:
            async for frame in frames:
                if frame.kind is FrameKind.COLUMNS:
                    columns = msgspec.json.decode(frame.content, type=list[AnswerColumn])
                elif frame.kind is FrameKind.ROWS:
                    rows += msgspec.json.decode(frame.content)
                else:
                    return Answer(columns, rows, msgspec.json.decode(frame.content, type=QueryResult))
    except Exception as error:  # noqa: BLE001 (as above)
        told = await answer_to(request, error)
        return Answer(columns, rows, failed=msgspec.json.decode(told.body)["message"])
    raise AssertionError("an answer ends with DONE, or raises")


def _topics(here: Gateway, asked: Caller) -> tuple[list[ListedTable], int]:
    """The first topics that may be read, with their columns, and how many more there are."""
    found = [
        topic for topic in listed_topics(here) if asked.allows(Operation.READ, ResourceType.TOPIC, topic.name)
    ]
    texts = [pa.field(VALUE_TEXT, pa.string()), pa.field(KEY_TEXT, pa.string())]
    listed = [
        ListedTable(topic.name, [*SCAN_SCHEMA, *topic.config.columns.schema, *texts])
        for topic in found[:TOPICS_LISTED]
    ]
    return listed, len(found) - len(listed)
