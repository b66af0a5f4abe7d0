"""The shards of a gateway whose store is slow at one of them, or that nobody uses."""

import asyncio
from pathlib import Path

from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.store.store import Store
from log_tables.testing import FaultyStore, HoldingStore
from tests.kit.served import served
from tests.kit.support import wait_until

PARTITIONS = 4
LOOKS = 10
"""A shard in use looks that often in 2.5 s, one without members not once."""

NAMES = {
    partition_for_key(name.encode(), PARTITIONS, MURMUR3): name for name in map("group-{}".format, range(50))
}
HELD, BUSY, IDLE = NAMES[0], NAMES[1], NAMES[2]


def test_a_shard_waits_for_no_store_but_its_own(tmp_path: Path) -> None:
    """The members of a group that stopped are removed by the ticks of its shard, each of which looks first
    who leads it.
    """
    stores: list[tuple[HoldingStore, FaultyStore]] = []

    def wrap(inner: Store) -> Store:
        counted = FaultyStore(inner)
        stores.append((HoldingStore(counted, f"{CONSUMER_OFFSETS}/partition=0/", {"get"}), counted))
        return stores[-1][0]

    def looks(partition: int) -> int:
        at = f"{CONSUMER_OFFSETS}/partition={partition}/"
        return sum(call.operation == "get" and at in call.path for call in [*stores[-1][1].calls])

    async def scenario() -> None:
        async with served(tmp_path, wrap, offsets_topic_num_partitions=PARTITIONS) as here:
            kind = {"Content-Type": "application/vnd.kafka.v2+json"}
            for name in (HELD, BUSY, IDLE):
                path = f"/consumers/{name}"
                made = await here.client.post(path, json={"name": "m", "format": "json"}, headers=kind)
                assert made.is_success, made.text
            gone = await here.client.request("DELETE", f"/consumers/{IDLE}/instances/m", headers=kind)
            assert gone.is_success, gone.text
            held = stores[-1][0]
            held.hold()
            try:
                await asyncio.to_thread(wait_until, lambda: held.held > 0, "one shard waits for the store")
                busy, idle = looks(1), looks(2)
                await asyncio.to_thread(wait_until, lambda: looks(1) >= busy + LOOKS, "another goes on")
                assert looks(2) <= idle + 1
                assert held.held == 1
            finally:
                held.let_go()

    asyncio.run(scenario())
