"""A consumer on an event loop, where it differs from that of threads: tasks, cancellation, coroutines.

Everything else is held by the tests of consumers, which use both.
"""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

import lakelog
from log_tables.topic_partition import TopicPartition
from tests.kit.consuming import members
from tests.kit.gateway import RunningGateway
from tests.kit.support import WAIT_S


def consumer(gateway: RunningGateway, topic: str, **settings: Any) -> lakelog.AsyncConsumer:
    given = {"auto_offset_reset": "earliest", **settings}
    return lakelog.AsyncConsumer(gateway.url, topic, topic, **given)


def test_polls_that_are_cancelled_skip_and_double_nothing(gateway: RunningGateway, topic: str) -> None:
    """Whatever moment a cancellation meets: before the request is sent, or while its answer comes."""
    found: Counter[int] = Counter()

    async def consume() -> None:
        async with consumer(gateway, topic) as reading:
            for number in range(30):
                gateway.produce(topic, number, partition=0)
                try:
                    table = await asyncio.wait_for(reading.poll(1_000), number / 2_000)
                    found.update(table.column("offset").to_pylist())
                except TimeoutError:
                    pass
            while sum(found.values()) < 30:
                found.update((await reading.poll(1_000)).column("offset").to_pylist())

    asyncio.run(consume())
    assert found == Counter(range(30))


def test_other_tasks_go_on_while_it_waits(gateway: RunningGateway, topic: str) -> None:
    async def consume() -> bytes | None:
        async with consumer(gateway, topic) as reading, lakelog.AsyncProducer(gateway.url) as producer:
            waiting = asyncio.ensure_future(anext(reading))
            await producer.send_and_wait(topic, b"1")
            record = await waiting
            assert isinstance(record.value, bytes)
            return record.value

    assert asyncio.run(consume()) == b"1"


def test_its_callbacks_may_be_coroutines_that_commit(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, 2, partition=0)
    told: list[tuple[str, list[TopicPartition]]] = []

    async def consume() -> None:
        async def revoked(partitions: list[TopicPartition]) -> None:
            told.append(("revoked", partitions))
            await reading.commit({(topic, 0): 1})

        def assigned(partitions: list[TopicPartition]) -> None:
            told.append(("assigned", partitions))

        reading = consumer(gateway, topic, auto_commit=False, on_assigned=assigned, on_revoked=revoked)
        async with reading:
            assert (await anext(reading)).offset == 0
            assert await reading.subscription() == {topic}

    asyncio.run(consume())
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert told == [("assigned", both), ("revoked", both)]
    with lakelog.Client(gateway.url) as client:
        assert client.group_offsets(topic) == {(topic, 0): 1}


def test_the_error_of_a_callback_is_raised_and_the_member_leaves(gateway: RunningGateway, topic: str) -> None:
    async def fail(_partitions: list[TopicPartition]) -> None:
        assert 1 / 0

    async def consume() -> None:
        async with consumer(gateway, topic, on_revoked=fail) as reading:
            await reading.poll(0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(consume())
    with lakelog.Client(gateway.url) as client:
        assert client.group(topic)["members"] == []


def test_a_block_that_is_cancelled_sends_nothing(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, partition=0)

    async def wait_for_ever(reading: lakelog.AsyncConsumer) -> None:
        async with reading.transaction() as transaction:
            assert (await anext(reading)).offset == 0
            transaction.send(topic, b"never", partition=1)
            await asyncio.Event().wait()

    async def consume() -> list[int]:
        async with consumer(gateway, topic, auto_commit=False) as reading:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait_for_ever(reading), 0.05)
            async with reading.transaction() as transaction:
                assert (await anext(reading)).offset == 0
                transaction.send(topic, b"once", partition=1)
            return [sent.records for sent in transaction.offsets]

    assert asyncio.run(consume()) == [1]
    with lakelog.Client(gateway.url) as client:
        assert [record.value for record in client.read(topic, 1)] == [b"once"]


def test_a_task_that_is_cancelled_while_it_joins_leaves(gateway: RunningGateway, topic: str) -> None:
    class Slow(httpx.AsyncHTTPTransport):
        """Its first answer never comes, and `done` says that the gateway has given it."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            answer = await super().handle_async_request(request)
            if not done.is_set():
                await answer.aread()
                done.set()
                await asyncio.Event().wait()
            return answer

    async def join() -> None:
        async with consumer(gateway, topic, transport=Slow()):
            pass

    async def use() -> None:
        joining = asyncio.create_task(join())
        await done.wait()
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    done = asyncio.Event()
    asyncio.run(use())
    with lakelog.Client(gateway.url) as client:
        assert members(client, topic) == []


@pytest.mark.parametrize("joins", [True, False], ids=["while it joins", "in its block"])
def test_a_task_that_is_cancelled_waits_for_no_gateway_that_hangs(
    gateway: RunningGateway, topic: str, joins: bool
) -> None:
    class Hanging(httpx.AsyncHTTPTransport):
        """From `hangs` on no answer comes; `asked` says that one is waited for."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if hangs.is_set():
                asked.set()
                await asyncio.Event().wait()
            return await super().handle_async_request(request)

    async def use() -> None:
        async with consumer(gateway, topic, transport=Hanging()) as reading:
            hangs.set()
            await reading.poll(60_000)

    async def cancel() -> None:
        if joins:
            hangs.set()
        using = asyncio.create_task(use())
        await asked.wait()
        using.cancel()
        await asyncio.wait([using], timeout=WAIT_S)
        assert using.cancelled()

    hangs, asked = asyncio.Event(), asyncio.Event()
    asyncio.run(cancel())


def test_it_is_used_in_one_block(gateway: RunningGateway, topic: str) -> None:
    async def use() -> None:
        reading = consumer(gateway, topic)
        with pytest.raises(lakelog.InvalidArgument, match="async with"):
            await reading.poll(0)
        async with reading:
            await reading.poll(0)
        with pytest.raises(lakelog.InvalidArgument, match="create another"):
            await reading.__aenter__()

    asyncio.run(use())
