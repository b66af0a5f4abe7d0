"""A look at the store that all share who ask for it at once."""

import asyncio
from collections.abc import Callable


class SharedRefresh:
    """One look at a time, in one thread, however many wait for it. Used on the event loop."""

    def __init__(self, act: Callable[[], object]) -> None:
        """`act` is the look; it blocks."""
        self._act = act
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Return after a look that began after this was called. Raises what that raises."""
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._after(self._under_way))
            self._next.add_done_callback(_heard)
        await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._under_way, self._next = self._next, None  # who comes from now on needs one that begins later
        await asyncio.to_thread(self._act)


def _heard(look: "asyncio.Task[None]") -> None:
    """Look at its error, also where nobody waits for it any more."""
    if not look.cancelled():
        look.exception()
