"""The ids that a gateway gives to the idempotent producers of Kafka's clients.

Most clients take one whenever they start, and each is kept in the tables that it writes to. So their number
within the time that they are kept is bounded.
"""

from collections import deque

from log_tables.clock import Clock
from log_tables.limits import BRIEF_PRODUCER_MAX_MS
from log_tables.partition.sequencer import brief_producer_id


class ProducerIds:
    """The ids that one gateway has given out lately. Used on the event loop."""

    def __init__(self, clock: Clock, most: int) -> None:
        """`most` within BRIEF_PRODUCER_MAX_MS."""
        self._clock, self._most = clock, most
        self._given: deque[float] = deque()

    def take(self) -> int | None:
        """A new random id, so that no gateways have to agree; None if there were too many."""
        now = self._clock.monotonic()
        while self._given and self._given[0] <= now - BRIEF_PRODUCER_MAX_MS / 1_000:
            self._given.popleft()
        if len(self._given) >= self._most:
            return None
        self._given.append(now)
        return brief_producer_id(self._clock)
