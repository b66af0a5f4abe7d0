"""A token bucket: it bounds how often a partition commits, as each commit is a file to compact."""

from math import floor

from log_tables.clock import Clock

_CLOSE = 0.001
"""The part of a period by which a token may come early: whoever has slept until then is not sent back."""


class CommitBucket:
    """`rate` commits a second on average and `burst` at once; a rate of 0 is no bound.

    The tokens of all buckets of a rate come at the same moments. So partitions that are busy commit in
    rounds, and a request to many of them waits for one round, not for the latest of as many.
    """

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._moment = burst, self._last_moment()

    def delay_s(self) -> float:
        """Seconds until there is a token; 0 when there is one."""
        if self._rate == 0:
            return 0.0
        self._fill()
        if self._tokens >= 1:
            return 0.0
        return max(0.0, (self._moment + 1 - self._tokens) / self._rate - self._clock.monotonic())

    def take(self) -> None:
        """Use a token."""
        if self._rate > 0:
            self._fill()
            self._tokens -= 1

    def _fill(self) -> None:
        moment = self._last_moment()
        self._tokens = min(self._burst, self._tokens + moment - self._moment)
        self._moment = moment

    def _last_moment(self) -> int:
        """The number of the last moment at which tokens came, of one a period since the clock's zero."""
        return floor(self._clock.monotonic() * self._rate + _CLOSE)
