"""The shards of this process: loaded on the first request, looked after, handed over.

A group belongs to a partition of `__consumer_offsets`, as in Kafka; its leader coordinates the group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from coordinator.access.access import Access
from coordinator.access.authorizer import Authorizer
from coordinator.access.principal import RequestContext
from coordinator.brokers.leadership import Leadership
from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.events import TopicsChanged, TopicState
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from coordinator.groups.topic_filter import TopicFilter, check_pattern, matched, public_names
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.buffer import RETRY_AFTER_S
from ingest.pending_tasks import PendingTasks, shared_task
from ingest.periodic_task import FailureLog, PeriodicTask
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import COMPACT
from log_tables.cluster.group_log import check_group_name, replay
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    GroupMaxSizeReached,
    LakelogError,
    NotLeader,
    QuotaReached,
    TopicExists,
    UnknownGroup,
)
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import LOOKS_AT_ONCE
from log_tables.partition.reader import PartitionReader

TICK_S = 0.25
"""How often session timeouts, and created and deleted topics, are looked for."""

IDLE_S = 5.0
"""How often a shard without members looks who leads it: each look is a request to the store."""

LOOKS_PER_S = 16
"""Looks of all shards with members together: of more than four each looks less often, down to IDLE_S."""

HEARTBEATS_PER_S = 200
"""Heartbeats of all Kafka clients together whose partitions a gateway assigns, where there are very many."""

EXPIRE_S = 60.0
"""How often groups that were without members for too long are looked for."""

ADOPT_S = 5.0
"""How often pending transactions are looked for that a dead gateway has left, in groups without requests."""

ADOPT_AGAIN_S = 60.0
"""How often they are looked for where there were none and no gateway has come or gone since."""

Answer = TypeVar("Answer")


class ShardManager:
    """The shards of one process, and the groups of all processes to read. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        leadership: Leadership,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        access: Access,
        settings: Settings,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        self._cluster, self._leadership, self._settings, self._clock = cluster, leadership, settings, clock
        self._sessions, self._transactions, self._access = consumers, transactions, access
        self._limits = ClassicLimits(
            settings.group_initial_rebalance_delay_ms,
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
            settings.group_max_size,
        )
        leadership.before_hand_over(self._before_hand_over)
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, asyncio.Task[Shard]] = {}
        self._replays: dict[int, tuple[tuple[int, int, TopicFilter | None], asyncio.Task[list[Group]]]] = {}
        self._topics: Mapping[str, TopicState] = {}
        self._topics_version = -1
        self._authorizer: Authorizer | None = None
        self._readable: TopicFilter | None = None
        self._nothing_pending: dict[int, tuple[object, float]] = {}
        self._making = asyncio.Lock()
        self._expiring: dict[int, float] = {}
        self._failures = failures
        self._ticks: set[int] = set()
        self._tasks, self._looking = PendingTasks(), asyncio.Semaphore(LOOKS_AT_ONCE)
        self._ticking = PeriodicTask("groups", TICK_S, self._tick_all, failures)
        self._adopting = PeriodicTask("adoption", ADOPT_S, self._take_over_pending, failures)

    async def start(self) -> None:
        """Begin to look after session timeouts, and for pending transactions that were left."""
        self._ticking.start()
        self._adopting.start()

    async def close(self) -> None:
        """Note the positions of members, and stop."""
        for partition in [*self._shards]:
            with suppress(LakelogError):
                await self._before_hand_over(await self._topic(), partition)
        await self._transactions.close()
        await self._ticking.close()
        await self._adopting.close()
        await self._tasks.cancel()

    def wake(self) -> None:
        """Wake every poll that waits, so that it checks whether it still should. Requests to classic groups
        that are held end.
        """
        for shard in self._shards.values():
            shard.wake()
            shard.release()

    async def with_shard(self, group_id: str, attempt: Callable[[Shard], Awaitable[Answer]]) -> Answer:
        """The result of `attempt` with the shard of the group `group_id`; tried again when its term had
        ended.
        """
        _, partition = await self.partition_for(group_id)
        try:
            return await attempt(await self.shard(partition))
        except NotLeader:
            return await attempt(await self.shard(partition))

    async def partition_for(self, group_id: str) -> tuple[Topic, int]:
        """The partition of `__consumer_offsets` whose leader coordinates the group `group_id`.

        Raises InvalidConsumer for a name that no group can have.
        """
        check_group_name(group_id)
        topic = await self._topic()
        return topic, partition_for_key(group_id.encode(), topic.partition_count, MURMUR3)

    @property
    def topics_version(self) -> int:
        """It grows when the groups hear of created and deleted topics."""
        return self._topics_version

    async def refresh_topics(self) -> None:
        """Refresh the topics, and apply them to the groups.

        A request by a topic's name means the topic that has the name now. Without a refresh this process
        might know the one before.
        """
        await self._sessions.topics.refresh()
        self.follow_topics()

    async def match(self, pattern: str) -> None:
        """Look which topics `pattern` matches, in a thread: the steps of groups then find it done. Raises
        InvalidSubscription.
        """

        def match(topics: Mapping[str, TopicState]) -> None:
            check_pattern(pattern)
            matched(pattern, public_names(topics))

        await asyncio.to_thread(match, self._topics)

    async def has_groups(self) -> bool:
        """Whether there was ever a group on this root."""
        if self._cluster.cached_topic(CONSUMER_OFFSETS) is None:
            await asyncio.to_thread(self._cluster.refresh)
        return self._cluster.cached_topic(CONSUMER_OFFSETS) is not None

    async def group(self, group_id: str) -> Group:
        """The group `group_id`, as it is durable. Raises UnknownGroup."""
        check_group_name(group_id)
        await self.refresh_topics()
        found = await self._stored_group(group_id) if await self.has_groups() else None
        if found is None or not found.exists:
            raise UnknownGroup(
                f"there is no consumer group {group_id!r}; list them with `lakelog group list`"
            )
        return found

    async def stored_group(self, group_id: str) -> Group:
        """The group `group_id`, as it is durable; an empty one if there is none."""
        return await self._stored_group(group_id) or Group(group_id, topics=self._topics)

    async def _stored_group(self, group_id: str) -> Group | None:
        found = await self._groups_of((await self.partition_for(group_id))[1])
        return next((group for group in found if group.id == group_id), None)

    async def groups(self) -> list[Group]:
        """Every group, by its id."""
        return [group for group in await self.named_groups() if group.exists]

    async def named_groups(self) -> list[Group]:
        """Every group, and those that do not exist and have settings, by id."""
        await self.refresh_topics()
        if not await self.has_groups():
            return []
        indexes = range((await self._topic()).partition_count)
        found = [group for partition in indexes for group in await self._groups_of(partition)]
        return sorted(found, key=lambda group: group.id)

    async def groups_here(self) -> list[Group]:
        """The groups that this gateway coordinates, or will on their next request: each is in the list of one
        gateway.
        """
        await self.refresh_topics()
        if not await self.has_groups():
            return []
        partitions = self._leadership.led_here(await self._topic(), 0)
        return [group for index in partitions for group in await self._groups_of(index) if group.exists]

    def coordinated_groups(self) -> list[Group]:
        """The groups that this process coordinates now."""
        leading = [shard for shard in self._shards.values() if shard.leading]
        return [group for shard in leading for group in shard.groups() if group.exists]

    def check_quota(
        self, shard: Shard, group_id: str, context: RequestContext | None, joins: bool = False
    ) -> None:
        """Raise QuotaReached when a new group `group_id`, or a member that `joins` it, is one too many, for
        all clients or for that of `context`.
        """
        group, bounds, shards = shard.group(group_id), self._settings, self._shards.values()
        name = "" if context is None else context.principal.name
        if not group.exists:
            if not group.configs:  # else it counts already
                groups = sum(each.size for each in shards)
                _check_below("consumer groups", groups, "groups_max", bounds.groups_max)
            most = bounds.principal_groups_max
            if name and most:
                groups = sum(each.groups_of(name) for each in shards)
                _check_below(f"consumer groups of {name[:200]}", groups, "principal_groups_max", most)
        if not joins:
            return
        members, most = len(group.members), bounds.group_max_size
        _check_below(f"members of {group_id!r}", members, "group_max_size", most, GroupMaxSizeReached)
        members, most = sum(each.members for each in shards), bounds.consumer_instances_max
        _check_below("consumer instances", members, "consumer_instances_max", most)
        most = bounds.principal_consumer_instances_max
        if name and most:
            members, setting = (
                sum(each.members_of(name) for each in shards),
                "principal_consumer_instances_max",
            )
            _check_below(f"consumer instances of {name[:200]}", members, setting, most)

    def session_timeout_ms(self, group: Group) -> int:
        """How long a Kafka client of a group may be silent."""
        return int(group.configs.get(SESSION_TIMEOUT_MS, self._settings.group_consumer_session_timeout_ms))

    def heartbeat_interval_ms(self, group: Group) -> int:
        """How often a Kafka client of a group is to say that it is alive: less often where there are very
        many.
        """
        default = self._settings.group_consumer_heartbeat_interval_ms
        setting = int(group.configs.get(HEARTBEAT_INTERVAL_MS, default))
        members = sum(each.members for each in self._shards.values())
        slowest = max(setting, self.session_timeout_ms(group) // 4)
        return min(max(setting, members * 1_000 // HEARTBEATS_PER_S), slowest)

    def make_way(self) -> None:
        """Have an older member id that nobody has joined with give way to a new one, if there are as many of
        them as consumer instances may be. They are no members: a client that only asks for ids must not keep
        others out.
        """
        if sum(each.pending for each in self._shards.values()) >= self._settings.consumer_instances_max:
            with suppress(NotLeader):
                max(self._shards.values(), key=lambda each: each.pending).forget_pending()

    def follow_topics(self) -> None:
        """Apply created and deleted topics, and changed ACLs, to the groups, which never know internal
        topics.
        """
        version, authorizer = self._cluster.version, self._access.authorizer
        if version == self._topics_version and authorizer is self._authorizer:
            return
        if version != self._topics_version:
            self._topics = {
                topic.name: TopicState(topic.topic_id, topic.partition_count)
                for topic in self._cluster.topics()
            }
        if authorizer is not self._authorizer and not self._access.is_open:
            self._readable = TopicFilter(partial(_reads, authorizer))
        self._topics_version, self._authorizer = version, authorizer
        for shard in self._shards.values():
            with suppress(NotLeader):
                shard.follow(self._topics, self._readable)
                shard.follow_on()

    async def _follow_on(self, shard: Shard) -> None:
        """Apply the topics to all groups of `shard`; the event loop serves others in between."""
        with suppress(NotLeader):
            more = shard.follow_on()
            while more:
                await asyncio.sleep(0)
                more = shard.follow_on()

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

    async def _load(self, partition: int) -> Shard:
        accumulator = await self._leadership.become_leader(await self._topic(), partition)
        shard = Shard(self._cluster, accumulator, self._clock, self._limits)
        await asyncio.to_thread(
            self._cluster.refresh
        )  # the groups may know topics that this process does not
        await asyncio.to_thread(shard.read)
        self.follow_topics()
        shard.follow(self._topics, self._readable)
        self._replays.pop(partition, None)
        self._nothing_pending.pop(partition, None)
        before, self._shards[partition] = self._shards.get(partition), shard
        self._transactions.recover(shard)
        if before is not None:
            before.wake()
            before.release()
        return shard

    async def _groups_of(self, partition: int) -> list[Group]:
        """The groups of a partition of `__consumer_offsets`; no leadership is claimed for it."""
        self.follow_topics()
        shard = self._shards.get(partition)
        if shard is not None:
            await asyncio.to_thread(shard.refresh)
            await self._follow_on(shard)
            with suppress(NotLeader):
                shard.tick()
            await shard.wait_all_durable()
            if shard.leading:
                return shard.groups()
        log = (await self._topic()).partition(partition)
        await asyncio.to_thread(log.refresh)
        # Callers share one replay until something changes: it reads all of the log.
        versions = (log.high_watermark, self._topics_version, self._readable)
        before = self._replays.get(partition)
        if before is None or before[0] != versions or _has_failed(before[1]):
            event = TopicsChanged(self._topics, self._readable, self._clock.now_ms())
            reading = asyncio.to_thread(_read_groups, log, event, self._now_ms())
            self._replays[partition] = versions, shared_task(reading)
        return await asyncio.shield(self._replays[partition][1])

    async def _topic(self) -> Topic:
        """`__consumer_offsets`, created at its first use."""
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
            create_topic(self._cluster, CONSUMER_OFFSETS, partitions, configs, internal=True)
        return self._cluster.topic(CONSUMER_OFFSETS)

    async def _before_hand_over(self, topic: Topic, partition: int) -> None:
        """Before another gateway takes over, note the positions of members, so that no record comes twice."""
        shard = self._shards.get(partition) if topic.name == CONSUMER_OFFSETS else None
        if shard is None or not shard.leading:
            return
        self._sessions.note_positions(shard)
        self._transactions.mark_applied(shard)
        await shard.wait_all_durable()
        shard.wake()
        shard.release()

    async def _tick_all(self) -> None:
        """Begin a tick of each shard whose last one is over: one that waits for the store holds up none."""
        self.follow_topics()
        for partition, shard in [*self._shards.items()]:
            if partition not in self._ticks:
                self._ticks.add(partition)
                self._tasks.start(self._tick_alone(partition, shard))

    async def _tick_alone(self, partition: int, shard: Shard) -> None:
        try:
            with self._failures.catch("groups", f"{CONSUMER_OFFSETS}-{partition}"):
                await self._tick(partition, shard)
        finally:
            self._ticks.discard(partition)

    async def _tick(self, partition: int, shard: Shard) -> None:
        if self._clock.monotonic() >= shard.looked_s + self._look_pause_s(shard):
            async with self._looking:
                await asyncio.to_thread(shard.refresh)
        if shard.leading:
            if shard.has_silent_member:
                await self.refresh_topics()  # what came before a member is given up is the group's
            await self._follow_on(shard)
            with suppress(NotLeader):
                shard.tick()
                self._expire(partition, shard)
        elif self._shards.get(partition) is shard:
            del self._shards[partition]
            shard.wake()
            shard.release()
        self._sessions.tidy(shard)

    def _look_pause_s(self, shard: Shard) -> float:
        """Seconds from one look of a shard who leads it to the next.

        Without members nothing happens before a request comes, whose commit finds out who leads. With them a
        poll that waits is to hear of it, if the gateway that takes over could not ask this one.
        """
        if not shard.members:
            return IDLE_S
        in_use = sum(each.members > 0 for each in self._shards.values())
        return min(IDLE_S, max(TICK_S, in_use / LOOKS_PER_S))

    def _expire(self, partition: int, shard: Shard) -> None:
        now = self._clock.monotonic()
        if now >= self._expiring.get(partition, 0):
            more = shard.expire(self._settings.offsets_retention_minutes * 60_000)
            self._expiring[partition] = now + (0 if more else EXPIRE_S)

    async def _take_over_pending(self) -> None:
        """Take over groups that nobody coordinates and that have pending transactions.

        Their partition may be led here already: after a hand-over nobody has asked for them yet.
        """
        if not await self.has_groups():
            return
        topic = await self._topic()
        for partition in range(topic.partition_count):
            shard = self._shards.get(partition)
            if shard is not None and shard.leading:
                continue
            if not await self._leadership.should_lead(topic, partition):
                continue
            # Only a gateway that leads the partition leaves something: it has come, and then gone.
            epoch = topic.is_open(partition) and topic.partition(partition).snapshot.leader_epoch
            known = self._leadership.gateways, epoch
            before, looked_s = self._nothing_pending.get(partition, (None, 0.0))
            if known == before and self._clock.monotonic() < looked_s + ADOPT_AGAIN_S:
                continue
            if any(group.transactions.pending for group in await self._groups_of(partition)):
                await self.shard(partition)
            else:
                self._nothing_pending[partition] = known, self._clock.monotonic()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000


def _reads(authorizer: Authorizer, context: RequestContext, topic: str) -> bool:
    return authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic)


def _read_groups(log: PartitionReader, changed: TopicsChanged, now_ms: float) -> list[Group]:
    """The groups of a partition of `__consumer_offsets` with these topics. Blocking."""
    found = restore(replay(log), now_ms).values()
    return [step(group, changed, now_ms)[0] for group in found]


def _check_below(
    what: str, count: int, setting: str, most: int, error: type[QuotaReached] = QuotaReached
) -> None:
    """Raise QuotaReached, or that `error` of its kind, when `count` is the most that `setting` allows."""
    if count >= most:
        raise error(
            f"there are {count} {what} here, as many as {setting} allows; delete some, or repeat the request "
            "later",
            retry_after_s=RETRY_AFTER_S,
        )


def _has_failed(task: asyncio.Task[list[Group]]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
