"""The live tail of a partition: its records as server-sent events, as long as the client listens.

The id of an event is the offset of its record, so a browser that lost the connection asks for what follows by
itself (WHATWG HTML, "Server-sent events"). A client that reads slowly holds one batch of events here.
"""

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.errors import NotJson, status_and_code
from api.gateway import Gateway
from api.media import EVENT_STREAM, Format
from api.requests.access import check_again
from api.wire.records import encode_rows
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.layout import KEY, OFFSET
from log_tables.limits import EVENTS_BYTES, HEARTBEAT_S, READ_SEGMENTS_MAX
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader
from log_tables.record import int64s


async def wait_for_records(
    here: Gateway, request: Request, partition: PartitionReader, offset: int, deadline: float
) -> None:
    """Return when there is a record at `offset`, at `deadline`, or when nobody waits any more.

    Raises what `PartitionReader.refresh` raises: TopicDeleted as soon as that is known here;
    AuthenticationFailed as soon as the credential of the request is no longer right.
    """

    async def is_ready(troubles: Sequence[LakelogError]) -> bool:
        for trouble in troubles:
            raise trouble
        if partition.high_watermark > offset or here.stopping.is_set() or await request.is_disconnected():
            return True
        await check_again(here, request.scope)
        partition.check_live()
        return False

    if here.clock.monotonic() < deadline:
        await here.tails.wait_until(is_ready, [partition], deadline, here.loop_share)


_RETRY = b"retry: 2000\n"
"""How long a browser waits before it connects again, in milliseconds."""

_HEARTBEAT = b":\n\n"
_ROWS_AT_ONCE = 1_024

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would gather events before it sends them
}


class Tail(NamedTuple):
    """The records that a client listens to: of a partition, from an offset on; and how they are shown."""

    topic: str
    partition: PartitionReader
    number: int
    start: int
    form: Format
    keys: pa.Array | None = None
    """Only records with one of these keys."""
    from_latest: bool = False
    """Whether it begins at the log end: a client that comes again would begin at a later one."""


class _Batch(NamedTuple):
    """Some events, the number of records in them, and the offset that they end before."""

    text: bytes
    records: int
    following: int


def event_format(named: str | None) -> Format:
    """The format of keys and values that the query names, JSON by default. Raises InvalidArgument."""
    formats = {form.name.lower(): form for form in (Format.JSON, Format.BINARY, Format.TEXT)}
    if named is not None and named not in formats:
        raise InvalidArgument(f"format {named[:40]!r} is none of events; use {', '.join(formats)}")
    return formats[named or "json"]


def stored_keys(key: str | None, form: Format) -> pa.Array | None:
    """The keys, as they are stored, that `key` means: base64 in the binary format, else text, which JSON may
    have put into quotes. Raises InvalidArgument.
    """
    if key is None:
        return None
    if form is not Format.BINARY:
        return pa.array([key.encode(), msgspec.json.encode(key)], pa.binary())
    try:
        return pa.array([b64decode(key, validate=True)], pa.binary())
    except (NotBase64, ValueError):
        raise InvalidArgument(f"key {key[:40]!r} is not base64, as format=binary has it") from None


def event_response(
    here: Gateway, request: Request, tail: Tail, check: Callable[[], Awaitable[float]]
) -> StreamingResponse:
    """The events of `tail`. `check` is awaited before each batch, and says how many seconds it has to wait
    for a quota; the error that it raises is the last event.
    """
    return StreamingResponse(_events(here, request, tail, check), media_type=EVENT_STREAM, headers=_HEADERS)


async def _events(
    here: Gateway, request: Request, tail: Tail, check: Callable[[], Awaitable[float]]
) -> AsyncIterator[bytes]:
    # Without data it is no event: it says only where to go on, before there is any.
    yield _RETRY + (b"id: %d\n\n" % (tail.start - 1) if tail.from_latest else b"\n")
    metrics, position = here.metrics.topic(tail.topic), tail.start
    try:
        # Nothing that is sent to a client that has left waits, or fails: the loop would never let go.
        while not (here.stopping.is_set() or await request.is_disconnected()):
            if tail.partition.high_watermark <= position:
                deadline = here.clock.monotonic() + HEARTBEAT_S
                await wait_for_records(here, request, tail.partition, position, deadline)
            wait_s = await check()
            if wait_s > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(here.stopping.wait(), min(wait_s, HEARTBEAT_S))
                yield _HEARTBEAT
            elif tail.partition.high_watermark <= position:
                yield _HEARTBEAT
            else:
                begin = here.clock.monotonic()
                batch = await run_in_threadpool(_next_batch, tail, position)
                metrics.fetched(batch.records, len(batch.text), here.clock.monotonic() - begin)
                yield batch.text
                position = batch.following
    except LakelogError as error:
        code = status_and_code(error)[1]
        here.metrics.request_failed(code)
        told = msgspec.json.encode({"error_code": code, "message": error.message})
        yield b"event: failure\ndata: %b\n\n" % told


def _next_batch(tail: Tail, position: int) -> _Batch:
    """The events from `position` on. Raises NotJson for a first record that cannot be shown, and what reading
    raises.
    """
    found = tail.partition
    if not found.reaches(position):
        found.log_from(position)
    plan = found.bound(found.plan_read(position, EVENTS_BYTES, READ_SEGMENTS_MAX))
    lines, records, following = list[str](), 0, position
    for part in _parts(tail, plan):
        if part.num_rows:
            try:
                rows = encode_rows(part, tail.topic, tail.number, tail.form)
            except NotJson:
                if not records:
                    raise
                rows = []
            offsets = int64s(part.column(OFFSET))[: len(rows)].tolist()
            lines += [_event(offset, row) for offset, row in zip(offsets, rows, strict=True)]
            records += len(rows)
            if len(rows) < part.num_rows:
                return _Batch("".join(lines).encode(), records, int(part.column(OFFSET)[len(rows)].as_py()))
    following = plan.end
    if tail.keys is not None:
        # Without data it is no event: it says only where to go on after a lost connection.
        lines.append(f"id: {following - 1}\n\n")
    return _Batch("".join(lines).encode(), records, following)


def _parts(tail: Tail, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    for batch in tail.partition.read(plan):
        wanted = batch if tail.keys is None else batch.filter(pc.is_in(batch.column(KEY), tail.keys))
        for start in range(0, wanted.num_rows, _ROWS_AT_ONCE):
            yield wanted.slice(start, _ROWS_AT_ONCE)


def _event(offset: int, row: str) -> str:
    """One event. JSON may have been sent with line breaks between its parts, each of which ends a line."""
    if "\n" in row or "\r" in row:
        row = row.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"id: {offset}\ndata: {row}\n\n"
