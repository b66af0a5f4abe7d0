"""What only the face of event loops does: tasks that wait together, cancelled waits, a loop that goes on."""

import asyncio
import logging
from contextlib import aclosing

import pytest

from lakelog import AsyncClient, AsyncProducer, Client
from lakelog.client.calls import READ_BYTES
from lakelog.client.delivery import RecordMetadata
from log_tables import errors
from tests.kit.gateway import RunningGateway
from tests.kit.producing import values


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
    assert "1 records that wait in it may be lost" in caplog.text


def test_a_full_buffer_says_so(gateway: RunningGateway, topic: str) -> None:
    async def send() -> None:
        async with AsyncProducer(
            gateway.url, linger_ms=60_000, buffer_memory=300, max_block_ms=1
        ) as producer:
            await producer.send(topic, b"1")
            await producer.send(topic, b"2")

    with pytest.raises(errors.BufferFull, match="of 300 bytes wait"):
        asyncio.run(send())
