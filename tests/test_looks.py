"""What a request costs the store that asks which topics there are, before it goes by a topic's name."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from api.client_topics import newest
from api.gateway import Gateway
from api.peer import _find
from api.server import open_gateway
from lakelog.settings import Settings
from log_tables.cluster import Cluster
from log_tables.errors import TopicDeleted, UnknownTopic
from log_tables.testing import Call, FaultyStore

Look = Callable[[Gateway], Awaitable[object]]


async def of_a_group(here: Gateway) -> None:
    await here.shards.look()


async def of_a_topic(here: Gateway) -> None:
    with suppress(UnknownTopic):
        await newest(here, here.cluster.topic("t"))


async def of_a_peer(here: Gateway) -> None:
    with suppress(TopicDeleted):
        await _find(here, ("t", "of another incarnation", 0))


LOOKS: list[Look] = [of_a_group, of_a_topic, of_a_peer]


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_is_one_get_and_finds_what_another_process_has_changed(look: Look, tmp_path: Path) -> None:
    here = open_gateway(Settings(data=str(tmp_path / "root")), "http://test")
    here.cluster.create_topic("t")
    log = here.cluster.metadata_log.partition
    log.table.store = store = FaultyStore(here.cluster.store)
    asyncio.run(_awaited(look(here)))
    next_one = f"{log.directory}/_delta_log/{log.snapshot.version + 1:020}.json"
    assert store.calls == [Call("get", next_one)]
    Cluster.open(here.cluster.store).delete_topic("t")
    asyncio.run(_awaited(look(here)))
    assert here.cluster.known("t") is None


async def _awaited(looking: Awaitable[object]) -> None:
    await looking
