"""How many requests of one principal are under way: those too many are refused, or wait for their turn."""

import asyncio

import pytest

from coordinator.access.pending_requests import PendingRequests
from coordinator.access.principal import Principal
from log_tables.errors import QuotaReached

ANN, BOB = Principal("User:ann"), Principal("User:bob")


def test_one_too_many_is_refused_until_one_leaves() -> None:
    pending = PendingRequests(1)
    entered = pending.enter(ANN)
    with pytest.raises(QuotaReached):
        pending.enter(ANN)
    assert pending.enter(BOB)
    pending.leave(entered)
    assert pending.enter(ANN)


def test_without_a_bound_all_enter() -> None:
    pending = PendingRequests(0)
    assert {pending.enter(ANN) for _ in range(100)} == {""}


def test_those_that_wait_have_their_turn_in_their_order_and_before_new_ones() -> None:
    async def scenario() -> None:
        pending = PendingRequests(1)
        first = await pending.wait(ANN)
        waiting = [asyncio.create_task(pending.wait(ANN)) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0)  # each has run until it waits
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        pending.leave(first)
        with pytest.raises(QuotaReached):
            pending.enter(ANN)
        second = await waiting[1]
        assert not waiting[2].done()
        pending.leave(second)
        pending.leave(await waiting[2])
        assert pending.enter(ANN)

    asyncio.run(scenario())


def test_a_turn_that_comes_to_one_that_is_gone_goes_on_to_the_next() -> None:
    async def scenario() -> None:
        pending = PendingRequests(1)
        first = await pending.wait(ANN)
        gone, next_ = (asyncio.create_task(pending.wait(ANN)) for _ in range(2))
        await asyncio.wait([gone, next_], timeout=0)
        pending.leave(first)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        pending.leave(await next_)
        assert pending.enter(ANN)

    asyncio.run(scenario())
