"""Where the work of a request is done: a little on the event loop, a lot in a thread."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

from api.media import Format
from log_tables.arrow_bounds import has_more

INLINE_MAX_BYTES = 1024 * 1024
"""A larger body is decoded in a thread, and so is one that decompresses to more, or holds more than the
bounds below.
"""

INLINE_MAX_VALUES = 8_000
"""Fields, records and arrays of JSON that the event loop decodes at once: that takes about 7 ms."""

INLINE_MAX_ROWS = 1_000
"""Rows of an answer or of an Arrow stream that the event loop handles at once: about 5 ms."""

INLINE_MAX_JUDGED = 100
INLINE_MAX_JUDGED_BYTES = 64 * 1024
"""Values, and their bytes, that the event loop compares with declared columns: mostly 1 µs for each, but up
to 50 µs where one is written in an unusual way.
"""

INLINE_MAX_HEAD_BYTES = 32 * 1024
"""Bytes of an Arrow stream besides its columns: each batch has a few hundred, and metadata may be JSON."""

Result = TypeVar("Result")


def is_large(body: bytes, form: Format) -> bool:
    """Whether decoding `body` is a lot of work.

    A few hundred bytes of Arrow may stand for a million records, and a few thousand may decompress to many
    megabytes.
    """
    if form is Format.ARROW:
        return len(body) > INLINE_MAX_BYTES or has_more(
            body, INLINE_MAX_ROWS, INLINE_MAX_BYTES, INLINE_MAX_HEAD_BYTES
        )
    return is_large_json(body)


def is_large_json(body: bytes) -> bool:
    """Whether `body` is long, or holds many values: a record can be as short as three bytes, `{},`.

    Counting is much faster than waiting for a thread. Characters inside strings are counted as well.
    """
    if len(body) <= INLINE_MAX_VALUES:
        return False
    if len(body) > INLINE_MAX_BYTES:
        return True
    return body.count(b",") + body.count(b"{") + body.count(b"[") > INLINE_MAX_VALUES


async def maybe_in_thread(large: bool, work: Callable[[], Result]) -> Result:
    """The result of `work`, which runs in a thread if it is `large`, so that it blocks no other request."""
    return await run_in_threadpool(work) if large else work()


async def to_its_end(work: Callable[[], Result], stop: Callable[[], None] = lambda: None) -> Result:
    """Let a thread do `work`. A connection that ends does not end the thread, which may hold room, or still
    take some: so it is told to `stop`, and waited for.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([working])
        raise
