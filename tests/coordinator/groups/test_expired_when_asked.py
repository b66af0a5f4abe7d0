"""A member whose session has expired is removed as soon as its group is asked about, before any tick."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.events import CommitOffsets, JoinGroup
from coordinator.groups.events import OffsetAndMetadata
from ingest.settings import Settings
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from log_tables.topic_partition import TopicPartition

AT = TopicPartition("t", 0)
SESSION_MS = 6_000
STATIC = JoinGroup(
    new_member_id="i-1",
    instance_id="i",
    protocol_type="consumer",
    protocols=(("range", b""),),
    session_timeout_ms=SESSION_MS,
    rebalance_timeout_ms=SESSION_MS,
)


async def described(gateway: Gateway) -> None:
    assert (await gateway.classic.group("g")).classic.state is ClassicState.EMPTY


async def listed(gateway: Gateway) -> None:
    (group,) = await gateway.shard_manager.groups_here()
    assert group.state is ClassicState.EMPTY


async def deleted(gateway: Gateway) -> None:
    await gateway.classic.delete("g")


async def reset(gateway: Gateway) -> None:
    event = CommitOffsets(offsets={AT: OffsetAndMetadata(1)}, at_ms=1)
    assert await gateway.classic.commit("g", event) == {}


async def forgotten(gateway: Gateway) -> None:
    assert await gateway.classic.delete_offsets("g", [AT]) == {}


async def asked(root: Path, ask: Callable[[Gateway], Awaitable[None]]) -> None:
    """Nothing here looks for what is due: duties are not started."""
    clock, store = ManualClock(), open_store(root)
    cluster = Cluster.open(store, clock, "http://nowhere")
    settings = Settings(
        data=store.url, linger_ms=0, group_initial_rebalance_delay_ms=0, advertised_url="http://nowhere"
    )
    gateway = gateway_of(cluster, settings.model_copy(update={"peer_url": "http://nowhere"}), clock)
    await gateway.writer.start()
    create_topic(cluster, "t", 1)
    await gateway.classic.join("g", STATIC)
    clock.advance(SESSION_MS - 1)
    assert (await gateway.classic.group("g")).classic.members
    clock.advance(1)
    await ask(gateway)


def test_every_way_to_ask_about_a_group_finds_who_is_still_there(tmp_path: Path) -> None:
    for ask in (described, listed, deleted, reset, forgotten):
        asyncio.run(asked(tmp_path / ask.__name__, ask))
