"""The shards of this process: taken over when somebody asks, looked after, handed over.

A group belongs to a partition of `__consumer_offsets`, as in Kafka; who leads that coordinates the group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from coordinator.brokers.leadership import Leadership
from coordinator.groups.events import TopicsChanged, TopicState
from coordinator.groups.group import Group
from coordinator.groups.group_records import restore
from coordinator.groups.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.step import step
from coordinator.groups.transaction_coordinator import TransactionCoordinator
from ingest.buffer import RETRY_AFTER_S
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import COMPACT
from log_tables.cluster.group_log import check_group_name, replay
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, NotLeader, QuotaReached, TopicExists, UnknownGroup
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import Partition, partition_for_key

TICK_S = 0.25
"""How often sessions are looked at, and topics that came or went."""

EXPIRE_S = 60.0
"""How often groups are looked for that have been without members for too long."""

ADOPT_S = 5.0
"""How often it is looked whether a gateway that is gone has left transactions that nobody asks for."""

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class ShardManager:
    """Those of one process, and a look at the groups of all. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        leadership: Leadership,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._cluster, self._leadership, self._settings, self._clock = cluster, leadership, settings, clock
        self._consumers, self._transactions = consumers, transactions
        leadership.before_hand_over(self._leave)
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, asyncio.Task[Shard]] = {}
        self._read: dict[int, tuple[tuple[int, int], asyncio.Task[list[Group]]]] = {}
        self._topics: Mapping[str, TopicState] = {}
        self._topics_version = -1
        self._beside: list[asyncio.Task[None]] = []
        self._making = asyncio.Lock()
        self._expiring: dict[int, float] = {}

    async def start(self) -> None:
        """Begin to look after sessions, and for transactions that were left to be applied."""
        self._beside = [asyncio.create_task(work) for work in (self._tick_always(), self._adopt_always())]

    async def close(self) -> None:
        """Note where members go on, and stop."""
        for index in [*self._shards]:
            with suppress(LakelogError):
                await self._leave(await self._topic(), index)
        await self._transactions.close()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def wake(self) -> None:
        """Let every poll that waits look whether it still should."""
        for shard in self._shards.values():
            shard.wake()

    async def leading(self, name: str, attempt: Callable[[Shard], Awaitable[Answer]]) -> Answer:
        """What `attempt` gives for the shard of the group `name`, tried again when the term had ended."""
        _, index = await self.home(name)
        try:
            return await attempt(await self._shard(index))
        except NotLeader:
            return await attempt(await self._shard(index))

    async def home(self, name: str) -> tuple[Topic, int]:
        """The partition of `__consumer_offsets` whose leader coordinates the group `name`.

        Raises InvalidConsumer for a name that no group can have.
        """
        check_group_name(name)
        topic = await self._topic()
        return topic, partition_for_key(name.encode(), topic.partition_count)

    @property
    def topics_version(self) -> int:
        """It grows when the groups hear of topics that came or went."""
        return self._topics_version

    async def look(self) -> None:
        """Look which topics there are now, and tell the groups.

        Who asks for something of a topic by its name means the one that is there: without a look this process
        might know the one before.
        """
        await self._consumers.topics.look()
        self.follow_topics()

    async def has_groups(self) -> bool:
        """Whether any group was ever made here."""
        if self._cluster.cached_topic(CONSUMER_OFFSETS) is None:
            await asyncio.to_thread(self._cluster.refresh)
        return self._cluster.cached_topic(CONSUMER_OFFSETS) is not None

    async def group(self, name: str) -> Group:
        """The group `name`, as is durable. Raises UnknownGroup."""
        check_group_name(name)
        await self.look()
        found = await self._seen((await self.home(name))[1]) if await self.has_groups() else []
        group = next((group for group in found if group.id == name), None)
        if group is None:
            raise UnknownGroup(f"there is no consumer group {name!r}; see which there are")
        return group

    async def groups(self) -> list[Group]:
        """Every group that there is, by name."""
        await self.look()
        if not await self.has_groups():
            return []
        indexes = range((await self._topic()).partition_count)
        found = [group for index in indexes for group in await self._seen(index)]
        return sorted(found, key=lambda group: group.id)

    def known_groups(self) -> list[Group]:
        """The groups that this process coordinates now."""
        return [group for shard in [*self._shards.values()] if shard.leading for group in shard.groups()]

    def check_room(self, shard: Shard, name: str, joins: bool = False) -> None:
        """Raise QuotaReached when the group `name`, or a member that `joins` it, would be one too many."""
        group, bounds = shard.group(name), self._settings
        if not group.exists:
            groups = sum(shard.size for shard in self._shards.values())
            _check_quota("consumer groups", groups, "groups_max", bounds.groups_max)
        if joins:
            _check_quota(
                f"consumer instances of {name!r}", len(group.members), "group_max_size", bounds.group_max_size
            )
            members = sum(shard.members for shard in self._shards.values())
            most = bounds.consumer_instances_max
            _check_quota("consumer instances", members, "consumer_instances_max", most)

    def follow_topics(self) -> None:
        """Tell the groups of topics that came or went since the last time; internal ones they never know."""
        version = self._cluster.version
        if version == self._topics_version:
            return
        self._topics = {
            topic.name: TopicState(topic.topic_id, topic.partition_count) for topic in self._cluster.topics()
        }
        self._topics_version = version
        for shard in self._shards.values():
            with suppress(NotLeader):
                shard.follow(self._topics)
                shard.follow_on()

    async def _follow_on(self, shard: Shard) -> None:
        """Tell all groups of `shard` of the topics that there are; others are served meanwhile."""
        with suppress(NotLeader):
            more = shard.follow_on()
            while more:
                await asyncio.sleep(0)
                more = shard.follow_on()

    async def _shard(self, index: int) -> Shard:
        """The shard of a partition of `__consumer_offsets`, taken over now if it has to be."""
        shard = self._shards.get(index)
        if shard is None or not shard.leading:
            loading = self._loading.get(index)
            if loading is None:
                loading = self._loading[index] = asyncio.create_task(self._load(index))
                loading.add_done_callback(lambda _: self._loading.pop(index, None))
            shard = await asyncio.shield(loading)
        return shard

    async def _load(self, index: int) -> Shard:
        accumulator = await self._leadership.become_leader(await self._topic(), index)
        shard = Shard(self._cluster, accumulator, self._clock)
        await asyncio.to_thread(self._cluster.refresh)  # the groups may know of topics that we do not
        await asyncio.to_thread(shard.read)
        self.follow_topics()
        shard.follow(self._topics)
        self._read.pop(index, None)
        before, self._shards[index] = self._shards.get(index), shard
        self._transactions.recover(shard)
        if before is not None:
            before.wake()
        return shard

    async def _seen(self, index: int) -> list[Group]:
        """The groups of a partition of `__consumer_offsets`, as they are; no leadership is claimed for it."""
        self.follow_topics()
        shard = self._shards.get(index)
        if shard is not None:
            await asyncio.to_thread(shard.refresh)
            await self._follow_on(shard)
            await shard.wait_all_durable()
            if shard.leading:
                return shard.groups()
        partition = (await self._topic()).partition(index)
        await asyncio.to_thread(partition.refresh)
        # Whoever asks before something has changed shares one replay: that reads all of the log.
        known = (partition.high_watermark, self._topics_version)
        before = self._read.get(index)
        if before is None or before[0] != known or _has_failed(before[1]):
            reading = asyncio.to_thread(_read_groups, partition, self._topics, self._now_ms())
            self._read[index] = known, asyncio.create_task(reading)
        return await asyncio.shield(self._read[index][1])

    async def _topic(self) -> Topic:
        """`__consumer_offsets`, made at its first use."""
        found = self._cluster.cached_topic(CONSUMER_OFFSETS)
        if found is None:
            async with self._making:
                found = await asyncio.to_thread(self._make_topic)
        return found

    def _make_topic(self) -> Topic:
        self._cluster.refresh()
        found = self._cluster.cached_topic(CONSUMER_OFFSETS)
        if found is not None:
            return found
        with suppress(TopicExists):
            partitions = self._settings.offsets_topic_num_partitions
            configs = {"cleanup.policy": COMPACT}
            self._cluster.create_topic(CONSUMER_OFFSETS, partitions, configs, internal=True)
        return self._cluster.topic(CONSUMER_OFFSETS)

    async def _leave(self, topic: Topic, index: int) -> None:
        """Before another gateway takes over: note where members go on, so that nothing comes twice."""
        shard = self._shards.get(index) if topic.name == CONSUMER_OFFSETS else None
        if shard is None or not shard.leading:
            return
        self._consumers.note_places(shard)
        self._transactions.leave(shard)
        await shard.wait_all_durable()
        shard.wake()

    async def _tick_always(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.follow_topics()
            for index, shard in [*self._shards.items()]:
                try:
                    await self._tick(index, shard)
                except Exception:  # noqa: BLE001 -- one must not keep the others from being looked after
                    _log.exception("looking after the consumer groups of partition %d failed", index)

    async def _tick(self, index: int, shard: Shard) -> None:
        await asyncio.to_thread(shard.refresh)
        if shard.leading:
            await self._follow_on(shard)
            with suppress(NotLeader):
                shard.tick()
                self._expire(index, shard)
        elif self._shards.get(index) is shard:
            del self._shards[index]
            shard.wake()
        self._consumers.tidy(shard)

    def _expire(self, index: int, shard: Shard) -> None:
        now = self._clock.monotonic()
        if now >= self._expiring.get(index, 0):
            more = shard.expire(self._settings.offsets_retention_minutes * 60_000)
            self._expiring[index] = now + (0 if more else EXPIRE_S)

    async def _adopt_always(self) -> None:
        while True:
            try:
                await self._adopt()
            except Exception:  # noqa: BLE001 -- the next look may succeed
                _log.exception("looking for transactions that were left to be applied failed")
            await asyncio.sleep(ADOPT_S)

    async def _adopt(self) -> None:
        """Take over the groups that nobody coordinates and that have transactions to be applied.

        Their partition may be led here already: after a hand-over nobody has asked for them yet.
        """
        if not await self.has_groups():
            return
        topic = await self._topic()
        for index in range(topic.partition_count):
            shard = self._shards.get(index)
            if shard is not None and shard.leading:
                continue
            mine = await self._leadership.should_lead(topic, index)
            if mine and any(group.transactions.pending for group in await self._seen(index)):
                await self._shard(index)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000


def _read_groups(partition: Partition, topics: Mapping[str, TopicState], now_ms: float) -> list[Group]:
    """What a partition of `__consumer_offsets` says of its groups, when these are the topics; blocking."""
    found = restore(replay(partition), now_ms).values()
    return [step(group, TopicsChanged(topics), now_ms)[0] for group in found]


def _check_quota(what: str, count: int, setting: str, most: int) -> None:
    """Raise QuotaReached unless there may be one more than `count`."""
    if count >= most:
        raise QuotaReached(
            f"there are {count} {what} here, as many as {setting} allows; delete some, or repeat the request "
            "later",
            retry_after_s=RETRY_AFTER_S,
        )


def _has_failed(task: asyncio.Task[list[Group]]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
