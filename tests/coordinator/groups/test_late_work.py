"""Late work of groups: it is too much for a step, so a thread does it while others are served."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from threading import Event as ThreadEvent

import pytest

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.events import JoinGroup
from coordinator.groups.events import ConsumerHeartbeat, HeartbeatAnswer, Join, TopicState
from coordinator.groups.late_work import computing
from coordinator.groups.shard import Shard
from coordinator.groups.topic_filter import TopicFilter
from ingest.settings import Settings
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import KafkaClient, MemberConfig
from log_tables.errors import GroupMaxSizeReached
from log_tables.limits import TARGET_AT_ONCE
from log_tables.store.store import open_store
from tests.kit.consumer_bytes import subscription
from tests.kit.support import wait_until

ANN = RequestContext(Principal("User:ann"), "10.0.0.1")
LARGE = {"t": TopicState("id-t", TARGET_AT_ONCE)}


def run(root: Path, scenario: Callable[[Gateway], Awaitable[None]], **settings: object) -> None:
    async def running() -> None:
        clock, store = SystemClock(), open_store(root)
        cluster = Cluster.open(store, clock, "http://nowhere")
        asked = Settings(data=store.url, linger_ms=0, advertised_url="http://nowhere", **settings)  # type: ignore[arg-type]
        gateway = gateway_of(cluster, asked.model_copy(update={"peer_url": "http://nowhere"}), clock)
        await gateway.writer.start()
        create_topic(cluster, "t", 1)
        await scenario(gateway)

    asyncio.run(running())


async def beat(gateway: Gateway, group: str, member: str, **said: object) -> HeartbeatAnswer:
    event = ConsumerHeartbeat(
        member_id=member,
        epoch=0,
        client=KafkaClient(member, "10.0.0.1"),
        rebalance_timeout_ms=60_000,
        topics=frozenset({"t"}),
        owned=frozenset(),
        context=ANN,
    )
    return await gateway.classic.consumer_heartbeat(group, replace(event, **said))  # type: ignore[arg-type]


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


async def shard_of(gateway: Gateway, group: str) -> Shard:
    return await gateway.shard_manager.shard((await gateway.shard_manager.partition_for(group))[1])


def test_members_of_a_large_group_that_join_together_are_given_partitions_together(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        await beat(gateway, "g", "first")
        shard = await shard_of(gateway, "g")
        goes_on = ThreadEvent()
        computing.submit(goes_on.wait, 60)
        shard.follow(LARGE)
        await asyncio.gather(*(beat(gateway, "g", f"m{number}") for number in range(100)))
        assert {*map(len, shard.group("g").target.values())} == {0, 1}, "nothing is computed yet"
        goes_on.set()
        await until(lambda: shard.group("g").due_ms is None, "the target is computed")
        shares = shard.group("g").target.values()
        assert ({*map(len, shares)}, sum(map(len, shares))) == ({19, 20}, TARGET_AT_ONCE)

    run(tmp_path, scenario)


def test_expressions_are_looked_at_while_others_are_served(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        asked, goes_on = ThreadEvent(), ThreadEvent()

        def reads(_context: RequestContext, name: str) -> bool:
            if name == "new":
                asked.set()
                assert goes_on.wait(60)
            return True

        for number in range(100):
            await beat(gateway, "g", f"m{number}", topics=None, pattern=f"[a-z]{{1,{number + 1}}}")
        shard = await shard_of(gateway, "g")
        shard.follow({"t": TopicState("id-t", 1), "new": TopicState("id-n", 5)}, TopicFilter(reads))
        assert shard.group("g").topics.keys() == {"t", "new"}
        await until(asked.is_set, "a thread looks")
        assert shard.group("g").subscribed_topics == frozenset({"t"}), "as before"
        await beat(gateway, "other", "a")
        goes_on.set()
        await until(lambda: sum(map(len, shard.group("g").target.values())) == 6, "all know what they follow")
        assert len(shard.group("g").matches) == 100

    run(tmp_path, scenario)


def test_one_thread_looks_at_expressions_however_often_topics_come(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        asked, goes_on = ThreadEvent(), ThreadEvent()
        within: list[str] = []
        at_once: list[int] = []

        def reads(_context: RequestContext, name: str) -> bool:
            within.append(name)
            at_once.append(len(within))
            asked.set()
            assert goes_on.wait(60)
            within.remove(name)
            return True

        await beat(gateway, "g", "a", topics=None, pattern="[a-z]+")
        shard, topics = await shard_of(gateway, "g"), dict(LARGE)
        for name in ("u", "v", "w"):
            topics |= {name: TopicState(f"id-{name}", 1)}
            shard.follow({**topics}, TopicFilter(reads))
            shard.group("g")
            await until(asked.is_set, "a thread looks")
            await beat(gateway, "other", "a")
        goes_on.set()
        await until(lambda: shard.group("g").subscribed_topics == topics.keys(), "it follows all")
        assert {*at_once} == {1}

    run(tmp_path, scenario)


def test_a_shard_that_has_ended_computes_nothing_any_more(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        await beat(gateway, "g", "a")
        shard = await shard_of(gateway, "g")
        shard.follow(LARGE)
        shard.end()
        assert shard.group("g").due_ms is not None
        await beat(gateway, "other", "a")
        await asyncio.wrap_future(computing.submit(int))
        assert shard.group("g").due_ms is not None

    run(tmp_path, scenario, group_consumer_assignment_interval_ms=0)


def test_members_of_every_kind_fill_a_group(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        classic = JoinGroup(
            new_member_id="c",
            instance_id="i",
            protocol_type="consumer",
            protocols=(("range", subscription(["t"], [])),),
            session_timeout_ms=60_000,
        )
        await gateway.classic.join("g", classic)
        with pytest.raises(GroupMaxSizeReached, match="has 1 members, as many as group_max_size"):
            await beat(gateway, "g", "a")
        with pytest.raises(GroupMaxSizeReached):
            await gateway.coordinator.apply_event("g", Join("a", MemberConfig()))
        assert (await gateway.classic.group("g")).size == 1

    run(tmp_path, scenario, group_max_size=1, group_initial_rebalance_delay_ms=0)
