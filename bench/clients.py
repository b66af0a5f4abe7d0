"""A Python program: one process sends a million small records with keys, and reads them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time

from bench import load
from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import Contest, contest
from bench.gateway import Gateway
from bench.peers import Peers
from lakelog import AsyncClient, AsyncProducer, Client, Producer

RECORDS = 1_000_000
TOPIC = "bench"
_VALUES = load.values(10_000)
_KEYS = [b"key%07d" % number for number in range(9_973)]


def produce(_seconds: int) -> Figures:
    """Values of 100 bytes with keys of 10, one by one, by lakelog.Producer; its flush has seen them all."""
    return _sent(_send)


def produce_on_a_loop(_seconds: int) -> Figures:
    """As `produce`, but by lakelog.AsyncProducer."""
    return _sent(lambda url: asyncio.run(_send_on_a_loop(url)))


def read(_seconds: int) -> Figures:
    """Read the records one by one, by lakelog.Client.read."""
    return _received(_read)


def read_on_a_loop(_seconds: int) -> Figures:
    """As `read`, but by lakelog.AsyncClient.read."""
    return _received(lambda url: asyncio.run(_read_on_a_loop(url)))


def peer_produce(peers: Peers, _seconds: int) -> Figures:
    return _figures(*peers.librdkafka_keyed(peers.topic("keyed"), RECORDS))


def peer_read(peers: Peers, _seconds: int) -> Figures:
    peers.librdkafka_keyed(peers.topic("keyed"), RECORDS)
    return _figures(*peers.librdkafka_consume("keyed", RECORDS))


CELLS: dict[str, Contest] = {
    "Python producer, keyed": contest(produce, {"confluent-kafka producer": peer_produce}),
    "Python producer, keyed, event loop": contest(produce_on_a_loop),
    "Python read": contest(read, {"confluent-kafka consumer": peer_read}),
    "Python read, event loop": contest(read_on_a_loop),
}


@contextmanager
def _gateway() -> Iterator[Gateway]:
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)
        yield gateway


def _sent(send: Callable[[str], None]) -> Figures:
    with _gateway() as gateway:
        figures = _measured(lambda: send(gateway.url), gateway)
        if gateway.end_offset(TOPIC, PARTITIONS) != RECORDS:
            raise RuntimeError(f"{gateway.end_offset(TOPIC, PARTITIONS)} of {RECORDS} records are there")
        return figures


def _received(receive: Callable[[str], int]) -> Figures:
    with _gateway() as gateway:
        _send(gateway.url)
        got = 0

        def work() -> None:
            nonlocal got
            got = receive(gateway.url)

        figures = _measured(work, gateway)
        if got != RECORDS:
            raise RuntimeError(f"{got} of {RECORDS} records came back")
        return figures


def _measured(work: Callable[[], None], gateway: Gateway) -> Figures:
    begin, used, at_gateway = perf_counter(), process_time(), gateway.cpu_seconds
    work()
    elapsed, used = perf_counter() - begin, process_time() - used
    at_gateway = gateway.cpu_seconds - at_gateway
    figures = _figures(RECORDS / elapsed, used / RECORDS * 1e6)
    return {**figures, "gateway CPU µs a record": at_gateway / RECORDS * 1e6}


def _figures(rate: float, cpu_us: float) -> Figures:
    return {"records/s": rate, "client CPU µs a record": cpu_us}


def _send(url: str) -> None:
    with Producer(url) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, _VALUES[number % len(_VALUES)], _KEYS[number % len(_KEYS)])


async def _send_on_a_loop(url: str) -> None:
    async with AsyncProducer(url) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, _VALUES[number % len(_VALUES)], _KEYS[number % len(_KEYS)])


def _read(url: str) -> int:
    with Client(url) as client:
        return sum(record.value is not None for p in range(PARTITIONS) for record in client.read(TOPIC, p))


async def _read_on_a_loop(url: str) -> int:
    async with AsyncClient(url) as client:
        got = 0
        for partition in range(PARTITIONS):
            async for record in client.read(TOPIC, partition):
                got += record.value is not None
        return got
