"""Tasks that outlive the call that starts them: kept until they end, waited for, cancelled."""

import asyncio
import gc
from typing import Any

import pytest

from ingest.pending_tasks import PendingTasks, shared_task


def test_a_task_is_kept_until_it_ends() -> None:
    async def scenario() -> None:
        tasks, gate = PendingTasks(), asyncio.Event()

        async def work() -> None:
            await gate.wait()

        tasks.start(work())
        await tasks.wait(timeout_s=0)
        assert len(tasks) == 1
        gate.set()
        await tasks.wait()
        assert not tasks

    asyncio.run(scenario())


def test_the_first_that_ends_is_enough() -> None:
    async def scenario() -> None:
        tasks, gate = PendingTasks(), asyncio.Event()

        async def work(done: bool) -> None:
            if not done:
                await gate.wait()

        tasks.start(work(done=False))
        tasks.start(work(done=True))
        await tasks.wait(until=asyncio.FIRST_COMPLETED)
        assert len(tasks) == 1
        gate.set()
        await tasks.wait()

    asyncio.run(scenario())


def test_cancelled_tasks_have_ended_on_return() -> None:
    async def scenario() -> None:
        tasks, ended = PendingTasks(), []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        tasks.start(work())
        await tasks.wait(timeout_s=0)
        await tasks.cancel()
        assert ended == ["ended"]
        assert not tasks
        await tasks.cancel()

    asyncio.run(scenario())


def test_those_who_share_a_task_have_its_error_and_nobody_else_hears_of_it() -> None:
    complaints: list[dict[str, Any]] = []

    async def fail(gate: asyncio.Event) -> None:
        await gate.wait()
        raise OSError("away")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        gate = asyncio.Event()
        left, kept = shared_task(fail(gate)), shared_task(fail(gate))
        waiting = asyncio.ensure_future(asyncio.shield(left))
        await asyncio.wait((waiting,), timeout=0)
        waiting.cancel()
        gate.set()
        with pytest.raises(OSError, match="away"):
            await asyncio.shield(kept)
        await asyncio.wait((left,))

    asyncio.run(scenario())
    gc.collect()
    assert complaints == []
