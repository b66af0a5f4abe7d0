"""Bodies that do not come."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.types import Receive

from api.errors import MalformedBody, RequestTimeout, RequestTooLarge
from api.requests.body import read_body
from api.requests.heads import ARRIVED
from ingest.buffer import Buffer
from log_tables.errors import BufferFull
from log_tables.limits import SMALL_BODIES_MAX_BYTES, SMALL_BODY_FREE_BYTES, SMALL_BODY_MAX_BYTES

LIMIT = 100


def body_of(*parts: bytes, length: int | None = None, ends: bool = True) -> tuple[bytes | None, str, int]:
    """Run `read_body` on a body that comes in `parts`. Returns the body, the error, and the bytes held."""
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


def test_only_a_body_that_has_arrived_has_no_deadline() -> None:
    async def receive() -> MutableMapping[str, Any]:
        await asyncio.to_thread(bytes)  # gives other tasks a turn
        return {"type": "http.request", "body": b"a", "more_body": False}

    async def read(scope: MutableMapping[str, Any]) -> bytes:
        with Buffer(LIMIT).room("topic") as room:
            return await read_body(scope, receive, room, LIMIT, timeout_s=0)

    coming = {"type": "http", "headers": []}
    assert asyncio.run(read({**coming, ARRIVED: True})) == b"a"
    with pytest.raises(RequestTimeout):
        asyncio.run(read(coming))


@pytest.mark.parametrize("announced", [SMALL_BODY_FREE_BYTES, SMALL_BODY_MAX_BYTES])
def test_bodies_that_are_only_announced_keep_no_other_out(announced: int) -> None:
    small = Buffer(SMALL_BODIES_MAX_BYTES, free_bytes=SMALL_BODY_FREE_BYTES)

    async def never() -> MutableMapping[str, Any]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def two() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def announce(share: str, receive: Receive, length: int) -> bytes:
        scope = {"type": "http", "headers": [(b"content-length", str(length).encode())]}
        with small.room(share) as room:
            return await read_body(scope, receive, room, SMALL_BODY_MAX_BYTES, timeout_s=60)

    async def all_of_them() -> bytes:
        waiting = [asyncio.create_task(announce(f"/g{i % 2}", never, announced)) for i in range(1_000)]
        await asyncio.wait(waiting, timeout=0)  # until all have begun
        said = await announce("/orders", two, 2)
        for task in waiting:
            task.cancel()
        return said

    assert asyncio.run(all_of_them()) == b"{}"


def test_room_is_for_what_comes_beyond_what_is_free() -> None:
    buffer = Buffer(LIMIT, free_bytes=10)
    with buffer.room("a") as room, buffer.room("b") as other:
        room.grow(10)
        assert buffer.used == 0
        room.grow(10 + LIMIT)
        assert buffer.used == LIMIT
        other.grow(10)
        with pytest.raises(BufferFull):
            other.check(11)
    assert buffer.used == 0
