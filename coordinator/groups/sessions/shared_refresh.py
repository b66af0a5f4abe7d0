"""A refresh from the store that concurrent callers share."""

import asyncio
from collections.abc import Callable

from ingest.pending_tasks import shared_task


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
