"""A refresh from the store that concurrent callers share."""

import asyncio
from collections.abc import Callable


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
            self._next = asyncio.create_task(self._after(self._under_way))
            self._next.add_done_callback(_heard)
        await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._under_way, self._next = self._next, None  # later callers need one that begins later
        await asyncio.to_thread(self._act)


def _heard(look: "asyncio.Task[None]") -> None:
    """Retrieve its error, even if nobody waits for it any longer."""
    if not look.cancelled():
        look.exception()
