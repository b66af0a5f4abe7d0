"""How many requests of one principal are under way: those too many are refused, or wait for their turn."""

import asyncio

import pytest

from coordinator.access.pending_requests import PendingRequests, requests_of
from coordinator.access.principal import Principal
from log_tables.errors import QuotaReached

ANN, BOB = Principal("User:ann"), Principal("User:bob")


def test_one_too_many_is_refused_until_one_leaves() -> None:
    pending = PendingRequests(1)
    entered = pending.enter(ANN)
    with pytest.raises(QuotaReached):
        pending.enter(ANN)
    assert pending.enter(BOB).count == 1
    pending.leave(entered)
    assert pending.enter(ANN).count == 1


def test_without_a_bound_all_enter() -> None:
    pending = PendingRequests(0)
    assert {pending.enter(ANN).count for _ in range(100)} == {0}


def test_a_request_takes_a_place_for_each_name_and_at_most_all_of_them() -> None:
    pending = PendingRequests(10)
    six = pending.enter(ANN, 6)
    with pytest.raises(QuotaReached):
        pending.enter(ANN, 5)
    four = pending.enter(ANN, 4)
    pending.leave(six)
    pending.leave(four)
    head = pending.enter(ANN)
    assert pending.enter(ANN, 5_000, besides=1).count == 9
    with pytest.raises(QuotaReached):
        pending.enter(ANN)
    pending.leave(head)
    assert pending.enter(ANN).count == 1


def test_a_large_one_that_waits_is_not_overtaken() -> None:
    async def scenario() -> None:
        pending = PendingRequests(10)
        first = await pending.wait(ANN, 5)
        large, small = (asyncio.create_task(pending.wait(ANN, count)) for count in (5_000, 1))
        await asyncio.wait([large, small], timeout=0)
        assert not small.done()
        pending.leave(first)
        places = await large
        assert places.count == 10
        await asyncio.wait([small], timeout=0)
        assert not small.done()
        pending.leave(places)
        assert (await small).count == 1

    asyncio.run(scenario())


def test_those_behind_a_large_one_that_is_gone_have_their_turn() -> None:
    async def scenario() -> None:
        pending = PendingRequests(10)
        await pending.wait(ANN, 5)
        large, small = (asyncio.create_task(pending.wait(ANN, count)) for count in (10, 1))
        await asyncio.wait([large, small], timeout=0)
        large.cancel()
        assert (await small).count == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("names", "elements", "count"), [(0, 0, 1), (1, 99, 1), (1, 250, 2), (7, 250, 7), (0, 10_000, 100)]
)
def test_names_count_as_one_and_elements_as_a_hundredth(names: int, elements: int, count: int) -> None:
    assert requests_of(names, elements) == count


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
        assert pending.enter(ANN).count == 1

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
        assert pending.enter(ANN).count == 1

    asyncio.run(scenario())
