"""Bodies that do not come."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from api.body import read_body
from api.errors import MalformedBody, RequestTimeout, RequestTooLarge
from ingest.buffer import Buffer
from log_tables.errors import BufferFull

LIMIT = 100


def body_of(*parts: bytes, length: int | None = None, ends: bool = True) -> tuple[bytes | None, str, int]:
    """What `read_body` makes of a body that comes in `parts`: (body, error, bytes still held)."""
    left = list(parts)
    buffer = Buffer(LIMIT)

    async def receive() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or not ends}
        never: asyncio.Future[MutableMapping[str, Any]] = asyncio.get_running_loop().create_future()
        return await never

    async def read() -> bytes:
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        with buffer.room("topic") as room:
            return await read_body({"type": "http", "headers": headers}, receive, room, LIMIT, timeout_s=0.01)

    try:
        return asyncio.run(read()), "", buffer.used
    except (MalformedBody, RequestTimeout, RequestTooLarge, BufferFull) as error:
        return None, error.code, buffer.used


@pytest.mark.parametrize(
    ("parts", "length", "ends", "body", "error"),
    [
        ([b"a", b"b"], 2, True, b"ab", ""),
        ([b"a", b"b"], None, True, b"ab", ""),
        ([b"a"], 2, False, None, "request_timeout"),
        ([], 100, False, None, "request_timeout"),
        ([b"a"], 2, True, None, "malformed_body"),
        ([], 101, True, None, "request_too_large"),
        ([b"a" * 60, b"a" * 60], None, True, None, "request_too_large"),
    ],
)
def test_a_body_comes_whole_and_in_time_or_holds_nothing(
    parts: list[bytes], length: int | None, ends: bool, body: bytes | None, error: str
) -> None:
    assert body_of(*parts, length=length, ends=ends) == (body, error, 0)
