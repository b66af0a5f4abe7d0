"""The asynchronous producer alone: tasks that wait together, cancelled waits, a loop that goes on."""

import asyncio
import logging
from collections import Counter
from contextlib import aclosing

import httpx
import pytest

from lakelog import AsyncClient, AsyncProducer, Client
from lakelog.client.calls import READ_BYTES
from lakelog.client.producer.delivery import RecordMetadata
from log_tables import errors
from tests.kit.gateway import RunningGateway
from tests.kit.producing import values
from tests.kit.support import WAIT_S


def test_many_tasks_send_at_once_and_each_is_told_where_its_record_is(
    gateway: RunningGateway, client: Client, topic: str
) -> None:
    async def send() -> list[RecordMetadata]:
        async with AsyncProducer(gateway.url, linger_ms=0, buffer_memory=2_000) as producer:
            sending = [producer.send_and_wait(topic, b"%d" % n, b"%d" % n) for n in range(200)]
            return await asyncio.gather(*sending)

    placed = asyncio.run(send())
    found = {(p, offset): value for p in range(2) for offset, value in enumerate(values(client, topic, p))}
    assert found == {(each.partition, each.offset): b"%d" % n for n, each in enumerate(placed)}


class Holding(httpx.AsyncHTTPTransport):
    """The network, with a count of the questions about each topic, which wait until it is `open`."""

    def __init__(self, *held: str) -> None:
        super().__init__()
        self._held, self.open = held, asyncio.Event()
        self.asked = Counter[str]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            name = request.url.path.split("/")[2]
            self.asked[name] += 1
            if name in self._held:
                await self.open.wait()
        return await super().handle_async_request(request)


def test_topics_that_are_asked_about_do_not_wait_for_one_another(gateway: RunningGateway, topic: str) -> None:
    slow = gateway.create_topic("slow-to-tell")
    network = Holding(slow)

    async def send() -> None:
        async with AsyncProducer(gateway.url, linger_ms=0, transport=network) as producer:
            waiting = [asyncio.ensure_future(producer.send_and_wait(slow, b"%d" % n)) for n in range(20)]
            await asyncio.wait(waiting, timeout=0)
            async with asyncio.timeout(WAIT_S):
                await producer.send_and_wait(topic, b"1")
            assert not any(each.done() for each in waiting)
            network.open.set()
            assert sorted(each.offset or 0 for each in await asyncio.gather(*waiting)) == [*range(20)]

    asyncio.run(send())
    assert network.asked == {slow: 1, topic: 1}


def test_a_task_that_asked_and_is_cancelled_leaves_the_question_to_others(
    gateway: RunningGateway, topic: str
) -> None:
    network = Holding(topic)

    async def send() -> None:
        async with AsyncProducer(gateway.url, linger_ms=0, transport=network) as producer:
            asking, *others = (asyncio.ensure_future(producer.send_and_wait(topic, b"1")) for _ in range(3))
            await asyncio.wait(others, timeout=0)
            asking.cancel()
            others.pop().cancel()  # it only waits: the question is not cancelled with it
            network.open.set()
            async with asyncio.timeout(WAIT_S):
                assert [each.offset for each in await asyncio.gather(*others)] == [0]

    asyncio.run(send())


def test_a_wait_that_is_cancelled_has_not_taken_the_future_and_the_record_goes_out(
    gateway: RunningGateway, client: Client, topic: str
) -> None:
    async def send() -> None:
        async with AsyncProducer(gateway.url, linger_ms=60_000) as producer:
            sent = await producer.send(topic, b"1", partition=0)
            waiting = asyncio.ensure_future(asyncio.wait_for(sent, 60))
            await asyncio.wait([waiting], timeout=0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await producer.flush()
            assert (await sent).offset == 0

    asyncio.run(send())
    assert values(client, topic, 0) == [b"1"]


def test_a_callback_runs_on_the_loop_when_the_record_is_there(gateway: RunningGateway, topic: str) -> None:
    async def send() -> RecordMetadata:
        told = asyncio.get_running_loop().create_future()
        async with AsyncProducer(gateway.url, linger_ms=0) as producer:
            sent = await producer.send(topic, b"1", partition=0)
            sent.add_done_callback(lambda delivery: told.set_result(delivery.done()))
            assert await told
            return await sent

    assert asyncio.run(send()) == RecordMetadata(topic, 0, 0)


def test_a_program_that_only_sends_lets_its_records_go_out(gateway: RunningGateway, topic: str) -> None:
    async def send() -> None:
        async with AsyncProducer(gateway.url, batch_size=100_000, linger_ms=60_000) as producer:
            first = await producer.send(topic, b"x" * 100_000, partition=0)
            while not first.done():
                await producer.send(topic, b"x" * 10_000, partition=1)

    asyncio.run(send())


def test_a_reader_that_stops_early_leaves_nothing_running(gateway: RunningGateway, topic: str) -> None:
    async def read() -> bytes | None:
        async with AsyncProducer(gateway.url) as producer:
            for number in range(2 * READ_BYTES // 1_000_000):
                await producer.send(topic, b"%04d" % number * 250_000, partition=0)
        async with AsyncClient(gateway.url) as reading:
            async with aclosing(reading.read(topic, 0)) as records:
                record = await anext(records)
            assert await reading.topics()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return record.value

    assert (asyncio.run(read()) or b"").startswith(b"0000")


def test_an_error_of_the_loop_s_program_is_kept_and_has_a_note(gateway: RunningGateway, topic: str) -> None:
    async def send() -> None:
        async with AsyncProducer(gateway.url, max_block_ms=1) as producer:
            await producer.send(topic, b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(send())


def test_a_producer_that_is_dropped_says_so(
    gateway: RunningGateway, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        producer = AsyncProducer(gateway.url, linger_ms=60_000)
        await producer.send(topic, b"1")
        del producer

    with caplog.at_level(logging.ERROR), pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(send())
    assert "1 record in it may be lost" in caplog.text


def test_a_full_buffer_says_so(gateway: RunningGateway, topic: str) -> None:
    async def send() -> None:
        async with AsyncProducer(
            gateway.url, linger_ms=60_000, buffer_memory=300, max_block_ms=1
        ) as producer:
            await producer.send(topic, b"1")
            await producer.send(topic, b"2")

    with pytest.raises(errors.BufferFull, match="of 300 bytes wait"):
        asyncio.run(send())
