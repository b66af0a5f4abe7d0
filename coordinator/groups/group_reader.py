"""Groups to read, of all gateways: those of shards that are loaded here, and others from their logs."""

import asyncio
from contextlib import suppress

from coordinator.brokers.leadership import Leadership
from coordinator.groups.events import TopicsChanged
from coordinator.groups.group_topics import GroupTopics
from coordinator.groups.shards import Shards, follow_on
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from coordinator.groups.topic_filter import TopicFilter
from ingest.pending_tasks import shared_task
from log_tables.clock import Clock
from log_tables.cluster.group_log import check_group_name, replay
from log_tables.errors import NotLeader, UnknownGroup
from log_tables.partition.reader import PartitionReader


class GroupReader:
    """Groups as they are durable. No leadership is claimed to read one. Used on the event loop."""

    def __init__(self, shards: Shards, leadership: Leadership, topics: GroupTopics, clock: Clock) -> None:
        self._shards, self._leadership, self._topics, self._clock = shards, leadership, topics, clock
        self._replays: dict[int, tuple[tuple[int, int, TopicFilter | None], asyncio.Task[list[Group]]]] = {}
        shards.on_load(lambda partition: self._replays.pop(partition, None))

    async def group(self, group_id: str) -> Group:
        """The group `group_id`. Raises UnknownGroup."""
        check_group_name(group_id)
        await self._shards.refresh_topics()
        found = await self._stored(group_id) if await self._shards.offsets.exists() else None
        if found is None or not found.exists:
            raise UnknownGroup(
                f"there is no consumer group {group_id!r}; list them with `lakelog group list`"
            )
        return found

    async def stored_group(self, group_id: str) -> Group:
        """The group `group_id`; an empty one if there is none."""
        return await self._stored(group_id) or Group(group_id, topics=self._topics.known)

    async def groups(self) -> list[Group]:
        """Every group, by its id."""
        return [group for group in await self.named_groups() if group.exists]

    async def named_groups(self) -> list[Group]:
        """Every group, and those that do not exist and have settings, by id."""
        await self._shards.refresh_topics()
        if not await self._shards.offsets.exists():
            return []
        indexes = range((await self._shards.offsets.topic()).partition_count)
        found = [group for partition in indexes for group in await self.groups_of(partition)]
        return sorted((group for group in found if not group.is_hidden), key=lambda group: group.id)

    async def groups_here(self) -> list[Group]:
        """The groups that this gateway coordinates, or will on their next request: each is in the list of one
        gateway.
        """
        await self._shards.refresh_topics()
        if not await self._shards.offsets.exists():
            return []
        partitions = self._leadership.led_here(await self._shards.offsets.topic(), 0)
        found = [group for index in partitions for group in await self.groups_of(index)]
        return [group for group in found if group.exists and not group.is_hidden]

    def coordinated_groups(self) -> list[Group]:
        """The groups that this process coordinates now, without a look at the store."""
        found = [group for shard in self._shards if shard.leading for group in shard.groups()]
        return [group for group in found if group.exists and not group.is_hidden]

    async def groups_of(self, partition: int) -> list[Group]:
        """The groups of a partition of `__consumer_offsets`, and those that have settings."""
        self._shards.follow_topics()
        shard = self._shards.get(partition)
        if shard is not None:
            await asyncio.to_thread(shard.refresh)
            await follow_on(shard)
            with suppress(NotLeader):
                shard.tick()
            await shard.wait_all_durable()
            if shard.leading:
                return shard.groups()
        log = (await self._shards.offsets.topic()).partition(partition)
        await asyncio.to_thread(log.refresh)
        # Callers share one replay until something changes: it reads all of the log.
        versions = (log.high_watermark, *self._topics.state)
        before = self._replays.get(partition)
        if before is None or before[0] != versions or _has_failed(before[1]):
            event, now_ms = self._topics.changed(self._clock.now_ms()), self._clock.monotonic() * 1_000
            reading = asyncio.to_thread(_read_groups, log, event, now_ms)
            self._replays[partition] = versions, shared_task(reading)
        return await asyncio.shield(self._replays[partition][1])

    async def _stored(self, group_id: str) -> Group | None:
        found = await self.groups_of((await self._shards.offsets.partition_for(group_id))[1])
        return next((group for group in found if group.id == group_id), None)


def _read_groups(log: PartitionReader, changed: TopicsChanged, now_ms: float) -> list[Group]:
    """The groups of a partition of `__consumer_offsets` with these topics. Blocking."""
    found = restore(replay(log), now_ms).values()
    return [step(group, changed, now_ms)[0] for group in found]


def _has_failed(task: asyncio.Task[list[Group]]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
