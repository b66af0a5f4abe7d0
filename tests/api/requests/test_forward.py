"""A leader whose store fails is asked once, and another gateway passes on what it says."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from coordinator.brokers.leadership import preferred_leaders
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.topic import Topic
from log_tables.error_codes import RETRIABLE
from log_tables.store.store import Store
from log_tables.testing import WRITES, Fault, FaultyStore, refused
from tests.kit.served import Served, served
from tests.kit.support import WAIT_S

FAILURES = 100

NAMES = 16
"""Of so many names one is led by either gateway."""


class Two:
    """Two gateways. The first leads a topic and coordinates a group, and keeps both; its store is `store`."""

    def __init__(self, leader: Served, other: Served, store: FaultyStore) -> None:
        self.leader, self.other, self.store = leader, other, store
        self.topic = self.group = ""

    async def begin(self) -> None:
        cluster, shards = self.leader.gateway.cluster, self.leader.gateway.shard_manager
        topics = [create_topic(cluster, f"t{number}", 1) for number in range(NAMES)]
        self.topic = next(topic.name for topic in topics if self._stays(topic, 0))
        groups = [f"g{number}" for number in range(NAMES)]
        places = [(name, *await shards.partition_for(name)) for name in groups]
        self.group = next(name for name, topic, partition in places if self._stays(topic, partition))
        for act in (self.commit, self.produce):
            for at in (self.leader, self.other):
                assert (await act(at)).is_success

    def _stays(self, topic: Topic, partition: int) -> bool:
        """Whether the first gateway is also the preferred leader of the partition while both are alive."""
        own = self.leader.gateway.brokers.id
        brokers = tuple(sorted((own, self.other.gateway.brokers.id)))
        return preferred_leaders(topic.topic_id, topic.partition_count, brokers)[partition] == own

    async def commit(self, at: Served) -> httpx.Response:
        body = {"offsets": [{"topic": self.topic, "partition": 0, "offset": 0}]}
        return await at.client.put(f"/consumers/{self.group}/offsets", json=body)

    async def produce(self, at: Served) -> httpx.Response:
        return await at.produce(self.topic, {"value": 1}, partition=0)

    async def check(self, act: Callable[[Served], Awaitable[httpx.Response]], path: str) -> None:
        """The leader, whose store takes nothing at `path` now, is asked once by the other gateway."""
        asked = await self.asked()
        self.store.faults = [Fault(number, refused, WRITES, path) for number in range(1, FAILURES)]
        answer = await asyncio.wait_for(act(self.other), WAIT_S)
        self.store.faults = []
        assert answer.status_code == 503, answer.text
        assert answer.json()["error_code"] == RETRIABLE
        assert "the store refused" in answer.json()["message"]
        assert await self.asked() == asked + 1

    async def asked(self) -> float:
        """How often the other gateway has asked the leader, whose writes do not tell: its groups have some of
        their own.
        """
        lines = (await self.other.client.get("/metrics")).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("lakelog_forwarded_total"))


def test_a_failing_store_of_the_leader_is_told_from_a_gateway_that_does_not_lead(tmp_path: Path) -> None:
    stores: list[FaultyStore] = []

    def faulty(store: Store) -> Store:
        stores.append(FaultyStore(store))
        return stores[0]

    async def run() -> None:
        halved: dict[str, Any] = {"offsets_topic_num_partitions": 8}  # one might be the other gateway's
        async with served(tmp_path, wrap=faulty, **halved) as leader, served(tmp_path, **halved) as other:
            two = Two(leader, other, stores[0])
            await two.begin()
            await two.check(two.commit, "topics/__consumer_offsets/")
            await two.check(two.produce, f"topics/{two.topic}/partition=0/")  # beside it is the fold

    asyncio.run(run())
