"""All connections of Kafka's clients: how many there may be, which of them wait for room, deadlines."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from api.kafka.clients.door import ROOM_PAUSE_S
from coordinator.access.host import network_of

LOOK_S = 0.5
"""How often deadlines are looked at."""

_log = logging.getLogger(__name__)


class Watched(Protocol):
    """A connection, as it is watched."""

    def look(self, now: float) -> None: ...

    def try_again(self) -> None: ...

    def finish(self) -> None: ...

    @property
    def busy(self) -> bool: ...

    @property
    def is_authenticated(self) -> bool: ...

    def close(self) -> None: ...

    def drop(self) -> None: ...


class Connections:
    """The connections of one gateway. Used on the event loop."""

    def __init__(
        self,
        most: int,
        per_ip: int,
        others: Callable[[], int] = lambda: 0,
        by_ip: Counter[str] | None = None,
    ) -> None:
        """`most` at once, together with the `others` of the gateway, and `per_ip` from one address; 0 is no
        bound of its own. `by_ip` counts those of other doors, too.
        """
        self._most, self._per_ip, self._others = most, per_ip, others
        self._open: dict[Watched, str] = {}
        self._silent: dict[Watched, None] = {}
        self._left: list[Watched] = []
        self._by_ip = Counter[str]() if by_ip is None else by_ip
        self._waiting: deque[Watched] = deque()
        self._roomy: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None

    def add(self, connection: Watched, host: str) -> bool:
        """Whether there may be one more from `host`; then it is watched until `remove`.

        Where there are too many, the one gives way to it that has been there for longest without a login.
        """
        address = network_of(host) if host else ""
        if self._silent and len(self._open) + self._others() >= self._most:
            silent = next(iter(self._silent))
            self.remove(silent)
            silent.drop()
        is_full = len(self._open) + self._others() >= self._most
        if is_full or 0 < self._per_ip <= self._by_ip[address]:
            _log.warning("a connection of a Kafka client from %s is one too many, and closed", address)
            return False
        self._open[connection] = address
        if not connection.is_authenticated:
            self._silent[connection] = None
        self._by_ip[address] += 1
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return True

    def __len__(self) -> int:
        return len(self._open)

    def each(self) -> list[Watched]:
        """Each open connection."""
        return [*self._open]

    def authenticated(self, connection: Watched) -> None:
        """Its client has logged in: it keeps its place."""
        self._silent.pop(connection, None)

    def remove(self, connection: Watched) -> None:
        """It is closed; twice is once."""
        self._silent.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is None:
            return
        self._by_ip[address] -= 1
        if self._by_ip[address] <= 0:
            del self._by_ip[address]

    def leave(self, connection: Watched) -> None:
        """Its client has closed it, and what it sent with acks=0 may still be worked at."""
        self._left = [each for each in (*self._left, connection) if each.busy]

    @property
    def busy(self) -> bool:
        """Whether requests that came are worked at or not answered yet, of clients that have left, too."""
        return any(each.busy for each in (*self._open, *self._left))

    def wait_for_room(self, connection: Watched) -> None:
        """Have `connection` read on when there may be room, after those that have waited for longer."""
        self._waiting.append(connection)
        if self._roomy is None:
            self._roomy = asyncio.get_running_loop().call_later(ROOM_PAUSE_S, self._try_again)

    def _try_again(self) -> None:
        self._roomy = None
        for _ in range(len(self._waiting)):
            waiting = self._waiting.popleft()
            if waiting in self._open:
                waiting.try_again()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_S, self._look) if self._open else None
        for connection in [*self._open]:
            try:
                connection.look(loop.time())
            except Exception:  # noqa: BLE001 -- the others go on
                _log.exception("a connection could not be looked at, and is closed")
                connection.drop()
