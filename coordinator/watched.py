"""A call that is given up when it is no longer worth its while."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def watched(
    call: Coroutine[Any, Any, Answer], interval_s: float, check: Callable[[], Awaitable[None]]
) -> Answer:
    """The result of `call`. While it runs, `check` is awaited every `interval_s`; `call` is cancelled when
    that raises, or when the caller is cancelled, and has ended on return.

    Raises what `call` and `check` raise.
    """
    task = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait((task,), timeout=interval_s))[0]:
            await check()
    finally:
        if not task.done():
            task.cancel()
            # Its connection is closed before anybody hears of that: who asks another gateway next must not
            # come before the end of this request, which might take what is there.
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # retrieved, even if nobody waits for it any longer
    return task.result()
