"""Waiting for records at the end of a partition: long poll."""

import asyncio

from starlette.requests import Request

from api.gateway import Gateway
from log_tables.partition.partition import Partition

POLL_FIRST_S = 0.02
POLL_MAX_S = 0.2
"""Commits of this process wake a reader at once; another gateway's are looked for, ever more seldom."""


async def wait_for_records(
    here: Gateway, request: Request, partition: Partition, offset: int, deadline: float
) -> None:
    """Return when there is a record at `offset`, at `deadline`, or when nobody waits any more.

    Raises what `Partition.refresh` raises: TopicDeleted as soon as that is known here.
    """
    if here.clock.monotonic() >= deadline:
        return
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    unsubscribe = partition.on_commit(lambda: _wake(loop, arrived))
    pause = POLL_FIRST_S
    try:
        await asyncio.to_thread(partition.refresh)
        while partition.high_watermark <= offset and not here.stopping.is_set():
            left = deadline - here.clock.monotonic()
            if left <= 0 or await request.is_disconnected():
                return
            try:
                await asyncio.wait_for(arrived.wait(), min(left, pause))
            except TimeoutError:
                await asyncio.to_thread(partition.refresh)
                pause = min(pause * 1.5, POLL_MAX_S)
            partition.check_live()
            arrived.clear()
    finally:
        unsubscribe()


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
