"""Where a request is worked on: little of it on the event loop, much of it beside that, in a thread."""

from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

INLINE_MAX_BYTES = 32 * 1024
"""A body of up to so many bytes is decoded on the event loop: in some 20 ms, wherever its records go."""

INLINE_MAX_ROWS = 1_000
"""Rows of an answer that are made on the event loop: in some 5 ms."""

Answer = TypeVar("Answer")


async def worked_out(large: bool, work: Callable[[], Answer]) -> Answer:
    """What `work` gives, in a thread if it is `large`: nobody else waits for it then."""
    return await run_in_threadpool(work) if large else work()
