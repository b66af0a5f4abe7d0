"""A bound on wide requests, those to very many partitions: no other request waits for all of one.

Claiming and committing a partition wait in line for a thread. A request that put 2,000 partitions into that
line at once would have everybody else stand behind them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


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
