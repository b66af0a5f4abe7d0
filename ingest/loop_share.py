"""The time of the event loop that wide requests have together: at most half of it, some ms at a time.

A request may name ten thousand topics, and to look up and answer each takes microseconds of the event loop.
All others would wait for the sum of them. So a wide request gives way whenever its turn is over, and those
that are wide at the same time have one turn after the other.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ingest.wide import batched
from log_tables.limits import TURN_S

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Turn:
    """Some ms of the event loop, in which nothing else runs."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._time, self._until, self._others_ran = loop.time, loop.time() + TURN_S, False
        loop.call_soon(self._others_run)

    def _others_run(self) -> None:
        self._others_ran = True

    def is_new(self) -> bool:
        """Whether others had the event loop since it began: whoever waits for a commit holds nobody up."""
        return self._others_ran

    def is_over(self) -> bool:
        return self._time() > self._until


class LoopShare:
    """That of one gateway. Used on the event loop."""

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        # One thread: each of those that compute makes the event loop wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-wide")

    async def each(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """`items`, with a pause for others between two of them whenever TURN_S of the event loop are over."""
        turn: _Turn | None = None
        for item in items:
            if turn is None or turn.is_new():
                turn = _Turn()
            elif turn.is_over():
                await self.give_way()
                turn = _Turn()
            yield item

    async def results(self, work: Callable[[Item], Awaitable[Result]], items: Sequence[Item]) -> list[Result]:
        """The results of `work` for each of `items`, in order. Some are worked at at once, so that they share
        what they wait for.
        """
        if len(items) == 1:
            return [await work(items[0])]
        found: list[Result] = []
        async for some in self.each(batched(items)):
            found += await asyncio.gather(*map(work, some))
        return found

    async def give_way(self) -> None:
        """Wait for the next turn, behind those that have waited longer."""
        async with self._line:
            await asyncio.sleep(TURN_S)

    async def maybe_in_thread(self, large: bool, work: Callable[[], Result]) -> Result:
        """The result of `work`; `in_thread` if it is `large`."""
        return await self.in_thread(work) if large else work()

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which computes and waits for nothing, after that of others."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Do nothing more for anybody."""
        self._thread.shutdown(wait=False, cancel_futures=True)
