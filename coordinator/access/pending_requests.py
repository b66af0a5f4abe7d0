"""How many requests of each principal are under way, at all doors of a gateway together."""

import asyncio
from collections import Counter, deque

from coordinator.access.principal import Principal
from log_tables.errors import QuotaReached


class PendingRequests:
    """Used on the event loop."""

    def __init__(self, most: int) -> None:
        """`most` of one principal; 0 is no bound."""
        self._most, self._pending = most, Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def enter(self, principal: Principal) -> str:
        """Count a request. Returns what `leave` takes. Raises QuotaReached for one too many."""
        name = principal.name
        if self._most == 0:
            return ""
        if self._pending[name] >= self._most:
            raise QuotaReached(
                f"{name[:200]} has {self._most} requests under way, as many as principal_requests_max "
                "allows; wait for some of them",
                retry_after_s=1.0,
            )
        self._pending[name] += 1
        return name

    async def wait(self, principal: Principal) -> str:
        """As `enter`, but a request too many waits for its turn, behind those that have waited longer."""
        name = principal.name
        if self._most == 0 or self._pending[name] < self._most:
            return self.enter(principal)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(name, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(name)  # its turn had come just before
            elif turn in line:
                line.remove(turn)
                if not line:
                    self._waiting.pop(name, None)
            raise
        return name

    def leave(self, name: str) -> None:
        """The request is answered, or over: the next one that waits has its place."""
        if not name:
            return
        line = self._waiting.get(name)
        while line:
            turn = line.popleft()
            if not line:
                del self._waiting[name]
            if not turn.done():
                turn.set_result(None)
                return
        self._pending[name] -= 1
        if self._pending[name] <= 0:
            del self._pending[name]
