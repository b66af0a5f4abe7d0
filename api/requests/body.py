"""Bodies of requests: each is read here, whole, before an application sees the request.

So every body has a size limit, a deadline, and room for the bytes that have arrived, on every route, and none
is left unread. Announced bytes take no room: otherwise clients that send nothing would keep out those that
do. Records share `buffer_memory`, of which each topic has its own part. All other bodies share a small buffer
of their own, so that neither kind keeps out the other.

A body may come compressed (RFC 9110, 8.4), and is unpacked within bounds.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qs

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import (
    MalformedBody,
    RequestTimeout,
    RequestTooLarge,
    UnsupportedMediaType,
    error_response,
    status_and_code,
)
from api.gateway import Gateway
from api.requests.access import check_again
from api.requests.heads import ARRIVED, heads, listed
from api.wire.json_bounds import check_depth, small_cost
from api.wire.offload import INLINE_MAX_STRICT_BYTES, computed, maybe_in_thread
from api.wire.room import hold, inflate_stream
from ingest.buffer import Buffer, Room
from log_tables.errors import BufferFull, LakelogError
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import BATCH_MAX_BYTES, SMALL_BODY_MAX_BYTES

_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
"""The codings that are taken, and Arrow's names of their codecs."""

IDENTITY = "identity"


def coding_of(scope: Scope) -> str | None:
    """The coding of a body with records; None for one that is sent as it is.

    Raises UnsupportedMediaType for one that is not known, and for a body that is coded more than once.
    """
    found = [each for each in listed(scope, b"content-encoding") if each != IDENTITY]
    if not found:
        return None
    if len(found) > 1 or found[0] not in _CODECS:
        raise UnsupportedMediaType(
            f"Content-Encoding {', '.join(found)[:40]!r} is not taken; send gzip, zstd or identity, and one "
            "of them only"
        )
    return found[0]


def unpacked(packed: bytes, coding: str, room: Room, most_bytes: int) -> bytes:
    """The body that `packed` stands for; `room`, which holds `packed`, holds it then.

    Raises MalformedBody for one that is not whole; RequestTooLarge for more than `most_bytes`, and where
    there is never so much room; BufferFull.
    """
    reserve = partial(_hold_besides, room, len(packed))
    try:
        body = inflate_stream(packed, _CODECS[coding], most_bytes, reserve)
    except (OSError, pa.ArrowException) as error:
        raise MalformedBody(f"the body is no whole {coding}: {error}; send all of it again") from None
    if body is None:
        raise RequestTooLarge(
            f"the body unpacks to more than the {most_bytes} bytes that are allowed; send less at once"
        )
    room.settle(len(body))
    return body


def _hold_besides(room: Room, besides_bytes: int, size_bytes: int) -> None:
    hold(room, besides_bytes + size_bytes)


_TAKEN = "lakelog.body"
"""The key of an ASGI scope where its body and room are."""

_RECORDS = re.compile(
    r"/topics/(?P<v2>[^/]+)(?:/partitions/[^/]+|/values)?"
    r"|/v3/clusters/[^/]+/topics/(?P<v3>[^/]+)/records(?::batch)?"
    r"|/consumers/[^/]+(?:/instances/[^/]+)?/(?P<transaction>transactions)"
)
"""The paths that records are sent to."""


class Allowance(NamedTuple):
    """How large a body may be, and the share of a buffer that it counts to."""

    limit_bytes: int
    buffer: Buffer
    share: str


def allowance(here: Gateway, scope: Scope) -> Allowance:
    """The allowance of a request's body."""
    path, most = scope["path"], int(here.settings.max_request_bytes)
    if path == "/peer/append":
        named = parse_qs(scope["query_string"].decode("latin-1")).get("topic", [""])
        return Allowance(most + BATCH_MAX_BYTES, here.buffer, named[0])
    records = _records_path(scope)
    if records is None:
        return Allowance(SMALL_BODY_MAX_BYTES, here.small_bodies, "/".join(path.split("/")[:3]))
    return Allowance(most, here.buffer, records["v2"] or records["v3"] or CONSUMER_OFFSETS)


def brings_records(scope: Scope) -> bool:
    """Whether the body of a request has records."""
    return _records_path(scope) is not None


def _records_path(scope: Scope) -> re.Match[str] | None:
    return _RECORDS.fullmatch(scope["path"]) if scope["method"] == "POST" else None


@dataclass(slots=True)
class _Body:
    body: bytes
    room: Room


def take_body(request: Request) -> bytes:
    """Take the body from `request`, so that it can be freed once it is decoded; empty if it has none."""
    taken: _Body | None = request.scope.get(_TAKEN)
    if taken is None:
        return b""
    body, taken.body = taken.body, b""
    return body


def put_back(request: Request, body: bytes) -> None:
    """Let `body`, which was taken, be taken again: for another attempt to answer `request`."""
    if body:
        request.scope[_TAKEN].body = body


def room_of(here: Gateway, request: Request) -> Room:
    """The room that `request` holds in the buffer: at least its body. A context manager that gives it
    back.
    """
    taken: _Body | None = request.scope.get(_TAKEN)
    return here.buffer.room("") if taken is None else taken.room


class WithBody:
    """An ASGI application around another, which gets requests whose bodies have arrived."""

    def __init__(
        self, app: ASGIApp, gateway: Gateway, refused: Callable[[LakelogError], Response] = error_response
    ) -> None:
        """`refused` makes the answer to a body that is not taken."""
        self._app, self._gateway, self._refused = app, gateway, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _announces(scope):
            await self._app(scope, receive, send)
            return
        allowed, waits = allowance(self._gateway, scope), ARRIVED not in scope
        with allowed.buffer.room(allowed.share) as room:
            taken = scope[_TAKEN] = _Body(b"", room)
            try:
                timeout_s = self._gateway.settings.receive_timeout_ms / 1_000
                taken.body = await read_body(scope, receive, room, allowed.limit_bytes, timeout_s)
                if waits:
                    await check_again(self._gateway, scope)
                if b"content-encoding" in heads(scope) and brings_records(scope):
                    taken.body = await _unpacked(scope, taken.body, room, allowed.limit_bytes)
                if allowed.buffer is self._gateway.small_bodies:
                    room.grow(len(taken.body) + small_cost(taken.body))
                    large = len(taken.body) > INLINE_MAX_STRICT_BYTES
                    await maybe_in_thread(large, partial(check_depth, taken.body))
                receive = _again(taken, receive)
            except ClientDisconnect:
                return  # nobody reads an answer, or the protocol has sent it
            except LakelogError as error:
                self._gateway.metrics.request_failed(status_and_code(error)[1])
                answer = self._refused(error)
                if not isinstance(error, BufferFull):
                    answer.headers["connection"] = "close"  # the rest of it is not read
                await answer(scope, receive, send)
                return
            await self._app(scope, receive, send)


async def _unpacked(scope: Scope, body: bytes, room: Room, limit_bytes: int) -> bytes:
    """A body with records as it was before it was compressed: it may be very much more."""
    coding = coding_of(scope)
    if coding is None:
        return body
    return await computed(partial(unpacked, body, coding, room, limit_bytes))


def _announces(scope: Scope) -> bool:
    """Whether a body is announced."""
    found = heads(scope)
    return b"content-length" in found or b"transfer-encoding" in found


def _again(taken: _Body, receive: Receive) -> Receive:
    """A `receive` that gives the body once more, for an application that reads it itself."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        body, taken.body = taken.body, b""
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def read_body(scope: Scope, receive: Receive, room: Room, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises RequestTooLarge, BufferFull, RequestTimeout, MalformedBody for another size than
    was announced; ClientDisconnect.
    """
    if ARRIVED in scope:
        return await _read(scope, receive, room, limit_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(scope, receive, room, limit_bytes)
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not arrive within {timeout_s:g} s; send it faster, or send less at once"
        ) from None


async def _read(scope: Scope, receive: Receive, room: Room, limit_bytes: int) -> bytes:
    declared = _declared(scope, limit_bytes)
    room.check(declared)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > limit_bytes:
            raise _too_large(size, limit_bytes)
        room.grow(size)
    if size < declared:
        raise MalformedBody(
            f"the body has {size} of the {declared} bytes in Content-Length; send all of them"
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _declared(scope: Scope, limit_bytes: int) -> int:
    length = heads(scope).get(b"content-length", (b"0",))[0].decode("latin-1")
    if not (length.isascii() and length.isdecimal()):
        raise MalformedBody(f"Content-Length {length[:40]!r} is not a number; send the body's bytes")
    if len(length) > 19 or int(length) > limit_bytes:
        raise _too_large(length[:20], limit_bytes)
    return int(length)


def _too_large(size_bytes: int | str, limit_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has {size_bytes} bytes, {limit_bytes} are allowed; send less at once")
