"""The requests to the store of readers that wait at the end of a partition, by a manual clock."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from api.gateway import Gateway
from api.process.server import open_gateway
from api.v2.event_stream import wait_for_records
from ingest.settings import Settings
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import StoreUnavailable, TopicDeleted
from log_tables.limits import MIB
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from log_tables.testing import Fault, FaultyStore, unavailable
from tests.coordinator.groups.test_shared_refresh import joined, no
from tests.ingest.test_wide import others_first
from tests.kit.clocked_loop import STEP_MS, ClockedLoop
from tests.kit.groups import any_topic
from tests.kit.partitions import append

LONG_S = 1_000.0


@dataclass
class Setup:
    """A gateway without its server, and a partition of it whose store counts."""

    gateway: Gateway
    partition: Partition
    store: FaultyStore
    clock: ManualClock
    root: Path

    async def passes(self, ms: int) -> None:
        """Let the time pass, and everybody do what is due."""
        for _ in range(0, ms, STEP_MS):
            self.clock.advance(STEP_MS)
            for _ in range(20):
                await others_first()

    def gets(self) -> int:
        return sum(call.operation == "get" for call in self.store.calls)

    def elsewhere(self) -> Cluster:
        """The cluster as opened by another process on the root."""
        return Cluster.open(open_store(self.root), self.clock)


Reader = Callable[[Setup, int], Awaitable[object]]


async def fetches(setup: Setup, number: int) -> int:
    """Wait as a fetch does; returns how far the log goes then."""
    request = Request({"type": "http"}, _silent)
    await wait_for_records(setup.gateway, request, setup.partition, 0, setup.clock.monotonic() + LONG_S)
    return setup.partition.high_watermark


async def _silent() -> Any:
    await asyncio.Event().wait()


async def polls(setup: Setup, number: int) -> int:
    """Wait as the member of a group of its own does; returns how many partitions it is given."""
    consumer = await joined(setup.gateway, f"g{number}")
    polled = await consumer.poll(None, MIB, setup.clock.monotonic() + LONG_S, no, any_topic)
    return len(polled.reads)


def run(
    root: Path, clock: ManualClock, led: bool, scenario: Callable[[Setup], Coroutine[Any, Any, None]]
) -> None:
    async def opened() -> None:
        gateway = open_gateway(Settings(data=str(root), linger_ms=0), "http://test", clock=clock)
        await gateway.writer.start()
        topic = create_topic(gateway.cluster, "t")
        if led:
            await gateway.writer.accumulator_for(topic, 0)
        partition = topic.partition(0)
        partition.table.store = store = FaultyStore(gateway.cluster.store)
        await scenario(Setup(gateway, partition, store, clock, root))
        await gateway.writer.close()

    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        runner.run(opened())


async def waiting(setup: Setup, reader: Reader, count: int) -> "list[asyncio.Task[object]]":
    """The tasks of `count` readers, all of which are waiting at the tail."""
    tasks = [asyncio.create_task(_awaited(reader(setup, number))) for number in range(count)]
    while len(setup.partition._listeners) < count:
        await others_first()
    return tasks


async def _awaited(reading: Awaitable[object]) -> object:
    return await reading


async def end(tasks: "list[asyncio.Task[object]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


READERS = pytest.mark.parametrize("reader", [fetches, polls])
LED = pytest.mark.parametrize("led", [True, False])


def cost(root: Path, reader: Reader, led: bool, count: int) -> int:
    """How many gets so many readers cost that wait for 5 s."""
    found = 0

    async def scenario(setup: Setup) -> None:
        nonlocal found
        tasks = await waiting(setup, reader, count)
        before = setup.gets()
        await setup.passes(5_000)
        found = setup.gets() - before
        await end(tasks)

    run(root, ManualClock(), led, scenario)
    return found


@READERS
@LED
def test_fifty_who_wait_cost_the_store_what_one_costs(tmp_path: Path, reader: Reader, led: bool) -> None:
    one = cost(tmp_path / "one", reader, led, 1)
    assert one >= (4 if led and reader is polls else 25), "somebody looks every 0.2 s, or every second"
    assert cost(tmp_path / "fifty", reader, led, 50) <= one + 2


@READERS
@LED
def test_when_the_last_one_has_left_nobody_looks(
    tmp_path: Path, clock: ManualClock, reader: Reader, led: bool
) -> None:
    async def scenario(setup: Setup) -> None:
        tasks = await waiting(setup, reader, 3)
        await setup.passes(1_000)
        await end(tasks)
        before = setup.gets()
        await setup.passes(5_000)
        assert setup.gets() == before
        assert not setup.partition._listeners
        assert not setup.gateway.tails._under_way

    run(tmp_path, clock, led, scenario)


@READERS
def test_who_comes_late_waits_no_longer_for_others_commits_than_alone(
    tmp_path: Path, clock: ManualClock, reader: Reader
) -> None:
    async def scenario(setup: Setup) -> None:
        other = setup.elsewhere()
        leader = other.claim(other.topic("t"), 0)
        elder = (await waiting(setup, fetches, 1))[0]
        await setup.passes(3_000)
        newcomer = asyncio.create_task(_awaited(reader(setup, 1)))
        while len(setup.partition._listeners) < 2:
            await others_first()
        await setup.passes(STEP_MS)
        append(leader, b"1")
        await setup.passes(40)
        assert [elder.done(), newcomer.done()] == [True, True]
        assert set(await asyncio.gather(elder, newcomer)) == {1}

    run(tmp_path, clock, False, scenario)


@READERS
def test_a_look_that_fails_is_heard_by_all_who_wait(
    tmp_path: Path, clock: ManualClock, reader: Reader
) -> None:
    async def scenario(setup: Setup) -> None:
        tasks = await waiting(setup, reader, 20)
        await setup.passes(1_000)
        setup.partition.table.store = away = FaultyStore(setup.store, [Fault(1, unavailable, {"get"})])
        await setup.passes(200)
        assert all(task.done() for task in tasks)
        heard = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in heard] == [StoreUnavailable] * 20
        assert len(away.calls) == 1

    run(tmp_path, clock, False, scenario)


@READERS
@LED
def test_all_who_wait_at_a_topic_that_another_process_deletes_hear_of_it(
    tmp_path: Path, clock: ManualClock, reader: Reader, led: bool
) -> None:
    async def scenario(setup: Setup) -> None:
        tasks = await waiting(setup, reader, 20)
        await setup.passes(1_000)
        delete_topic(setup.elsewhere(), "t")
        await setup.passes(1_000 if led and reader is polls else 200)
        assert all(task.done() for task in tasks)
        heard = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in heard] == [TopicDeleted] * 20

    run(tmp_path, clock, led, scenario)


def test_who_needs_a_newer_look_is_not_answered_with_one_that_began_before(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def scenario(setup: Setup) -> None:
        tails, now = setup.gateway.tails, clock.boottime()
        waiting = [asyncio.create_task(tails.follow([setup.partition], 0.2)) for _ in range(5)]
        await asyncio.gather(*waiting)
        assert setup.gets() == 1
        first, second = (asyncio.create_task(tails.refresh([setup.partition], now)) for _ in range(2))
        await asyncio.gather(first, second)
        assert setup.gets() == 3
        clock.advance(STEP_MS)
        await asyncio.gather(*(tails.refresh([setup.partition], now) for _ in range(2)))
        assert setup.gets() == 4, "one began after both asked"

    run(tmp_path, clock, False, scenario)


@pytest.mark.parametrize("faults", [[], [Fault(1, unavailable, {"get"})]])
def test_a_partition_that_was_looked_at_is_not_kept_for_that(
    tmp_path: Path, clock: ManualClock, faults: list[Fault]
) -> None:
    async def scenario(setup: Setup) -> None:
        partition = Partition(setup.gateway.cluster.store, setup.partition.directory, clock)
        partition.table.store = FaultyStore(setup.gateway.cluster.store, faults)
        assert len(await setup.gateway.tails.refresh([partition], clock.boottime())) == len(faults)
        gone = weakref.ref(partition)
        del partition
        await others_first()
        gc.collect()
        assert gone() is None

    run(tmp_path, clock, False, scenario)
