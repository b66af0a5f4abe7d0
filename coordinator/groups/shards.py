"""The shards that this process leads, each loaded on the first request for one of its groups."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from coordinator.brokers.leadership import Leadership
from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.group_topics import GroupTopics
from coordinator.groups.offsets_topic import OffsetsTopic
from coordinator.groups.shard import Shard
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.pending_tasks import shared_task
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import NotLeader

Answer = TypeVar("Answer")


class Shards:
    """By their partitions of `__consumer_offsets`. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        leadership: Leadership,
        offsets: OffsetsTopic,
        topics: GroupTopics,
        transactions: TransactionCoordinator,
        limits: ClassicLimits,
        clock: Clock,
    ) -> None:
        self._cluster, self._leadership, self.offsets, self._topics = cluster, leadership, offsets, topics
        self._transactions, self._limits, self._clock = transactions, limits, clock
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, asyncio.Task[Shard]] = {}
        self._on_load: list[Callable[[int], object]] = []

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards.values())

    def by_partition(self) -> dict[int, Shard]:
        """The shards of now, also those that another gateway has just taken over."""
        return {**self._shards}

    def get(self, partition: int) -> Shard | None:
        """The shard of a partition, if it was loaded."""
        return self._shards.get(partition)

    def on_load(self, call: Callable[[int], object]) -> None:
        """Have `call` hear of each partition whose shard is loaded."""
        self._on_load.append(call)

    async def shard(self, partition: int) -> Shard:
        """The shard of a partition of `__consumer_offsets`, loaded now if it has to be.

        Raises NotLeader when another gateway leads it, and what `Shard.read` raises.
        """
        shard = self._shards.get(partition)
        if shard is None or not shard.leading:
            loading = self._loading.get(partition)
            if loading is None:
                loading = self._loading[partition] = shared_task(self._load(partition))
                loading.add_done_callback(lambda _: self._loading.pop(partition, None))
            shard = await asyncio.shield(loading)
        return shard

    async def coordinator_of(self, partition: int) -> BrokerRecord | None:
        """The gateway that leads a partition of `__consumer_offsets`, or is the one to begin it; None is this
        one.
        """
        topic = await self.offsets.topic()
        if await self._leadership.should_lead(topic, partition):
            return None
        return await self._leadership.find_leader(topic, partition)

    async def at_coordinator(
        self,
        partition: int,
        here: Callable[[], Awaitable[Answer]],
        there: Callable[[BrokerRecord], Awaitable[Answer]],
    ) -> Answer:
        """The result of `here`, or of `there` at the gateway that leads a partition of `__consumer_offsets`.
        If that one says that it leads no more, it is read who does: nothing else tells this gateway.
        """
        broker = await self.coordinator_of(partition)
        if broker is not None:
            try:
                return await there(broker)
            except NotLeader:
                await self._leadership.refresh_leader(await self.offsets.topic(), partition)
            broker = await self.coordinator_of(partition)
        return await (here() if broker is None else there(broker))

    async def with_shard(self, group_id: str, attempt: Callable[[Shard], Awaitable[Answer]]) -> Answer:
        """The result of `attempt` with the shard of the group `group_id`; tried again when its term had
        ended.
        """
        _, partition = await self.offsets.partition_for(group_id)
        try:
            return await attempt(await self.shard(partition))
        except NotLeader:
            return await attempt(await self.shard(partition))

    def drop(self, partition: int, shard: Shard) -> None:
        """Forget a shard that another gateway has taken over; what waits there ends."""
        if self._shards.get(partition) is shard:
            del self._shards[partition]
            shard.end()

    def wake(self) -> None:
        """Wake every poll that waits, so that it checks whether it still should. Requests to classic groups
        that are held end.
        """
        for shard in self._shards.values():
            shard.wake()
            shard.release()

    async def refresh_topics(self) -> None:
        """Refresh the topics, and apply them to the groups.

        A request by a topic's name means the topic that has the name now. Without a refresh this process
        might know the one before.
        """
        await self._topics.refresh()
        self.follow_topics()

    def follow_topics(self) -> None:
        """Apply created and deleted topics, and changed ACLs, to the groups."""
        if self._topics.look():
            for shard in self._shards.values():
                with suppress(NotLeader):
                    self._topics.tell(shard)
                    shard.follow_on()

    async def _load(self, partition: int) -> Shard:
        accumulator = await self._leadership.become_leader(await self.offsets.topic(), partition)
        shard = Shard(self._cluster, accumulator, self._clock, self._limits, partition)
        # The groups may know topics that this process does not.
        await asyncio.to_thread(self._cluster.refresh)
        await asyncio.to_thread(shard.read)
        self.follow_topics()
        self._topics.tell(shard)
        before, self._shards[partition] = self._shards.get(partition), shard
        self._transactions.recover(shard)
        for call in self._on_load:
            call(partition)
        if before is not None:
            before.end()
        return shard


async def follow_on(shard: Shard) -> None:
    """Apply the topics to all groups of `shard`; the event loop serves others in between."""
    with suppress(NotLeader):
        more = shard.follow_on()
        while more:
            await asyncio.sleep(0)
            more = shard.follow_on()
