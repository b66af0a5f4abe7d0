"""Looks at the cluster: shared, not too old, and what the tables themselves say."""

import asyncio
from pathlib import Path

from api.console.cluster_index import ClusterIndex, behind_of
from log_tables.sql.lag import lag
from tests.kit.served import served


def test_all_who_ask_at_once_get_one_look_and_a_change_has_another(tmp_path: Path) -> None:
    async def ask() -> None:
        async with served(tmp_path) as here:
            (await here.client.post("/topics", json={"topic_name": "a"})).raise_for_status()
            index = ClusterIndex(here.gateway)
            first, *others = await asyncio.gather(*(index.look() for _ in range(5)))
            assert all(each is first for each in others)
            assert await index.look() is first
            (await here.client.post("/topics", json={"topic_name": "b"})).raise_for_status()
            assert {*(await index.look()).topics} == {"a", "b"}
            (await here.client.delete("/topics/a")).raise_for_status()
            assert {*(await index.look()).topics} == {"b"}

    asyncio.run(ask())


def test_the_lag_is_that_of_the_table(tmp_path: Path) -> None:
    async def ask() -> None:
        async with served(tmp_path) as here:
            (await here.client.post("/topics", json={"topic_name": "t"})).raise_for_status()
            for count in (3, 1, 5):
                await here.produce("t", *({"value": n} for n in range(count)), partition=0)
            index = ClusterIndex(here.gateway)
            state = (await index.look()).topics["t"].partitions[0]
            partition = here.gateway.cluster.topic("t").partition(0)
            partition.refresh()
            assert (state.start, state.end) == (0, 9)
            for offset in range(11):
                assert behind_of(state, offset, 10**13) == lag(partition.snapshot, offset, 10**13)

    asyncio.run(ask())
