"""How much each principal has under way, at all doors of a gateway together, counted by names."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass

from coordinator.access.principal import Principal
from log_tables.errors import QuotaReached
from log_tables.limits import NAMES_PER_REQUEST


def requests_of(names: int, elements: int) -> int:
    """As how many requests one counts that has `names`, as of topics and groups, and so many `elements`, as
    partitions: for quotas and for what may be under way, at every door.
    """
    return max(1, names, elements // NAMES_PER_REQUEST)


@dataclass(frozen=True, slots=True)
class PendingCount:
    """So many places of a principal: a request holds them while it is under way."""

    name: str
    count: int


_NONE = PendingCount("", 0)


class PendingRequests:
    """Used on the event loop."""

    def __init__(self, most: int) -> None:
        """`most` places of one principal; 0 is no bound."""
        self._most, self._pending = most, Counter[str]()
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], PendingCount]]] = {}

    def enter(self, principal: Principal, count: int = 1, besides: int = 0) -> PendingCount:
        """Take so many places, all that there are at most, for a request that has `besides` already. Returns
        what `leave` takes. Raises QuotaReached where they are taken.
        """
        wanted = self._wanted(principal, count, besides)
        if wanted.count and not self._is_free(wanted):
            raise QuotaReached(
                f"{wanted.name[:200]} has as many requests under way as principal_requests_max = "
                f"{self._most} allows, or as many names in them; wait for some of them",
                retry_after_s=1.0,
            )
        if wanted.count:
            self._pending[wanted.name] += wanted.count
        return wanted

    async def wait(self, principal: Principal, count: int = 1) -> PendingCount:
        """As `enter`, but a request too many waits for its turn, behind those that have waited longer."""
        wanted = self._wanted(principal, count, 0)
        if not wanted.count or self._is_free(wanted):
            return self.enter(principal, count)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(wanted.name, deque())
        line.append((turn, wanted))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(wanted)  # its turn had come just before
            elif (turn, wanted) in line:
                line.remove((turn, wanted))
                self._go_on(wanted.name)  # a smaller one behind it may have room
            raise
        return wanted

    def leave(self, places: PendingCount) -> None:
        """The request is answered, or over: those that wait have its places."""
        if not places.count:
            return
        self._pending[places.name] -= places.count
        self._go_on(places.name)

    def _wanted(self, principal: Principal, count: int, besides: int) -> PendingCount:
        """The places that a request takes. One that counts for more than all places takes all."""
        wanted = min(count, self._most - besides)
        return PendingCount(principal.name, wanted) if wanted > 0 else _NONE

    def _is_free(self, wanted: PendingCount) -> bool:
        return wanted.name not in self._waiting and self._has_room(wanted)

    def _has_room(self, wanted: PendingCount) -> bool:
        return self._pending[wanted.name] + wanted.count <= self._most

    def _go_on(self, name: str) -> None:
        """Let those enter that wait and have room, in their order."""
        line = self._waiting.get(name)
        while line and (line[0][0].done() or self._has_room(line[0][1])):
            turn, wanted = line.popleft()
            if not turn.done():
                self._pending[name] += wanted.count
                turn.set_result(None)
        if not line:
            self._waiting.pop(name, None)
            if self._pending[name] <= 0:
                del self._pending[name]
