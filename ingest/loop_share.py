"""The time of the event loop that wide requests have together: at most half of it, some ms at a time.

A request may name ten thousand topics, and to look up and answer each takes microseconds of the event loop.
All others would wait for the sum of them. So a wide request gives way whenever its turn is over, and those
that are wide at the same time have one turn after the other.

A request to very many partitions puts no more than `Wide.at_once` of them into the line of those that wait
for a thread to claim and commit: others would stand behind them all.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from log_tables.limits import TURN_S

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


BATCH_ITEMS = 64
"""Partitions that are opened or refreshed in one go, before the thread serves others that wait."""


def batched(items: Sequence[Item], size: int = BATCH_ITEMS) -> Iterator[Sequence[Item]]:
    """`items`, `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


class Wide:
    """`at_once` partitions of all wide requests together. Used on the event loop.

    Turns are given in the order in which they are asked for, and no request asks for more than `at_once` of
    them beforehand: those that are wide at the same time share them.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.turn = asyncio.Semaphore(at_once)

    async def each(self, work: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer]:
        """The results of `work` for each of `items`, in order; `work` takes a `turn`."""
        answers: dict[int, Answer] = {}
        left = iter(enumerate(items))

        async def worker() -> None:
            for place, item in left:
                answers[place] = await work(item)

        await asyncio.gather(*(worker() for _ in range(min(self.at_once, len(items)))))
        return [answers[place] for place in range(len(items))]


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
    """Shares the time of one gateway's event loop. Used on that loop."""

    def __init__(self) -> None:
        self._line, self._small = asyncio.Lock(), asyncio.Lock()
        self._turn: _Turn | None = None
        # One thread: each of those that compute makes the event loop wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-wide")

    async def each(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """`items`, with a pause for others between two of them whenever TURN_S of the event loop are over."""
        if isinstance(items, list) and len(items) == 1:  # most have one: a turn would cost more
            yield items[0]
            return
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

    async def turn(self) -> None:
        """Wait if those that ask for it have had the event loop for TURN_S together, and others had not: of a
        thousand small requests that come at once each has it when it is its turn.
        """
        async with self._small:
            if self._turn is not None and not self._turn.is_new():
                if not self._turn.is_over():
                    return
                await asyncio.sleep(0)
            self._turn = _Turn()

    async def give_way(self) -> None:
        """Wait for the next turn, behind those that have waited longer."""
        async with self._line:
            await asyncio.sleep(TURN_S)

    async def maybe_in_thread(self, large: bool, work: Callable[[], Result]) -> Result:
        """The result of `work`; `in_thread` if it is `large`."""
        return await self.in_thread(work) if large else work()

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which computes and waits for nothing, after that of others (`to_its_end`)."""
        return await to_its_end(work, pool=self._thread)

    def close(self) -> None:
        """Do nothing more for anybody."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True, eq=False)
class _Task(Generic[Result]):
    """Work for a thread, which is not begun, and holds nothing, when nobody waits for it."""

    work: Callable[[], Result] | None
    has_begun: bool = False

    def __call__(self) -> Result | None:
        self.has_begun = True  # before it looks: who leaves does it the other way round
        work = self.work
        return None if work is None else work()


async def to_its_end(
    work: Callable[[], Result], stop: Callable[[], None] = lambda: None, pool: Executor | None = None
) -> Result:
    """Let a thread do `work`, one of `pool` or of those that look at the store. A connection that ends does
    not end the thread, which may hold room, or still take some: so it is told to `stop`, and waited for,
    unless it has not begun; then it never does.
    """
    guarded = _Task(work)
    in_context = partial(copy_context().run, guarded)
    working = asyncio.get_running_loop().run_in_executor(pool, in_context)
    try:
        return cast("Result", await asyncio.shield(working))
    except asyncio.CancelledError:
        guarded.work = None
        stop()
        if guarded.has_begun:
            await asyncio.wait([working])
        raise
