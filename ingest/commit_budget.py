"""The budget of a gateway's commits: a part of the processor; on an object store, requests, which are paid.

A commit of one record costs about as much as one of hundreds. So when the budget is used up, the batches of
all partitions gather longer and become larger: instead of more commits there are more records in each, and
the event loop has time to read requests.

`Budget` and `CommitBucket` are plain states: times are those of Clock.monotonic, in seconds, and handed in;
costs are in the unit of the limits. `CommitBudget` waits on the event loop.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import floor

from ingest.buffer import RETRY_AFTER_S
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.errors import BufferFull
from log_tables.limits import KIB

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


RECORDS_COST_BYTES = 128 * KIB
"""Records of so many bytes take about as much of the processor as the commit around them."""

REQUESTS_PER_COMMIT = 2
"""Puts: a segment, and the commit that names it."""

_BURST_S = 0.1
_FIRST_COST_S = 0.001
_BURST_REQUESTS_S = 2.0

CostOf = Callable[[float, int], float]
"""The cost of a commit, by its processor time in seconds and the bytes of its records."""


def processor_cost(processor_s: float, size_bytes: int) -> float:
    """The processor time of a commit without that of its records: only this becomes less by gathering."""
    return processor_s / (1 + size_bytes / RECORDS_COST_BYTES)


def request_cost(_processor_s: float, size_bytes: int) -> float:
    """The paid requests of a commit. One without records is none."""
    return REQUESTS_PER_COMMIT if size_bytes else 0


def commit_budget(settings: Settings, paid_requests: bool, clock: Clock) -> "CommitBudget | None":
    """The budget that the settings name, for a store whose requests are paid or not; None is no bound."""
    cores, requests = settings.commits_cores_max, settings.commits_requests_per_second_max
    if paid_requests and requests:
        # A bill is no reason to refuse records: there is no `most`.
        burst = requests * _BURST_REQUESTS_S
        limits = BudgetLimits(requests, burst, REQUESTS_PER_COMMIT, paid=True)
        return CommitBudget(limits, request_cost, clock)
    if not paid_requests and cores:
        return CommitBudget(BudgetLimits(cores, _BURST_S, _FIRST_COST_S, 2 * cores), processor_cost, clock)
    return None


class CommitBudget:
    """A Budget on the event loop, which lets each batch know when it may be committed."""

    def __init__(self, limits: BudgetLimits, cost_of: CostOf, clock: Clock) -> None:
        self._budget, self._cost_of, self._clock = Budget(limits, clock.monotonic()), cost_of, clock
        self._waiting: dict[int, tuple[asyncio.Future[float], float]] = {}
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self.on_waited: Callable[[float], None] = lambda _seconds: None

    @property
    def limit(self) -> float:
        """How much commits may cost each second."""
        return self._budget.limits.rate

    @property
    def used(self) -> float:
        """How much all commits so far have cost."""
        return self._budget.used

    def ask(self, since: float) -> "asyncio.Future[float]":
        """Done when a batch whose first record came at `since` may be committed, with what is reserved for
        it: `spend` gives that back. A batch that can wait no longer sets the result, to 0.
        """
        number, now = next(self._numbers), self._clock.monotonic()
        turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[number] = turn, now
        turn.add_done_callback(lambda _: self._over(since, number))
        self._budget.ask(since, number)
        self._give()
        return turn

    def spend(self, reserved: float, processor_s: float, size_bytes: int) -> None:
        """A commit of records of `size_bytes` is over; one outside of the budget is free, with 0 and 0."""
        self._budget.spend(reserved, self._cost_of(processor_s, size_bytes), self._clock.monotonic())
        self._give()

    @property
    def waiting(self) -> int:
        """How many batches wait."""
        return sum(not turn.done() for turn, _ in self._waiting.values())

    @property
    def overdrawn(self) -> bool:
        """Whether commits cost too much, however long batches gather."""
        return self._budget.overdrawn(self._clock.monotonic())

    def overdrawn_error(self) -> BufferFull:
        """The answer to a request that would need another commit."""
        return BufferFull(
            f"commits take more than {self._budget.limits.most:g} cores, twice commits_cores_max, although "
            f"batches gather for {GATHER_MAX_S * 1000:g} ms: too many partitions get records at once; repeat "
            "the request later",
            retry_after_s=RETRY_AFTER_S,
        )

    def _over(self, since: float, number: int) -> None:
        _, asked = self._waiting.pop(number)
        self._budget.withdraw(since, number)
        self.on_waited(self._clock.monotonic() - asked)

    def _give(self) -> None:
        now = self._clock.monotonic()
        for number, reserved in self._budget.give(now):
            turn, _ = self._waiting[number]
            if turn.done():  # a moment ago
                self._budget.spend(reserved, 0, now)
            else:
                turn.set_result(reserved)
        if self._timer is not None:
            self._timer.cancel()
        delay_s = self._budget.next_s(now)
        self._timer = None if delay_s is None else self._later(delay_s)

    def _later(self, delay_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, self._give)
