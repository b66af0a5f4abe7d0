"""Batches go the oldest first, none gathers for long, and commits keep to their rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ingest.commit_budget import GATHER_MAX_S, Budget, BudgetLimits

LIMITS = BudgetLimits(rate=0.4, burst=0.1, cost=0.001, most=0.8)
TINY = 1e-9
"""Rounding."""


@dataclass(frozen=True)
class Given:
    """A turn that was given: when, to whom, whose first record came when, and what the commit costs."""

    at: float
    number: int
    since: float
    cost: float
    alone: bool

    @property
    def in_time(self) -> bool:
        """Whether the budget itself allowed this turn, and not because the batch was old or alone."""
        return not self.alone and self.at - self.since < GATHER_MAX_S - TINY


@dataclass(frozen=True)
class Batch:
    """A batch that asks `after_s` seconds after the one before, with a first record that is `old_s` seconds
    old then.
    """

    after_s: float
    old_s: float
    cost: float
    takes_s: float


class Simulation:
    """A gateway with a disk for each batch: everybody who may commit does at once."""

    def __init__(self, limits: BudgetLimits) -> None:
        self.budget, self.now = Budget(limits, 0.0), 0.0
        self.given: list[Given] = []
        self._asked: dict[int, tuple[float, Batch]] = {}
        self._ends: list[tuple[float, float, float]] = []

    def run(self, batches: Sequence[Batch]) -> None:
        for number, batch in enumerate(batches):
            self.until(self.now + batch.after_s)
            since = self.now - batch.old_s
            self._asked[number] = (since, batch)
            self.budget.ask(since, number)
            self._give()
        while self._asked or self._ends:
            self.until(self.now + 0.01)

    def until(self, end: float) -> None:
        """Let time pass: commits end, and the budget is asked again when it says so."""
        while True:
            wait_s = self.budget.next_s(self.now)
            due = math.inf if wait_s is None else self.now + max(wait_s, TINY)
            first = min([due, *(at for at, _, _ in self._ends)])
            if first > end:
                break
            self.now = first
            for over in [each for each in self._ends if each[0] <= first]:
                self._ends.remove(over)
                self.budget.spend(over[1], over[2], first)
            self._give()
        self.now = end

    def _give(self) -> None:
        alone = len(self._asked) == 1 and not self._ends
        for number, reserved in self.budget.give(self.now):
            since, batch = self._asked.pop(number)
            older = [other for other, _ in self._asked.values() if other < since]
            assert older == [], "an older one waits"
            self.given.append(Given(self.now, number, since, batch.cost, alone))
            self._ends.append((self.now + batch.takes_s, reserved, batch.cost))


def batches(costs: st.SearchStrategy[float]) -> st.SearchStrategy[list[Batch]]:
    delays = st.sampled_from([0.0, 0.0, 0.0001, 0.001, 0.01, 1.0])
    ages = st.sampled_from([0.0, 0.005, 0.1, 0.3])
    durations = st.sampled_from([0.0, 0.002, 0.05, 0.5])
    return st.lists(st.builds(Batch, delays, ages, costs, durations), max_size=400)


@given(batches(st.sampled_from([0.0, 0.0005, 0.001, 0.02, 0.3])))
def test_everybody_has_a_turn_in_time_and_the_oldest_first(asking: list[Batch]) -> None:
    simulation = Simulation(LIMITS)
    simulation.run(asking)  # which looks for older ones at every turn
    assert sorted(each.number for each in simulation.given) == list(range(len(asking)))
    asked_at, now = {}, 0.0
    for number, batch in enumerate(asking):
        asked_at[number] = now = now + batch.after_s
    for each in simulation.given:
        # Not longer than until the first record is so old; at once when it is when the batch asks.
        assert each.at <= max(asked_at[each.number], each.since + GATHER_MAX_S) + 1e-6


@given(batches(st.just(LIMITS.cost)))
def test_in_any_window_commits_keep_to_the_rate_unless_batches_are_old(asking: list[Batch]) -> None:
    simulation = Simulation(LIMITS)
    simulation.run(asking)
    turns = [each for each in simulation.given if each.in_time]
    for first in range(0, len(turns), 7):
        spent = 0.0
        for turn in turns[first:]:
            spent += turn.cost
            window = turn.at - turns[first].at
            assert spent <= LIMITS.burst + LIMITS.rate * window + LIMITS.cost + 1e-6


@given(batches(st.sampled_from([0.0005, 0.001, 0.005])))
def test_costs_that_vary_keep_to_the_rate_but_for_commits_under_way(asking: list[Batch]) -> None:
    """The cost of a commit under way is not yet known: the budget reserves for it by the cost of others."""
    simulation = Simulation(LIMITS)
    simulation.run([Batch(b.after_s, b.old_s, b.cost, takes_s=0.0) for b in asking])
    turns = [each for each in simulation.given if each.in_time]
    for first in range(0, len(turns), 7):
        together: dict[float, float] = {}  # turns of one moment: none of their costs was known
        for turn in turns[first:]:
            together[turn.at] = together.get(turn.at, 0.0) + turn.cost
        unknown = max(together.values())
        spent = sum(together.values())
        window = turns[-1].at - turns[first].at
        assert spent <= LIMITS.burst + LIMITS.rate * window + unknown + 1e-6


def crowd(partitions: int, seconds: int, cost: float) -> list[Batch]:
    """Batches of so many partitions, which each ask again as soon as they may be old."""
    rounds = round(seconds / GATHER_MAX_S)
    return [
        Batch(GATHER_MAX_S if partition == 0 and number else 0.0, GATHER_MAX_S, cost, 0.001)
        for number in range(rounds)
        for partition in range(partitions)
    ]


def test_debt_is_forgotten_soon_after_what_caused_it() -> None:
    simulation = Simulation(LIMITS)
    simulation.run(crowd(partitions=400, seconds=3, cost=0.001))
    simulation.run([Batch(2 * GATHER_MAX_S, 0.0, 0.001, 0.001), Batch(0.0, 0.0, 0.001, 0.001)])
    last = simulation.given[-1]
    assert not last.alone
    assert last.at == last.since, "it waits for a load that is gone"


def test_more_than_the_most_is_told_and_less_is_not() -> None:
    for partitions, too_many in ((100, False), (190, False), (230, True)):
        simulation = Simulation(LIMITS)
        simulation.run(crowd(partitions, seconds=5, cost=0.001))
        assert simulation.budget.overdrawn(simulation.now) is too_many, partitions


def test_it_is_no_longer_told_when_the_commits_are_over() -> None:
    simulation = Simulation(LIMITS)
    simulation.run(crowd(partitions=400, seconds=2, cost=0.001))
    assert simulation.budget.overdrawn(simulation.now)
    simulation.until(simulation.now + 5)
    assert not simulation.budget.overdrawn(simulation.now)


def test_without_a_most_nothing_is_too_much() -> None:
    simulation = Simulation(BudgetLimits(rate=50, burst=100, cost=2))
    simulation.run(crowd(partitions=300, seconds=2, cost=2))
    assert not simulation.budget.overdrawn(simulation.now)


def test_batches_of_one_moment_do_not_see_the_same_rest() -> None:
    budget = Budget(LIMITS, 0.0)
    for number in range(1_000):
        budget.ask(0.0, number)
    assert len(budget.give(0.0)) in (100, 101)
    assert budget.give(0.0) == []


def test_a_batch_that_is_alone_waits_for_nothing() -> None:
    """A client that waits for each answer would gain nothing by gathering."""
    budget = Budget(LIMITS, 0.0)
    budget.spend(0.0, 1_000.0, 0.0)
    budget.ask(0.0, 1)
    [(_, reserved)] = budget.give(0.0)
    budget.ask(0.0, 2)
    assert budget.give(0.0) == [], "another commit is under way"
    budget.spend(reserved, 0.001, 0.0)
    assert [number for number, _ in budget.give(0.0)] == [2]


def test_where_commits_are_paid_a_batch_that_is_alone_waits_for_the_rate() -> None:
    budget = Budget(BudgetLimits(rate=50, burst=100, cost=2, paid=True), 0.0)
    given = list[float]()
    for moment in (step / 1_000 for step in range(10_000)):
        if budget.next_s(moment) is None:  # nobody waits
            budget.ask(moment, 0)
        for _, reserved in budget.give(moment):
            budget.spend(reserved, 2, moment)
            given.append(moment)
    assert given[0] == 0.0, "what was saved is free"
    assert len(given) * 2 <= 100 + 50 * 10 + 2


def test_two_that_are_busy_share_the_rate() -> None:
    simulation = Simulation(LIMITS)
    simulation.run([Batch(0.0005, 0.0, cost=0.001, takes_s=0.002) for _ in range(2_000)])
    last = simulation.given[-1]
    assert last.at >= (2_000 * 0.001 - LIMITS.burst) / LIMITS.rate * 0.2


def test_who_withdraws_waits_no_more_and_holds_up_nobody() -> None:
    budget = Budget(LIMITS, 0.0)
    budget.spend(0.0, 10.0, 0.0)
    for number, since in enumerate((0.03, 0.01, 0.02)):
        budget.ask(since, number)
    budget.withdraw(0.01, 1)
    budget.withdraw(0.01, 1)
    assert budget.give(0.04) == []
    assert [number for number, _ in budget.give(0.5)] == [2, 0]
    assert budget.next_s(0.5) is None
