"""The cost of groups that nobody uses: looks at the store, and at the groups themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from api.process.server import gateway_of, open_gateway
from coordinator.groups.events import Join, Leave
from coordinator.groups.shard_duties import ADOPT_AGAIN_S, LOOKS_PER_S
from coordinator.groups.shard_manager import ShardManager
from ingest.settings import Settings
from log_tables.clock import ManualClock, timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    GroupKey,
    GroupValue,
    MemberConfig,
    MemberKey,
    MemberValue,
    encode,
)
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest
from log_tables.record import input_batch
from log_tables.store.store import Store, open_store
from log_tables.testing import FaultyStore, HoldingStore
from tests.kit.served import served
from tests.kit.support import wait_until

SHARDS = 40
PATH = f"{CONSUMER_OFFSETS}/partition="
CONFIG = MemberConfig("json", "earliest", session_timeout_ms=1_800_000, max_poll_interval_ms=1_800_000)


def names() -> list[str]:
    """A group for each shard."""
    found = {
        partition_for_key(name.encode(), SHARDS, MURMUR3): name for name in map("group-{}".format, range(400))
    }
    return [found[shard] for shard in range(SHARDS)]


def write_groups(cluster: Cluster) -> None:
    """A group with a member in each shard; each member is subscribed to `t`."""
    create_topic(cluster, "t", 8)
    create_topic(cluster, CONSUMER_OFFSETS, SHARDS, internal=True)
    for shard, name in enumerate(names()):
        member = MemberValue(CONFIG, ["t"], topic_ids={"t": cluster.topic("t").topic_id})
        said = [encode(GroupKey(name), GroupValue(1)), encode(MemberKey(name, "reader"), member)]
        cluster.claim(cluster.topic(CONSUMER_OFFSETS), shard).append([AppendRequest(input_batch(said, 0))])


def looks(store: FaultyStore, path: str = PATH) -> int:
    return sum(call.operation == "get" and path in call.path for call in [*store.calls])


def test_shards_with_idle_members_share_their_looks(tmp_path: Path) -> None:
    write_groups(Cluster.open(open_store(str(tmp_path))))
    stores: list[FaultyStore] = []

    def wrap(inner: Store) -> Store:
        stores.append(FaultyStore(inner))
        return stores[-1]

    async def scenario() -> None:
        async with served(tmp_path, wrap, offsets_topic_num_partitions=SHARDS) as here:
            for shard in range(SHARDS):
                assert (await here.gateway.shard_manager.shard(shard)).members == 1
            before, begin = looks(stores[0]), timer()
            wanted = 3 * LOOKS_PER_S
            await asyncio.to_thread(wait_until, lambda: looks(stores[0]) >= before + wanted, "they look")
            assert timer() - begin > wanted / LOOKS_PER_S / 2

    asyncio.run(scenario())


def with_manager(
    tmp_path: Path, use: Callable[[ShardManager, FaultyStore, ManualClock], Awaitable[None]]
) -> None:
    """`use` the shards of a gateway on a clock of the test, which ticks by itself never."""
    clock = ManualClock()
    write_groups(Cluster.open(open_store(str(tmp_path)), clock))
    settings = open_gateway(Settings(data=str(tmp_path)), "http://test", clock=clock).settings
    store = FaultyStore(open_store(str(tmp_path)))
    here = gateway_of(Cluster.open(store, clock, "http://test"), settings, clock)

    async def scenario() -> None:
        await use(here.shard_manager, store, clock)

    asyncio.run(scenario())


def test_what_a_dead_gateway_left_is_looked_for_once_while_no_gateway_comes_or_goes(tmp_path: Path) -> None:
    async def use(shards: ShardManager, store: FaultyStore, clock: ManualClock) -> None:
        async def asked() -> int:
            before = looks(store)
            await shards.duties.take_over_pending()
            return looks(store) - before

        assert await asked() >= SHARDS
        await asked()  # the partitions were opened by the first
        assert await asked() == 0
        clock.pause(ADOPT_AGAIN_S)
        assert await asked() >= SHARDS

    with_manager(tmp_path, use)


def test_a_shard_counts_its_members_and_gives_up_a_silent_one_in_time(tmp_path: Path) -> None:
    async def use(shards: ShardManager, store: FaultyStore, clock: ManualClock) -> None:
        name = names()[3]
        shard = await shards.shard(3)
        assert shard.members == 1
        shard.apply(name, Join("second", MemberConfig(session_timeout_ms=10_000)))
        shard.apply("group-of-its-own", Join("first", CONFIG))
        assert shard.members == 3
        shard.apply("group-of-its-own", Leave("first"))
        assert (shard.members, shard.have_left) == (2, True)
        shard.tick()
        clock.advance(9_999)
        shard.tick()
        assert (shard.members, shard.has_silent_member) == (2, False)
        clock.advance(1)
        assert shard.has_silent_member
        shard.tick()
        assert (shard.members, [*shard.group(name).members]) == (1, ["reader"])
        await shard.wait_all_durable()

    with_manager(tmp_path, use)


def test_the_partitions_of_a_first_poll_are_opened_side_by_side(tmp_path: Path) -> None:
    write_groups(Cluster.open(open_store(str(tmp_path))))
    stores: list[HoldingStore] = []

    def wrap(inner: Store) -> Store:
        stores.append(HoldingStore(inner, "topics/t/partition=", {"get", "list"}))
        return stores[-1]

    async def scenario() -> None:
        async with served(tmp_path, wrap, offsets_topic_num_partitions=SHARDS) as here:
            store, path = stores[0], f"/consumers/{names()[0]}/instances/reader/records?timeout=0"
            store.hold()
            kind = {"Accept": "application/vnd.kafka.json.v2+json"}
            poll = asyncio.create_task(here.client.get(path, headers=kind))
            try:
                await asyncio.to_thread(
                    wait_until, lambda: store.held > 1, "two partitions are opened at once"
                )
            finally:
                store.let_go()
            assert (await poll).is_success

    asyncio.run(scenario())
