"""The time of an event loop that wide requests have."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from threading import Event

from ingest.loop_share import LoopShare
from log_tables.clock import ManualClock
from log_tables.limits import TURN_S
from tests.kit.clocked_loop import ClockedLoop

ITEMS = 10
ITEM_MS = 5


async def others_go_on() -> None:
    """Wait until all that is due now is done."""
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    loop.call_soon(gone.set_result, None)
    await gone


def test_others_have_their_turn_between_the_items_of_a_wide_request() -> None:
    clock = ManualClock()
    share, seen = LoopShare(), list[int]()
    working = True

    async def others() -> None:
        while working:
            seen.append(clock.now_ms())
            clock.advance(1)
            await others_go_on()

    async def wide() -> list[int]:
        nonlocal working
        found = []
        async for item in share.each(range(ITEMS)):
            clock.advance(ITEM_MS)
            found.append(item)
        working = False
        return found

    async def both() -> list[int]:
        other = asyncio.create_task(others())
        found = await wide()
        await other
        return found

    loop = ClockedLoop(clock)
    try:
        assert loop.run_until_complete(both()) == [*range(ITEMS)]
    finally:
        loop.close()
    gaps = [later - earlier for earlier, later in pairwise(seen)]
    assert len(seen) > ITEMS
    assert max(gaps) <= ITEM_MS + 1  # never two items


def took_s(work: Callable[[ManualClock], Awaitable[None]], times: int) -> float:
    """The seconds until as many of `work` are done, that begin together."""
    clock = ManualClock()
    began, loop = clock.monotonic(), ClockedLoop(clock)

    async def all_of_them() -> None:
        under_way = asyncio.gather(*(work(clock) for _ in range(times)))
        while not under_way.done():
            clock.advance(1)
            await others_go_on()

    try:
        loop.run_until_complete(asyncio.wait_for(all_of_them(), 60))
    finally:
        loop.close()
    return clock.monotonic() - began


def test_who_waits_stands_in_no_line() -> None:
    """Each request awaits two commits of its own: two hundred of them take as long as one."""
    share, commit_s = LoopShare(), 50 * TURN_S

    async def produce(_: ManualClock) -> None:
        async for topic in share.each(range(2)):
            async for _partition in share.each([topic]):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=commit_s)

    assert took_s(produce, 200) < 3 * commit_s


def test_wide_requests_have_half_of_the_loop_together() -> None:
    """Between two items of any of them others have a turn, also where ten take theirs at the same time."""
    share = LoopShare()

    async def wide(clock: ManualClock) -> None:
        async for _ in share.each(range(ITEMS)):
            clock.advance(ITEM_MS)

    work_s = 10 * ITEMS * ITEM_MS / 1_000
    assert took_s(wide, 10) >= work_s + 10 * (ITEMS - 1) * TURN_S


def test_some_are_worked_at_side_by_side_and_answered_in_their_order() -> None:
    under_way = most = 0

    async def work(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await others_go_on()
        under_way -= 1
        return -item

    async def asked() -> list[int]:
        return await LoopShare().results(work, range(200))

    assert asyncio.run(asked()) == [-each for each in range(200)]
    assert 1 < most < 200


def test_work_that_nobody_waits_for_is_not_begun() -> None:
    """The thread is busy. A caller that waits for it leaves at once, and its work and memory are released."""

    async def asked() -> None:
        share, held, did = LoopShare(), Event(), list[str]()
        first = asyncio.create_task(share.in_thread(held.wait))
        await others_go_on()
        behind = asyncio.create_task(share.in_thread(lambda: did.append("behind")))
        await others_go_on()
        behind.cancel()
        await asyncio.wait_for(asyncio.wait([behind]), 60)
        first.cancel()
        await others_go_on()
        assert not first.done()  # it has begun, so it is waited for
        held.set()
        await asyncio.wait_for(asyncio.wait([first]), 60)
        await share.in_thread(lambda: None)
        share.close()
        assert did == []

    asyncio.run(asked())
