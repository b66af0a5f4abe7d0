"""How often partitions are looked at that other processes write: each look is a request to the store."""

from dataclasses import dataclass

from log_tables.clock import Clock

_SPARE = 1.25
"""How much longer than needed for `per_s` pauses become: so each partition has its turn."""


@dataclass(frozen=True, slots=True)
class LookLimits:
    """The pause after the first look that found nothing is `first_s`; each later one is twice as long and
    this longer, up to `longest_s`. Of those that are looked at seldom `per_s` are looked at together.
    """

    first_s: float
    longest_s: float
    per_s: float


class Looks:
    """The pauses between looks at many partitions, in rounds, which one thread begins. Where several ask at
    once, a round may take a few looks more.
    """

    def __init__(self, limits: LookLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._left, self._begun_s, self._longest_s = 0.0, clock.monotonic(), limits.longest_s

    def begin(self, followed: int) -> None:
        """Begin a round, with so many partitions that are looked at."""
        now, limits = self._clock.monotonic(), self._limits
        self._longest_s = max(limits.longest_s, _SPARE * followed / limits.per_s)
        # Else all that were opened at once would be looked at at once, for ever.
        self._left = min(self._left, 1.0) + limits.per_s * (now - self._begun_s)
        self._begun_s = now

    def has_turn(self, pause_s: float) -> bool:
        """Whether a look that is due after a pause is one of those that this round may take."""
        if pause_s < self._limits.longest_s / 2:
            return True
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def pause_s(self, before_s: float, *, moved: bool, rests: bool = True) -> float:
        """The pause after a look, with that before it: none where something has come. Where all around it
        `rests`, the number of partitions makes it longer.
        """
        longest_s = self._longest_s if rests else self._limits.longest_s
        return 0.0 if moved else min(longest_s, 2 * before_s + self._limits.first_s)
