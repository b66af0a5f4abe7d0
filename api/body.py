"""A produce request's body, read within the buffer: room is reserved before the bytes are held."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from api.errors import MalformedBody, RequestTimeout, RequestTooLarge
from ingest.buffer import Room

BODY_TIMEOUT_S = 60.0
"""How long a body may take: it holds its room meanwhile, and a few that never end would hold all there is."""


async def read_body(
    request: Request, room: Room, limit_bytes: int, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """The whole body. Raises RequestTooLarge, BufferFull, RequestTimeout, MalformedBody for half a body."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(request, room, limit_bytes)
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not come within {timeout_s:g} s; send it faster, or fewer records at once"
        ) from None


async def _read(request: Request, room: Room, limit_bytes: int) -> bytes:
    declared = _declared(request, limit_bytes)
    room.grow(declared)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > limit_bytes:
                raise _too_large(size, limit_bytes)
            room.grow(size)
    except ClientDisconnect:
        raise MalformedBody(f"the body ended after {size} bytes; send it whole") from None
    if size < declared:
        raise MalformedBody(f"the body has {size} of the {declared} bytes that were announced; send it whole")
    return parts[0] if len(parts) == 2 and not parts[1] else b"".join(parts)


def _declared(request: Request, limit_bytes: int) -> int:
    length = request.headers.get("content-length", "0")
    if not length.isdecimal():
        raise MalformedBody(f"Content-Length {length[:40]!r} is not a number; send the body's bytes")
    if int(length) > limit_bytes:
        raise _too_large(int(length), limit_bytes)
    return int(length)


def _too_large(size_bytes: int, limit_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has {size_bytes} bytes, {limit_bytes} are allowed; send fewer records")
