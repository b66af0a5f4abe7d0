"""A client that is beyond its quota is not read for a while (KIP-219)."""

import asyncio
from collections.abc import Callable


class Throttle:
    """Delays one connection. Used on the event loop."""

    def __init__(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Both are called when it is so."""
        self._begun, self._ended = begun, ended
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._over = asyncio.Event()
        self._over.set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_shut = False

    @property
    def is_over(self) -> bool:
        """Whether the client is read."""
        return self._over.is_set()

    @property
    def left_s(self) -> float:
        """How long it lasts; 0 if it is over."""
        return max(0.0, self._until - self._loop.time())

    def begin(self, seconds: float) -> None:
        """Let it last for so long at least."""
        if seconds <= 0 or self._is_shut:
            return
        self._until = max(self._until, self._loop.time() + seconds)
        self._over.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._until, self._end)
        self._begun()

    def _end(self) -> None:
        self._timer = None
        self._over.set()
        self._ended()

    def shut(self) -> None:
        """End it, and begin no other."""
        self._is_shut = True
        if self._timer is not None:
            self._timer.cancel()
        self._over.set()

    async def wait(self) -> None:
        """Until it is over."""
        await self._over.wait()
