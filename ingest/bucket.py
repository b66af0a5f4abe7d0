"""A token bucket: it bounds how often a partition commits, as each commit is a file to compact."""

from log_tables.clock import Clock


class CommitBucket:
    """`rate` commits a second on average and `burst` at once; a rate of 0 is no bound."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._tokens, self._filled = float(burst), clock.monotonic()

    def delay_s(self) -> float:
        """Seconds until there is a token; 0 when there is one."""
        if self._rate == 0:
            return 0.0
        self._fill()
        return max(0.0, (1.0 - self._tokens) / self._rate)

    def take(self) -> None:
        """Use a token."""
        if self._rate > 0:
            self._fill()
            self._tokens -= 1.0

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
