"""Waiting for records at the end of a partition: long poll."""

import asyncio
from contextlib import suppress

from starlette.requests import Request

from api.gateway import Gateway
from api.requests.credential import check_again
from coordinator.groups.sessions.tail_follower import WAITS
from log_tables.errors import LakelogError
from log_tables.partition.reader import PartitionReader


async def wait_for_records(
    here: Gateway, request: Request, partition: PartitionReader, offset: int, deadline: float
) -> None:
    """Return when there is a record at `offset`, at `deadline`, or when nobody waits any more.

    Raises what `PartitionReader.refresh` raises: TopicDeleted as soon as that is known here;
    AuthenticationFailed as soon as the credential of the request is no longer right.
    """
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    unsubscribe = partition.on_commit(lambda: _wake(loop, arrived))
    pause, look = WAITS.first_s, None
    try:
        while partition.high_watermark <= offset and not here.stopping.is_set():
            left = deadline - here.clock.monotonic()
            if left <= 0 or await request.is_disconnected():
                return
            await check_again(here, request.scope)
            due = here.tails.due_s([partition], pause)
            if look is None and due <= 0:
                # Not waited for by itself: a commit of this process is to wake the reader meanwhile.
                look = asyncio.create_task(here.tails.follow([partition], pause))
                look.add_done_callback(lambda _: arrived.set())
                pause = WAITS.after(pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(arrived.wait(), min(left, due if look is None else WAITS.max_s))
            arrived.clear()
            partition.check_live()
            if look is not None and look.done():
                _raise_first(look.result())
                look = None
    finally:
        unsubscribe()


def _raise_first(troubles: list[LakelogError]) -> None:
    for trouble in troubles:
        raise trouble


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
