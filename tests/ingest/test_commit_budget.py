"""ingest/commit_budget.py: batches that wait on the event loop for what commits may cost together."""

import asyncio

import pytest

from ingest.commit_budget import (
    GATHER_MAX_S,
    RECORDS_COST_BYTES,
    BudgetLimits,
    CommitBudget,
    commit_budget,
    processor_cost,
    request_cost,
)
from ingest.settings import Settings
from log_tables.clock import ManualClock, SystemClock
from log_tables.limits import MIB
from log_tables.store.store import requests_are_paid
from tests.kit.budgets import overdrawn_budget

LIMITS = BudgetLimits(rate=0.4, burst=0.1, cost=0.001, most=0.8)


def test_a_lone_record_of_an_idle_gateway_does_not_wait(clock: ManualClock) -> None:
    async def scenario() -> None:
        budget = CommitBudget(LIMITS, processor_cost, clock)
        for _ in range(3):
            for _ in range(20):
                turn = budget.ask(clock.monotonic())
                assert turn.done(), "not even until the event loop has gone around"
                budget.spend(turn.result(), 0.004, 100)
            clock.advance(3_600_000)

    asyncio.run(scenario())


def test_the_oldest_goes_first(clock: ManualClock) -> None:
    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        turns = [budget.ask(since) for since in (0.3, 0.1, 0.2)]
        went = []
        for _ in range(6):
            clock.advance(100)
            budget.spend(0.0, 0.0, 0)  # any commit that ends lets it look
            went.append(sum(turn.done() << place for place, turn in enumerate(turns)))
        assert went == [0, 0, 0, 0b010, 0b110, 0b111]

    asyncio.run(scenario())


def test_nobody_waits_for_long_behind_any_debt() -> None:
    clock, waited = SystemClock(), list[float]()

    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        budget.on_waited = waited.append
        reserved = await budget.ask(clock.monotonic())  # nobody else wakes it
        assert reserved > 0

    asyncio.run(scenario())
    assert waited[-1] >= GATHER_MAX_S * 0.99


def test_whoever_can_wait_no_longer_does_not_and_holds_up_nobody(clock: ManualClock) -> None:
    async def scenario() -> None:
        budget, waited = overdrawn_budget(clock), list[float]()
        budget.on_waited = waited.append
        hurried, cancelled, patient = (budget.ask(0.0) for _ in range(3))
        hurried.set_result(0.0)
        cancelled.cancel()
        clock.advance(260)
        budget.spend(0.0, 0.0, 0)  # before their leaving is noticed
        assert patient.done()
        assert patient.result() > 0
        await asyncio.wait([patient])
        assert waited[-3:] == [0.26] * 3

    asyncio.run(scenario())


def test_what_was_reserved_comes_back(clock: ManualClock) -> None:
    """Else so many batches that left would use up the budget for good."""

    async def scenario() -> None:
        budget = CommitBudget(LIMITS, processor_cost, clock)
        for _ in range(10_000):
            turn = budget.ask(0.0)
            assert turn.done()
            budget.spend(turn.result(), 0.0, 0)
        assert budget.used == 0

    asyncio.run(scenario())


def test_records_are_no_part_of_what_a_commit_costs() -> None:
    """Gathering would not make them cheaper: a load of large batches uses up nothing."""
    assert processor_cost(0.001, 100) == pytest.approx(0.001, rel=0.01)
    assert processor_cost(0.002, RECORDS_COST_BYTES) == 0.001
    assert processor_cost(0.010, 6 * MIB) < 0.001


def test_on_an_object_store_a_commit_is_two_requests_and_a_repeat_is_none() -> None:
    assert request_cost(0.5, 1) == request_cost(0.001, 64 * MIB) == 2
    assert request_cost(0.5, 0) == 0


@pytest.mark.parametrize(
    ("url", "paid"),
    [
        ("file:///data", False),
        ("memory://", False),
        ("s3://bucket/log", True),
        ("gs://bucket", True),
        ("az://bucket", True),
    ],
)
def test_the_requests_of_a_cloud_are_paid(url: str, paid: bool) -> None:
    assert requests_are_paid(url) is paid


def test_the_settings_name_the_budget(clock: ManualClock) -> None:
    settings = Settings(commits_cores_max=0.25, commits_requests_per_second_max=30)
    local, cloud = (commit_budget(settings, paid, clock) for paid in (False, True))
    assert local is not None
    assert cloud is not None
    assert (local.limit, cloud.limit) == (0.25, 30)
    none = Settings(commits_cores_max=0, commits_requests_per_second_max=0)
    assert [commit_budget(none, paid, clock) for paid in (False, True)] == [None, None]


def test_too_many_commits_are_told_and_a_bill_refuses_nothing(clock: ManualClock) -> None:
    async def scenario() -> None:
        for paid in (False, True):
            budget = commit_budget(Settings(), paid, clock)
            assert budget is not None
            assert not budget.overdrawn
            for _ in range(1_000):
                budget.spend(0.0, 0.1, 100)
            assert budget.overdrawn is not paid
            clock.advance(3_600_000)
            assert not budget.overdrawn

    asyncio.run(scenario())
