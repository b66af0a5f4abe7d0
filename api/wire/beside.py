"""Where a request is worked on: little of it on the event loop, much of it beside that, in a thread."""

from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

from api.media import Format
from log_tables.arrow_bounds import has_more

INLINE_MAX_BYTES = 1024 * 1024
"""A larger body is decoded in a thread, and one that unpacks to more. So is one of these that holds more than
is said below.
"""

INLINE_MAX_VALUES = 8_000
"""Fields, records and arrays of JSON that are decoded on the event loop: in some 7 ms."""

INLINE_MAX_ROWS = 1_000
"""Rows of an answer that are made on the event loop, and of an Arrow stream: in some 5 ms."""

INLINE_MAX_HEAD_BYTES = 32 * 1024
"""Of an Arrow stream, beside its columns: each batch has some hundred, and metadata may be JSON."""

Answer = TypeVar("Answer")


def is_large(body: bytes, form: Format) -> bool:
    """Whether to decode `body` is a lot of work. A few hundred bytes of Arrow may say a million records,
    and a few thousand unpack to many megabytes.
    """
    if form is Format.ARROW:
        return len(body) > INLINE_MAX_BYTES or has_more(
            body, INLINE_MAX_ROWS, INLINE_MAX_BYTES, INLINE_MAX_HEAD_BYTES
        )
    return is_large_json(body)


def is_large_json(body: bytes) -> bool:
    """Whether `body` is long, or holds many values: a record takes three bytes of it, `{},`.

    Counting takes far less time than a thread that waits its turn. What stands inside of strings counts too.
    """
    if len(body) > INLINE_MAX_BYTES:
        return True
    return body.count(b",") + body.count(b"{") + body.count(b"[") > INLINE_MAX_VALUES


async def worked_out(large: bool, work: Callable[[], Answer]) -> Answer:
    """What `work` gives, in a thread if it is `large`: nobody else waits for it then."""
    return await run_in_threadpool(work) if large else work()
