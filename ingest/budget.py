"""The budget of all commits of a gateway, and which of them may begin now: a plain state.

Times are those of Clock.monotonic, in seconds, and handed in. Costs are in the unit of the limits.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

GATHER_MAX_S = 0.25
"""No batch gathers longer than that for the budget."""

_WEIGHT = 0.05
"""Of the newest commit in what a commit costs on average."""


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """`rate` each second on average, and `burst` more after idle time. A commit costs about `cost`.

    Commits that cost more than `most` each second, although they gather, are too many; None is no bound.
    `paid`: a batch that is alone waits, too, as gathering saves money.
    """

    rate: float
    burst: float
    cost: float
    most: float | None = None
    paid: bool = False


class Budget:
    """Batches ask, and are given, the oldest first. The cost of a commit is reserved until it is known.

    One that is alone, without other commits under way, is given at once, unless commits are paid: nobody
    gains if it waits.
    """

    def __init__(self, limits: BudgetLimits, now: float) -> None:
        self.limits, self.used = limits, 0.0
        self._saved, self._filled = limits.burst, now
        self._reserved = self._beyond = 0.0
        self._under_way = 0
        self._cost = limits.cost
        self._waiting: list[tuple[float, int]] = []

    def ask(self, since: float, number: int) -> None:
        """Let batch `number`, whose first record came at `since`, wait."""
        insort(self._waiting, (since, number))

    def withdraw(self, since: float, number: int) -> None:
        """Let it wait no longer, if it does."""
        place = bisect_left(self._waiting, (since, number))
        if self._waiting[place : place + 1] == [(since, number)]:
            del self._waiting[place]

    def give(self, now: float) -> list[tuple[int, float]]:
        """The batches that may be committed now, oldest first, each with what is reserved for its commit."""
        self._fill(now)
        given: list[tuple[int, float]] = []
        while self._waiting and self._is_due(now):
            given.append((self._waiting.pop(0)[1], self._cost))
            self._reserved += self._cost
            self._under_way += 1
        return given

    def _is_due(self, now: float) -> bool:
        """Whether the oldest batch that waits may be committed."""
        alone = len(self._waiting) == 1 and not self._under_way and not self.limits.paid
        return alone or self._left >= 0 or now - self._waiting[0][0] >= GATHER_MAX_S

    def spend(self, reserved: float, cost: float, now: float) -> None:
        """A commit is over, and has cost `cost`. `reserved` is given back: 0 if it was not given."""
        self._fill(now)
        self._reserved -= reserved
        self._under_way -= reserved > 0
        # Deeper debt would not make anybody gather longer, and would outlast what caused it.
        self._saved = max(self._saved - cost, -self.limits.rate * GATHER_MAX_S)
        self._beyond += cost
        self.used += cost
        if cost:
            self._cost += (cost - self._cost) * _WEIGHT

    def next_s(self, now: float) -> float | None:
        """Seconds until `give` is to be asked again, unless a commit ends before; None if nobody waits."""
        if not self._waiting:
            return None
        self._fill(now)
        due_s = self._waiting[0][0] + GATHER_MAX_S - now
        return max(0.0, min(due_s, -self._left / self.limits.rate))

    def overdrawn(self, now: float) -> bool:
        """Whether commits cost more than `most`, however long batches gather: no more records, please."""
        self._fill(now)
        return self.limits.most is not None and self._beyond > self.limits.most * GATHER_MAX_S

    @property
    def _left(self) -> float:
        return self._saved - self._reserved

    def _fill(self, now: float) -> None:
        elapsed, self._filled = now - self._filled, now
        self._saved = min(self.limits.burst, self._saved + elapsed * self.limits.rate)
        most = self.limits.most
        self._beyond = 0.0 if most is None else max(0.0, self._beyond - elapsed * most)
