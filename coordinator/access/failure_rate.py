"""How often something may fail: a token bucket for each name that fails."""

import threading

from log_tables.clock import Clock

NAMES_MAX = 10_000
"""Buckets that are kept; the one that has not been touched for longest goes first, and is mostly full
again."""


class FailureRate:
    """`burst` failures of a name at once, and one more each `period_s`. For many threads."""

    def __init__(self, burst: int, period_s: float, clock: Clock, names_max: int = NAMES_MAX) -> None:
        self._burst, self._period_s, self._clock, self._names_max = burst, period_s, clock, names_max
        self._buckets: dict[str, tuple[float, float]] = {}  # by name: tokens, and when they were counted
        self._lock = threading.Lock()

    def take(self, name: str) -> bool:
        """Use a token of `name` before an attempt that may fail; False when there is none."""
        with self._lock:
            tokens = self._filled(name)
            if tokens < 1:
                return False
            self._keep(name, tokens - 1)
            return True

    def give_back(self, name: str) -> None:
        """The attempt did not fail."""
        with self._lock:
            self._keep(name, min(self._burst, self._filled(name) + 1))

    def _filled(self, name: str) -> float:
        now = self._clock.monotonic()
        tokens, counted = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - counted) / self._period_s)

    def _keep(self, name: str, tokens: float) -> None:
        self._buckets.pop(name, None)
        if tokens >= self._burst:
            return  # as a name that never failed
        self._buckets[name] = (tokens, self._clock.monotonic())
        if len(self._buckets) > self._names_max:
            del self._buckets[next(iter(self._buckets))]
