"""The budget of a gateway's commits: a part of the processor; on an object store, requests, which are paid.

A commit of one record costs about as much as one of hundreds. So when the budget is used up, the batches of
all partitions gather longer and become larger: instead of more commits there are more records in each, and
the event loop has time to read requests.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from ingest.budget import GATHER_MAX_S, Budget, BudgetLimits
from ingest.buffer import RETRY_AFTER_S
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.errors import BufferFull
from log_tables.limits import KIB

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
