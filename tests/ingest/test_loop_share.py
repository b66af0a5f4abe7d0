"""The time of an event loop that wide requests have."""

import asyncio
from itertools import pairwise

from ingest.loop_share import LoopShare
from log_tables.clock import ManualClock
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
