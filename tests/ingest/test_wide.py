"""Requests to very many partitions: what they have under way is bounded, and nobody waits for all of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.client_topics import refreshed_topic
from api.gateway import Gateway
from api.process.server import open_gateway
from api.requests.appending import ProduceRequest, append
from coordinator.brokers.router import Router
from ingest.loop_share import Wide
from ingest.settings import Settings
from ingest.writer import CLAIM_THREADS, Acks, Appended, AppendOutcome
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.route import SentRecords
from log_tables.cluster.topic import Topic
from log_tables.layout import partition_directory
from log_tables.limits import PART_BYTES
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.rows import Rows
from log_tables.store.store import open_store
from log_tables.testing import HoldingStore
from tests.kit.partitions import values
from tests.kit.support import wait_until

PARTITIONS = 12
AT_ONCE = 3


async def others_first() -> None:
    """Let all other callbacks that are ready run first."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    await done.wait()


@given(st.lists(st.integers(0, 30), max_size=4), st.integers(1, 5))
def test_no_more_work_is_under_way_than_may_be_and_answers_are_in_order(
    widths: list[int], at_once: int
) -> None:
    wide, under_way, most = Wide(at_once), 0, 0

    async def work(item: int) -> int:
        nonlocal under_way, most
        async with wide.turn:
            under_way += 1
            most = max(most, under_way)
            await others_first()
            under_way -= 1
        return item * item

    async def scenario() -> list[list[int]]:
        return await asyncio.gather(*(wide.each(work, range(width)) for width in widths))

    assert asyncio.run(scenario()) == [[item * item for item in range(width)] for width in widths]
    assert most == min(at_once, sum(widths))


def test_a_request_that_is_wide_shares_its_turns_with_one_that_comes_later() -> None:
    wide, begun = Wide(2), []

    async def work(item: str) -> None:
        async with wide.turn:
            begun.append(item)
            await others_first()

    async def scenario() -> None:
        first = asyncio.create_task(wide.each(work, ["a"] * 100))
        await others_first()
        await wide.each(work, ["b"] * 10)
        assert not first.done()
        first.cancel()

    asyncio.run(scenario())
    assert begun.count("a") < 20


class Setup:
    """A gateway without its server, whose wide requests are those to more than AT_ONCE partitions.

    The store holds what is put into the log of a partition of the topic "wide".
    """

    def __init__(self, gateway: Gateway, store: HoldingStore) -> None:
        self.gateway, self.store = gateway, store
        parts = (gateway.writer, gateway.leadership, gateway.brokers, gateway.peers)
        self.router = Router(*parts, gateway.settings, gateway.clock, at_once=AT_ONCE)
        self.wide = create_topic(gateway.cluster, "wide", PARTITIONS)
        self.lone = create_topic(gateway.cluster, "lone", 1)

    async def append(
        self, topic: Topic, *partitions: int, acks: Acks = Acks.ALL, value: bytes = b"v"
    ) -> list[AppendOutcome]:
        batch = input_batch([Record(value)], self.gateway.clock.now_us())
        with self.gateway.buffer.room(topic.name) as room:
            room.grow(100)
            return await self.router.append(
                topic, [(index, AppendRequest(batch)) for index in partitions], acks, room
            )

    def told(self, index: int) -> list[bytes | None]:
        """The records in partition `index` of the topic "wide"."""
        partition = self.wide.partition(index)
        partition.refresh(wait=True)
        return values(partition)


def run(root: Path, scenario: Callable[[Setup], Awaitable[None]]) -> None:
    async def main() -> None:
        gateway = open_gateway(Settings(data=str(root), linger_ms=0), "http://nowhere")
        gateway.cluster.store = store = HoldingStore(gateway.cluster.store, "wide")
        await gateway.writer.start()
        setup = Setup(gateway, store)
        try:
            await scenario(setup)
        finally:
            store.let_go()
            await setup.router.close()
            await gateway.writer.close()

    asyncio.run(main())


async def held(store: HoldingStore, count: int) -> None:
    await asyncio.to_thread(wait_until, lambda: store.held >= count, f"{count} calls wait for the store")


def test_who_appends_to_a_partition_that_is_led_waits_for_no_claims(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.append(setup.lone, 0)
        setup.store.hold()
        wide = asyncio.create_task(setup.append(setup.wide, *range(PARTITIONS)))
        await held(setup.store, AT_ONCE)
        [outcome] = await setup.append(setup.lone, 0)
        assert isinstance(outcome, Appended)
        assert not wide.done()
        setup.store.let_go()
        assert all(isinstance(outcome, Appended) for outcome in await wide)
        assert setup.store.most <= min(AT_ONCE, CLAIM_THREADS)

    run(tmp_path, scenario)


def test_who_appends_to_another_partition_of_the_topic_waits_for_no_commits(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.append(setup.wide, *range(PARTITIONS))
        await setup.append(setup.lone, 0)
        setup.store.hold()
        wide = asyncio.create_task(setup.append(setup.wide, *range(PARTITIONS)))
        await held(setup.store, AT_ONCE)
        assert isinstance((await setup.append(setup.lone, 0))[0], Appended)
        others = asyncio.create_task(setup.append(setup.wide, PARTITIONS - 1))
        await held(setup.store, AT_ONCE + 1)  # it is at the store together with them, not behind the rest
        setup.store.let_go()
        await asyncio.gather(wide, others)

    run(tmp_path, scenario)


def test_a_wide_request_with_acks_1_is_answered_when_it_is_durable(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        outcomes = await setup.append(setup.wide, *range(PARTITIONS), acks=Acks.LEADER)
        assert all(isinstance(outcome, Appended) and outcome.base_offset == 0 for outcome in outcomes)
        assert all(setup.told(index) == [b"v"] for index in range(PARTITIONS))

    run(tmp_path, scenario)


def test_what_follows_a_wide_request_with_acks_0_comes_after_it(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.append(setup.wide, *range(PARTITIONS), acks=Acks.NONE, value=b"1")
        await setup.append(setup.wide, *reversed(range(PARTITIONS)), acks=Acks.NONE, value=b"2")
        await asyncio.gather(*(setup.append(setup.wide, index, value=b"3") for index in range(PARTITIONS)))
        assert all(setup.told(index) == [b"1", b"2", b"3"] for index in range(PARTITIONS))
        await setup.router.close()
        assert setup.gateway.buffer.used == 0

    run(tmp_path, scenario)


def test_a_wide_request_with_acks_0_goes_to_the_recreated_topic(tmp_path: Path) -> None:
    """Each of its parts spreads over so many partitions of the new one that it is wide again."""

    async def scenario(setup: Setup) -> None:
        old = create_topic(setup.gateway.cluster, "again", AT_ONCE + 1)
        elsewhere = Cluster.open(open_store(tmp_path))
        delete_topic(elsewhere, "again")
        new = create_topic(elsewhere, "again", (AT_ONCE + 1) ** 2)
        gateway = replace(setup.gateway, router=setup.router)
        for value in (b"1", b"2"):
            with gateway.buffer.room("again") as room:
                sent = spread(value, new.partition_count)
                await append(old, sent, ProduceRequest(gateway, room, Acks.NONE))
        with gateway.buffer.room("again") as room:
            sent, now = spread(b"3", new.partition_count), await refreshed_topic(gateway, old)
            done = await append(now, sent, ProduceRequest(gateway, room, Acks.ALL))
        assert all(isinstance(outcome, Appended) and outcome.base_offset == 2 for outcome in done.outcomes)
        for index in range(new.partition_count):
            partition = new.partition(index)
            partition.refresh()
            assert values(partition) == [b"1", b"2", b"3"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
def test_records_answered_early_hold_their_room_until_they_are_durable_themselves(
    tmp_path: Path, acks: Acks
) -> None:
    """One partition's commit hangs while other partitions of the request are durable already."""

    async def scenario(setup: Setup) -> None:
        two = create_topic(setup.gateway.cluster, "two", 3)
        await setup.append(two, 0)
        stuck = HoldingStore(setup.gateway.cluster.store, partition_directory(two.directory, 1))
        setup.gateway.cluster.store = stuck
        await setup.append(two, 1)
        stuck.hold()
        record = AppendRequest(input_batch([Record(bytes(5_000))], 0))
        parts = [(0, record), (1, record), (2, record)]  # nobody leads the last one yet
        try:
            with setup.gateway.buffer.room("two") as room:
                room.grow(3 * (record.size_bytes + PART_BYTES))
                await setup.router.append(two, parts, acks, room)
            await held(stuck, 1)
            free = two.partition(2)
            await asyncio.to_thread(wait_until, lambda: free.high_watermark == 1, "the last part is durable")
            await others_first()
            assert setup.gateway.buffer.used >= 5_000
        finally:
            stuck.let_go()
        await setup.router.close()
        await setup.gateway.writer.close()
        assert setup.gateway.buffer.used == 0

    run(tmp_path, scenario)


def spread(value: bytes, count: int) -> SentRecords:
    """`count` records, each to the next partition."""
    return SentRecords(Rows([value] * count, 0), range(count))
