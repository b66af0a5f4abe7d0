"""Where a request is worked on: little of it on the event loop, much of it beside that, in a thread."""

from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

from api.media import Format
from log_tables.arrow_bounds import has_more_rows

INLINE_MAX_BYTES = 32 * 1024
"""A body of up to so many bytes is decoded on the event loop: in some 20 ms, wherever its records go."""

INLINE_MAX_ROWS = 1_000
"""Rows of an answer that are made on the event loop, and of an Arrow stream: in some 5 ms."""

Answer = TypeVar("Answer")


def is_large(body: bytes, form: Format) -> bool:
    """Whether to decode `body` is a lot of work: a few hundred bytes of Arrow may say a million records."""
    return len(body) > INLINE_MAX_BYTES or (form is Format.ARROW and has_more_rows(body, INLINE_MAX_ROWS))


async def worked_out(large: bool, work: Callable[[], Answer]) -> Answer:
    """What `work` gives, in a thread if it is `large`: nobody else waits for it then."""
    return await run_in_threadpool(work) if large else work()
