"""ingest/writer.py: what waits for the budget of commits, what is refused, and what stands outside of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ingest.buffer import Buffer
from ingest.settings import Settings
from ingest.writer import Acks, Appended, Writer
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import BufferFull
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.budgets import overdraw

INTERNAL = "__lakelog_internal"


def entry(producer: ProducerStamp | None = None) -> AppendRequest:
    return AppendRequest(input_batch([Record(b"x")], 0), producer)


OF_TRANSACTION = entry(ProducerStamp(KEPT_PRODUCER_ID_MIN, 0, 0, kept=True))


def run(scenario: Callable[[Cluster, Writer], Awaitable[None]]) -> None:
    """Run `scenario` with a writer whose commits have used up the budget, on a clock that stands still."""

    async def main() -> None:
        clock = ManualClock()
        cluster = Cluster.open(open_store("memory://"), clock, "http://here")
        create_topic(cluster, "t", partitions=2)
        create_topic(cluster, INTERNAL, internal=True)
        writer = Writer(cluster, Settings(linger_ms=0, commits_cores_max=1e-9), clock)
        await writer.start()
        assert writer.budget is not None
        overdraw(writer.budget)
        await scenario(cluster, writer)
        await writer.close()

    asyncio.run(main())


def append(writer: Writer, topic: Topic, request: AppendRequest) -> "asyncio.Task[list[object]]":
    async def appended() -> list[object]:
        with Buffer(1 << 20).room(topic.name) as room:
            return [*await writer.append(topic, [(0, request)], Acks.ALL, room)]

    return asyncio.create_task(appended())


def test_partitions_are_claimed_without_the_budget() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await writer.accumulator_for(topic, 0)
        assert writer.leads(topic, 0)

    run(scenario)


def test_internal_topics_and_transactions_are_committed_without_the_budget() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        for name, request in ((INTERNAL, entry()), ("t", OF_TRANSACTION)):
            topic = cluster.topic(name)
            await writer.accumulator_for(topic, 0)
            assert await append(writer, topic, request) == [Appended(0, 0, 1)]

    run(scenario)


def test_a_hand_over_commits_what_waits_for_the_budget() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await writer.accumulator_for(topic, 0)
        waiting = append(writer, topic, entry())
        assert writer.budget is not None
        while not writer.budget.waiting:
            await asyncio.wait([waiting], timeout=0)
        await writer.release(topic, 0)
        assert await waiting == [Appended(0, 0, 1)]

    run(scenario)


def test_a_stop_in_order_commits_what_waits_for_the_budget() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await writer.accumulator_for(topic, 0)
        waiting = append(writer, topic, entry())
        await asyncio.wait([waiting], timeout=0)
        await writer.close()
        assert await waiting == [Appended(0, 0, 1)]

    run(scenario)


def test_requests_that_would_need_more_commits_are_refused_before_anything_is_appended() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await writer.accumulator_for(topic, 0)
        with pytest.raises(BufferFull, match=r"commits take more than 2e-09 cores") as raised:
            writer.check_budget(topic, [(1, entry()), (0, entry())])
        assert raised.value.details == {"retry_after_s": 1}

    run(scenario)


def test_what_stands_outside_of_the_budget_is_not_refused() -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic, internal = cluster.topic("t"), cluster.topic(INTERNAL)
        for each in (topic, internal):
            await writer.accumulator_for(each, 0)
        writer.check_budget(topic, [(0, OF_TRANSACTION)])
        writer.check_budget(internal, [(0, entry())])
        writer.check_budget(topic, [(1, entry())])  # another gateway leads it, or nobody

    run(scenario)


def test_it_ends_with_the_load(clock: ManualClock) -> None:
    async def main() -> None:
        cluster = Cluster.open(open_store("memory://"), clock, "http://here")
        create_topic(cluster, "t")
        writer, topic = Writer(cluster, Settings(), clock), cluster.topic("t")
        await writer.start()
        await writer.accumulator_for(topic, 0)
        assert writer.budget is not None
        writer.check_budget(topic, [(0, entry())])
        for _ in range(1_000):
            writer.budget.spend(0.0, 0.001, 0)
        with pytest.raises(BufferFull):
            writer.check_budget(topic, [(0, entry())])
        clock.advance(1_500)
        writer.check_budget(topic, [(0, entry())])
        await writer.close()

    asyncio.run(main())
