"""Tasks that outlive the call that starts them: kept until they end, waited for, cancelled."""

import asyncio

from ingest.pending_tasks import PendingTasks


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
