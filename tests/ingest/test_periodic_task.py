"""Work that is repeated on the event loop: at once, never two at once, after failures too, until it ends."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ingest.periodic_task import FailureLog, PeriodicTask

NEVER_S = 3_600.0
PATIENCE_S = 120.0


class Work:
    """Counts its calls. Each waits for `go_on`, and then fails with the next of `errors`, if there is any."""

    def __init__(self, *errors: Exception, waits: bool = False) -> None:
        self.begun = self.ended = self.at_once = self.most_at_once = 0
        self.failed: list[str] = []
        self.go_on, self._changed = asyncio.Event(), asyncio.Condition()
        self._errors = [*errors]
        if not waits:
            self.go_on.set()

    def periodic(self, interval_s: float = 0.0) -> PeriodicTask:
        return PeriodicTask("work", interval_s, self.act, FailureLog(self.failed.append))

    async def act(self) -> None:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._notify()
            await self.go_on.wait()
            if self._errors:
                raise self._errors.pop(0)
        finally:
            self.ended += 1
            self.at_once -= 1
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(scenario())


def test_the_first_call_comes_at_once_and_others_follow() -> None:
    async def scenario() -> None:
        rare, often = Work(), Work()
        tasks = [rare.periodic(NEVER_S), often.periodic()]
        for task in tasks:
            task.start()
        await rare.until(lambda: rare.ended == 1)
        await often.until(lambda: often.ended >= 10)
        for task in tasks:
            await task.close()
        assert (rare.begun, often.most_at_once) == (1, 1)

    run(scenario)


def test_a_second_start_begins_nothing() -> None:
    async def scenario() -> None:
        work = Work(waits=True)
        task = work.periodic()
        task.start()
        task.start()
        await work.until(lambda: work.begun == 1)
        work.go_on.set()
        await work.until(lambda: work.ended >= 5)
        assert work.most_at_once == 1
        await task.close()

    run(scenario)


def test_a_failure_is_counted_and_the_next_call_comes() -> None:
    async def scenario() -> None:
        work = Work(RuntimeError("the disk is on fire"), OSError("and the cable"))
        task = work.periodic()
        task.start()
        await work.until(lambda: work.ended >= 3)
        assert work.failed == ["work", "work"]
        await task.close()

    run(scenario)


def test_a_call_under_way_is_cancelled_and_has_ended_on_return() -> None:
    async def scenario() -> None:
        work = Work(waits=True)
        task = work.periodic()
        task.start()
        await work.until(lambda: work.begun == 1)
        await task.close()
        assert (work.begun, work.ended, work.failed) == (1, 1, [])
        await task.close()

    run(scenario)


def test_a_call_may_be_the_last_by_its_own_will() -> None:
    async def scenario() -> None:
        calls: list[PeriodicTask] = []

        async def act() -> None:
            calls.append(task)
            task.stop()
            await asyncio.to_thread(lambda: None)
            calls.append(task)

        task = PeriodicTask("work", 0.0, act, FailureLog())
        task.start()
        assert task._task is not None
        await asyncio.wait_for(task._task, PATIENCE_S)
        assert calls == [task, task]
        await task.close()

    run(scenario)


def test_what_never_began_closes() -> None:
    async def scenario() -> None:
        work = Work()
        task = work.periodic()
        await task.close()
        task.start()
        await task.close()
        assert work.begun == 0

    run(scenario)


def test_a_closer_that_is_cancelled_leaves_nothing_running() -> None:
    async def scenario() -> None:
        begun, ending, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def act() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ending.set()
                await done.wait()

        task = PeriodicTask("work", 0.0, act, FailureLog())
        task.start()
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        closing = asyncio.create_task(task.close())
        await asyncio.wait_for(ending.wait(), PATIENCE_S)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        done.set()
        assert task._task is not None
        await asyncio.wait((task._task,), timeout=PATIENCE_S)
        assert task._task.cancelled()

    run(scenario)
