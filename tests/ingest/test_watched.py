"""A call with a check beside it: whichever of the two fails ends the call."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ingest.pending_tasks import watched

NEVER_S = 3_600.0
PATIENCE_S = 120.0


class GaveUp(Exception):
    """Raised by a check that gives up."""


class Call:
    """A call that waits for `go_on`, and says how it ended."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def run(self, error: Exception | None = None) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended.set()
        if error is not None:
            raise error
        return "done"


async def never() -> None:
    raise AssertionError


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(within())


def test_a_call_that_is_quick_is_not_checked() -> None:
    async def scenario() -> None:
        call = Call()
        call.go_on.set()
        assert await watched(call.run(), NEVER_S, never) == "done"

    run(scenario)


def test_a_call_is_checked_until_it_ends() -> None:
    async def scenario() -> None:
        call, checks = Call(), 0

        async def check() -> None:
            nonlocal checks
            checks += 1
            if checks == 3:
                call.go_on.set()
                await call.ended.wait()

        assert await watched(call.run(), 0.0, check) == "done"
        assert checks == 3

    run(scenario)


def test_a_check_that_raises_cancels_the_call() -> None:
    async def scenario() -> None:
        call = Call()

        async def check() -> None:
            await call.begun.wait()
            raise GaveUp

        with pytest.raises(GaveUp):
            await watched(call.run(), 0.0, check)
        await call.ended.wait()
        assert call.cancelled

    run(scenario)


def test_the_error_of_a_call_is_raised() -> None:
    async def scenario() -> None:
        call = Call()
        call.go_on.set()
        with pytest.raises(OSError, match="on purpose"):
            await watched(call.run(OSError("on purpose")), NEVER_S, never)

    run(scenario)


def test_a_caller_that_is_cancelled_cancels_the_call() -> None:
    async def scenario() -> None:
        call = Call()
        caller = asyncio.create_task(watched(call.run(), NEVER_S, never))
        await call.begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await call.ended.wait()
        assert call.cancelled

    run(scenario)


def test_an_error_that_nobody_waits_for_is_retrieved() -> None:
    async def scenario() -> None:
        call, troubles = Call(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))

        async def check() -> None:
            call.go_on.set()
            await call.ended.wait()
            raise GaveUp

        with pytest.raises(GaveUp):
            await watched(call.run(OSError("on purpose")), 0.0, check)
        assert troubles == []

    run(scenario)


def test_a_call_that_is_given_up_has_ended_when_that_is_said() -> None:
    """Else a request goes on at another gateway after its client has heard that it may not."""

    async def scenario() -> None:
        call, outer = Call(), Call()

        async def give_up() -> None:
            await call.begun.wait()
            raise GaveUp

        with pytest.raises(GaveUp):
            await watched(watched(call.run(), NEVER_S, never), 0, give_up)
        assert call.ended.is_set()
        caller = asyncio.ensure_future(watched(outer.run(), NEVER_S, never))
        await outer.begun.wait()
        caller.cancel()
        await asyncio.wait([caller])
        assert outer.ended.is_set()

    run(scenario)
