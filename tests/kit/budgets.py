"""Budgets of commits for tests."""

from ingest.commit_budget import BudgetLimits, CommitBudget, processor_cost
from log_tables.clock import Clock


def overdraw(budget: CommitBudget) -> None:
    """Leave nothing in `budget`, while a commit of another partition is under way for good."""
    budget.ask(0.0)
    budget.spend(0.0, 1_000.0, 1)


def overdrawn_budget(clock: Clock) -> CommitBudget:
    """A spent budget to which hardly anything is added: a batch waits as long as any batch ever does.

    On a ManualClock that stands still, it waits for ever.
    """
    limits = BudgetLimits(rate=1e-9, burst=1e-9, cost=0.001, most=2e-9)
    budget = CommitBudget(limits, processor_cost, clock)
    overdraw(budget)
    return budget
