"""Tasks of the event loop that outlive the call that starts them, that several callers wait for, or that are
given up when they are no longer worth their while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def shared_task(work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
    """A task of `work` for callers that wait for it together, each with `asyncio.shield`.

    They have its error. If all of them have left, nobody has, and asyncio does not complain.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(retrieve)
    return task


def retrieve(task: "asyncio.Future[Any]") -> None:
    """Look at the error of a task that is done, so that asyncio does not log it as one that nobody saw."""
    if not task.cancelled():
        task.exception()


class PendingTasks:
    """The running tasks of one owner, which waits for them or cancels them at its end."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their starts

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work`; its task is kept until it ends."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    async def wait(self, timeout_s: float | None = None, until: str = asyncio.ALL_COMPLETED) -> None:
        """Return when the tasks that run now have ended (`until` as for `asyncio.wait`), or after
        `timeout_s`.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s, return_when=until)

    async def cancel(self) -> None:
        """Cancel every task, and return when they have ended."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SharedRefresh:
    """One refresh at a time, in one thread, however many callers wait for it. Used on the event loop."""

    def __init__(self, act: Callable[[], object]) -> None:
        """`act` refreshes; it blocks."""
        self._act = act
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Return after a refresh that began after this call. Raises what `act` raises."""
        if self._next is None or self._next.done():
            self._next = shared_task(self._after(self._under_way))
        await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._under_way, self._next = self._next, None  # later callers need one that begins later
        await asyncio.to_thread(self._act)


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
