"""The requests to the store of a refresh of the topics, before a request uses a topic's name."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.client_topics import refreshed_topic
from api.gateway import Gateway
from api.peer import _find
from api.process.server import open_gateway
from coordinator.groups.events import Join, Subscribe
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from ingest.pending_tasks import SharedRefresh
from ingest.settings import Settings
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import StoreUnavailable, TopicDeleted, UnknownTopic
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.testing import Call, FaultyStore, HoldingStore
from log_tables.topic_partition import TopicIdPartition
from tests.ingest.test_wide import others_first
from tests.kit.groups import any_topic
from tests.kit.support import wait_until

Look = Callable[[Gateway], Awaitable[object]]


async def of_a_group(here: Gateway) -> None:
    await here.shard_manager.refresh_topics()


async def of_a_topic(here: Gateway) -> None:
    with suppress(UnknownTopic):
        await refreshed_topic(here, here.cluster.topic("t"))


async def of_a_peer(here: Gateway) -> None:
    with suppress(TopicDeleted):
        await _find(here, TopicIdPartition("t", "of another incarnation", 0))


LOOKS: list[Look] = [of_a_group, of_a_topic, of_a_peer]


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_is_one_get_and_finds_what_another_process_has_changed(look: Look, tmp_path: Path) -> None:
    here = open_gateway(Settings(data=str(tmp_path / "root")), "http://test")
    create_topic(here.cluster, "t")
    log = here.cluster.metadata_log.partition
    log.table.store = store = FaultyStore(here.cluster.store)
    asyncio.run(_awaited(look(here)))
    next_one = f"{log.directory}/_delta_log/{log.snapshot.version + 1:020}.json"
    assert store.calls == [Call("get", next_one)]
    delete_topic(Cluster.open(here.cluster.store), "t")
    asyncio.run(_awaited(look(here)))
    assert here.cluster.cached_topic("t") is None


async def _awaited(looking: Awaitable[object]) -> None:
    await looking


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_shared_look_begins_after_who_asks_for_it_and_few_do_for_many(pauses: list[int]) -> None:
    """`pauses`: how often others go on before the next one asks."""
    begun = 0

    def act() -> int:
        nonlocal begun
        begun += 1
        return begun

    async def ask(shared: SharedRefresh) -> None:
        before = begun
        await shared.refresh()
        assert begun > before

    async def scenario() -> None:
        shared, asking = SharedRefresh(act), []
        for pause in pauses:
            asking.append(asyncio.create_task(ask(shared)))
            for _ in range(pause):
                await others_first()
        await asyncio.gather(*asking)

    asyncio.run(scenario())
    assert begun <= len(pauses)
    assert any(pauses) or begun == 1


def test_a_look_that_fails_is_heard_by_all_who_share_it_and_the_next_may_succeed() -> None:
    failures = [StoreUnavailable("the store is away; repeat the request")]

    def act() -> None:
        if failures:
            raise failures.pop()

    async def scenario() -> None:
        shared = SharedRefresh(act)
        heard = await asyncio.gather(shared.refresh(), shared.refresh(), return_exceptions=True)
        assert [type(each) for each in heard] == [StoreUnavailable] * 2
        await shared.refresh()

    asyncio.run(scenario())


MANY = 10


async def of_all(here: Gateway, consumers: list[ConsumerSession]) -> None:
    await asyncio.gather(*(here.shard_manager.refresh_topics() for _ in range(MANY)))


async def polled(here: Gateway, consumers: list[ConsumerSession]) -> None:
    """Poll by each consumer: each gets records of a partition that this gateway leads."""
    asked = (consumer.poll(None, MIB, here.clock.monotonic(), no, any_topic) for consumer in consumers)
    assert [len(each.reads) for each in await asyncio.gather(*asked)] == [1] * MANY


async def no() -> bool:
    return False


async def joined(here: Gateway, group: str) -> ConsumerSession:
    """A member that has looked at its partition."""

    async def give(consumer: ConsumerSession, _: PollResult) -> ConsumerSession:
        return consumer

    await here.coordinator.apply_event(group, Join("m", MemberConfig(auto_offset_reset="earliest")))
    await here.coordinator.apply_event(group, Subscribe("m", frozenset({"t"})))
    return await here.coordinator.poll(group, "m", None, MIB, 0, no, any_topic, give)


@pytest.mark.parametrize("look", [of_all, polled])
def test_many_who_look_at_once_leave_the_threads_to_others(
    look: Callable[[Gateway, list[ConsumerSession]], Awaitable[None]], tmp_path: Path
) -> None:
    async def scenario() -> None:
        here = open_gateway(Settings(data=str(tmp_path / "root"), linger_ms=0), "http://test")
        await here.writer.start()
        accumulator = await here.writer.accumulator_for(create_topic(here.cluster, "t"), 0)
        await accumulator.add(AppendRequest(input_batch([Record(b"1")], here.clock.now_us())))[1]
        consumers = [await joined(here, f"g{number}") for number in range(MANY)]
        log = here.cluster.metadata_log.partition
        log.table.store = store = HoldingStore(here.cluster.store, log.directory, {"get"})
        held = partial(wait_until, lambda: store.held > 0, "somebody looks")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        store.hold()
        with ThreadPoolExecutor(1) as beside:
            looking = asyncio.create_task(_awaited(look(here, consumers)))
            await asyncio.get_running_loop().run_in_executor(beside, held)
            try:
                others = [asyncio.to_thread(here.clock.now_ms) for _ in range(3)]
                await asyncio.wait_for(asyncio.gather(*others), 20)
            finally:
                store.let_go()
            await looking
        await here.writer.close()

    asyncio.run(scenario())
