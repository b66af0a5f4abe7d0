"""Tasks that outlive the call that starts them: kept until they end, waited for, cancelled."""

import asyncio

from ingest.background import Background


def test_a_task_is_kept_until_it_ends() -> None:
    async def scenario() -> None:
        background, gate = Background(), asyncio.Event()

        async def work() -> None:
            await gate.wait()

        background.start(work())
        await background.wait(timeout_s=0)
        assert len(background) == 1
        gate.set()
        await background.wait()
        assert not background

    asyncio.run(scenario())


def test_the_first_that_ends_is_enough() -> None:
    async def scenario() -> None:
        background, gate = Background(), asyncio.Event()

        async def work(done: bool) -> None:
            if not done:
                await gate.wait()

        background.start(work(done=False))
        background.start(work(done=True))
        await background.wait(until=asyncio.FIRST_COMPLETED)
        assert len(background) == 1
        gate.set()
        await background.wait()

    asyncio.run(scenario())


def test_cancelled_tasks_have_ended_on_return() -> None:
    async def scenario() -> None:
        background, ended = Background(), []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        background.start(work())
        await background.wait(timeout_s=0)
        await background.cancel()
        assert ended == ["ended"]
        assert not background
        await background.cancel()

    asyncio.run(scenario())
