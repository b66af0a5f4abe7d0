"""Which groups this process coordinates, and the way to each of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from coordinator.assignment import TopicPartition
from coordinator.consumer import Consumer, Polled
from coordinator.events import (
    Delete,
    Event,
    Heartbeat,
    Leave,
    Place,
    Reset,
    TopicsChanged,
    TopicState,
)
from coordinator.group import Group, Member
from coordinator.group_records import restore
from coordinator.leadership import Leadership
from coordinator.shard import Shard
from coordinator.step import step
from coordinator.transactions import Asked, Transacted, Transactions
from lakelog.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster import Cluster
from log_tables.config import COMPACT
from log_tables.errors import (
    InvalidOffset,
    LakelogError,
    NotLeader,
    OffsetOutOfRange,
    TopicExists,
    UnknownGroup,
    UnknownMember,
)
from log_tables.group_log import check_group_name, replay
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition import Partition, partition_for_key
from log_tables.topic import Topic

TICK_S = 0.25
"""How often sessions are looked at, and topics that came or went."""

ADOPT_S = 5.0
"""How often it is looked whether a gateway that is gone has left transactions that nobody asks for."""

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class Coordinator:
    """The consumer groups of a cluster. Used on the event loop.

    A group belongs to a partition of `__consumer_offsets`, as in Kafka; who leads that coordinates the group.
    """

    def __init__(
        self,
        cluster: Cluster,
        leadership: Leadership,
        transactions: Transactions,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._cluster, self._leadership, self._settings, self._clock = cluster, leadership, settings, clock
        self._transactions = transactions
        leadership.before_leaving(self._leave)
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, asyncio.Task[Shard]] = {}
        self._read: dict[int, tuple[tuple[int, int], asyncio.Task[list[Group]]]] = {}
        self._consumers: dict[tuple[str, str], Consumer] = {}
        self._topics: Mapping[str, TopicState] = {}
        self._topics_version = -1
        self._beside: list[asyncio.Task[None]] = []
        self._making = asyncio.Lock()
        self._closed = False

    async def start(self) -> None:
        """Begin to look after sessions, and for transactions that were left to be applied."""
        self._beside = [asyncio.create_task(work) for work in (self._tick_always(), self._adopt_always())]

    async def close(self) -> None:
        """Answer polls that wait, note where members go on, and stop."""
        self.wake()
        for index in [*self._shards]:
            with suppress(LakelogError):
                await self._leave(await self._topic(), index)
        await self._transactions.close()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def wake(self) -> None:
        """Let every poll that waits look whether it still should."""
        self._closed = True
        for shard in self._shards.values():
            shard.wake()

    async def happen(self, name: str, event: Event) -> Group:
        """Let `event` happen to the group `name`; durable on return. Returns the group as it is then.

        Raises what `step` raises; InvalidConsumer for a name that no group can have, NotLeader,
        StoreUnavailable, OutcomeUnknown, Damaged.
        """

        async def attempt(shard: Shard) -> Group:
            if isinstance(event, Heartbeat):
                # Nothing is appended that could meet a newer claim: look whether there is one.
                await asyncio.to_thread(shard.refresh)
            group = shard.apply(name, event)
            await shard.settled(name)
            return group

        self.follow_topics()
        return await self._leading(name, attempt)

    async def member(self, name: str, member: str) -> Member:
        """A member, as is known here. Raises UnknownMember."""

        async def attempt(shard: Shard) -> Member:
            return shard.group(name).member(member)

        return await self._leading(name, attempt)

    async def poll(
        self,
        name: str,
        member: str,
        generation: int | None,
        max_bytes: int,
        timeout_s: float,
        ended: Callable[[], Awaitable[bool]],
    ) -> tuple[Consumer, Polled]:
        """`Consumer.poll` of a member, and the consumer whose `advance` is to be told what became of it."""
        deadline = self._clock.monotonic() + timeout_s

        async def over() -> bool:
            return self._closed or await ended()

        async def attempt(shard: Shard) -> tuple[Consumer, Polled]:
            consumer = self._consumer(shard, name, member)
            return consumer, await consumer.poll(generation, max_bytes, deadline, over)

        return await self._leading(name, attempt)

    async def commit(self, name: str, member: str, offsets: Mapping[TopicPartition, Place] | None) -> None:
        """Commit a member's offsets, None for all that it was given. Raises OffsetOutOfRange, NotAssigned."""

        async def attempt(shard: Shard) -> None:
            consumer = self._consumer(shard, name, member)
            await consumer.commit(offsets)

        if offsets:
            await self._check_ends(offsets)
        await self._leading(name, attempt)

    async def transacted(self, name: str, key: str, digest: str | None) -> Transacted | None:
        """The answer to a transaction that is repeated, None to a new one; without a `digest` whatever its
        content was. Raises RetryKeyReused.
        """

        async def attempt(shard: Shard) -> Transacted | None:
            return await self._transactions.known(shard, name, key, digest)

        return await self._leading(name, attempt)

    async def transact(self, name: str, member: str | None, asked: Asked) -> Transacted:
        """Commit offsets and records as one, of a member or (None) of nobody in the group; and apply it.

        Raises NotAssigned, GroupNotEmpty, StaleGeneration, RetryKeyReused, OffsetOutOfRange, UnknownMember,
        UnknownTopic, UnknownPartition, InvalidRequest, NotLeader, StoreUnavailable: then nothing of it is
        there, nor will be. OutcomeUnknown: all of it or nothing; a repeat with the same key makes sure.
        """

        async def attempt(shard: Shard) -> Transacted:
            def committing(group: Group) -> None:
                for other in group.members if member is None else [member]:
                    consumer = self._consumers.get((name, other))
                    if consumer is not None and member is None:
                        consumer.forget(asked.offsets)
                    elif consumer is not None:
                        consumer.note_committed(asked.offsets)

            return await self._transactions.transact(shard, name, member, asked, committing)

        await self._check_ends(asked.offsets)
        self.follow_topics()
        return await self._leading(name, attempt)

    async def seek(self, name: str, member: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set where a member goes on. Raises NotAssigned, InvalidOffset."""

        async def attempt(shard: Shard) -> None:
            self._consumer(shard, name, member).seek(positions)
            await shard.settled(name)

        for at, offset in positions.items():
            if offset < 0:
                raise InvalidOffset(f"offset {offset} of {at} is negative; name one from 0")
        await self._leading(name, attempt)

    async def leave(self, name: str, member: str) -> None:
        """Delete a member; what auto-commit owes it is committed. Raises UnknownMember."""

        async def attempt(shard: Shard) -> None:
            self._consumer(shard, name, member).leave()
            shard.apply(name, Leave(member))
            await shard.settled(name)
            self._consumers.pop((name, member), None)

        await self._leading(name, attempt)

    async def reset(self, name: str, offsets: Mapping[TopicPartition, Place], force: bool) -> Group:
        """Set a group's offsets from outside; with `force` its members go on from there, too.

        Raises GroupNotEmpty, OffsetOutOfRange, UnknownTopic, UnknownPartition.
        """

        async def attempt(shard: Shard) -> Group:
            group = shard.apply(name, Reset(offsets, self._clock.now_ms(), force))
            # At once: what a member was given before must not be committed over it.
            for member in group.members:
                consumer = self._consumers.get((name, member))
                if consumer is not None:
                    consumer.forget(offsets)
            await shard.settled(name)
            return group

        await self._check_ends(offsets)
        self.follow_topics()
        return await self._leading(name, attempt)

    async def delete(self, name: str, force: bool) -> None:
        """Forget a group; with `force` also its members, and the records of transactions whose staged file is
        lost. Raises UnknownGroup, GroupNotEmpty; Conflict for such a file; Retriable.
        """

        async def attempt(shard: Shard) -> None:
            await self._transactions.finish(shard, name, force)
            await shard.settled(name)
            shard.apply(name, Delete(force))
            self._forget(name)
            await shard.settled(name)

        await self.group(name)
        await self._leading(name, attempt)

    async def group(self, name: str) -> Group:
        """The group `name`, as is durable. Raises UnknownGroup."""
        check_group_name(name)
        index = await self._index(name) if await self.has_groups() else None
        found = [] if index is None else await self._seen(index)
        group = next((group for group in found if group.id == name), None)
        if group is None:
            raise UnknownGroup(f"there is no consumer group {name!r}; see which there are")
        return group

    async def groups(self) -> list[Group]:
        """Every group that there is, by name."""
        if not await self.has_groups():
            return []
        indexes = range((await self._topic()).partition_count)
        found = [group for index in indexes for group in await self._seen(index)]
        return sorted(found, key=lambda group: group.id)

    async def _seen(self, index: int) -> list[Group]:
        """The groups of a partition of `__consumer_offsets`, as they are; no leadership is claimed for it."""
        self.follow_topics()
        shard = self._shards.get(index)
        if shard is not None:
            await asyncio.to_thread(shard.refresh)
            await shard.all_settled()
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

    async def home(self, name: str) -> tuple[Topic, int]:
        """The partition of `__consumer_offsets` whose leader coordinates the group `name`.

        Raises InvalidConsumer for a name that no group can have.
        """
        check_group_name(name)
        topic = await self._topic()
        return topic, partition_for_key(name.encode(), topic.partition_count)

    def known_groups(self) -> list[Group]:
        """The groups that this process coordinates now."""
        return [group for shard in [*self._shards.values()] if shard.leading for group in shard.groups()]

    def follow_topics(self) -> None:
        """Tell the groups of topics that came or went since the last time."""
        version = self._cluster.version
        if version == self._topics_version:
            return
        self._topics = {
            topic.name: TopicState(topic.topic_id, topic.partition_count)
            for topic in self._cluster.topics(include_internal=True)
        }
        self._topics_version = version
        for shard in self._shards.values():
            with suppress(NotLeader):
                shard.follow(self._topics)

    async def _leading(self, name: str, attempt: Callable[[Shard], Awaitable[Answer]]) -> Answer:
        """What `attempt` gives for the shard of the group `name`, tried again when the term had ended."""
        check_group_name(name)
        index = await self._index(name)
        try:
            return await attempt(await self._shard(index))
        except NotLeader:
            return await attempt(await self._shard(index))

    async def _index(self, name: str) -> int:
        return (await self.home(name))[1]

    async def _leave(self, topic: Topic, index: int) -> None:
        """Before another gateway takes over: note where members go on, so that nothing comes twice."""
        shard = self._shards.get(index) if topic.name == CONSUMER_OFFSETS else None
        if shard is None or not shard.leading:
            return
        for (name, member), consumer in [*self._consumers.items()]:
            if consumer.shard is shard and member in shard.group(name).members:
                consumer.note_places()
        self._transactions.leave(shard)
        await shard.all_settled()
        shard.wake()

    def _forget(self, name: str) -> None:
        """The places of the group's members are void."""
        for key in [key for key in self._consumers if key[0] == name]:
            del self._consumers[key]

    def _consumer(self, shard: Shard, name: str, member: str) -> Consumer:
        """The places of a member. Raises UnknownMember."""
        try:
            shard.group(name).member(member)
        except UnknownMember:
            self._consumers.pop((name, member), None)
            raise
        consumer = self._consumers.get((name, member))
        if consumer is None or consumer.shard is not shard:
            consumer = Consumer(self._cluster, shard, self._clock, name, member)
            self._consumers[name, member] = consumer
        return consumer

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
        accumulator = await self._leadership.lead(await self._topic(), index)
        shard = Shard(accumulator, self._clock)
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

    async def _topic(self) -> Topic:
        """`__consumer_offsets`, made at its first use."""
        found = self._cluster.known(CONSUMER_OFFSETS)
        if found is None:
            async with self._making:
                found = await asyncio.to_thread(self._make_topic)
        return found

    def _make_topic(self) -> Topic:
        self._cluster.refresh()
        found = self._cluster.known(CONSUMER_OFFSETS)
        if found is not None:
            return found
        with suppress(TopicExists):
            partitions = self._settings.offsets_topic_num_partitions
            configs = {"cleanup.policy": COMPACT}
            self._cluster.create_topic(CONSUMER_OFFSETS, partitions, configs, internal=True)
        return self._cluster.topic(CONSUMER_OFFSETS)

    async def has_groups(self) -> bool:
        """Whether any group was ever made here."""
        if self._cluster.known(CONSUMER_OFFSETS) is None:
            await asyncio.to_thread(self._cluster.refresh)
        return self._cluster.known(CONSUMER_OFFSETS) is not None

    async def _check_ends(self, offsets: Mapping[TopicPartition, Place]) -> None:
        """Raise OffsetOutOfRange for an offset that no record has yet, InvalidOffset for a negative one."""
        for at, place in offsets.items():
            if place.offset < 0:
                raise InvalidOffset(f"offset {place.offset} of {at} is negative; name one from 0")
        beyond = await asyncio.to_thread(self._beyond, offsets)
        if beyond is not None:
            at, low, high = beyond
            raise OffsetOutOfRange(
                f"offset {offsets[at].offset} of {at} is beyond the end of the log, {high}; commit up "
                "to there",
                log_start_offset=low,
                high_watermark=high,
            )

    def _beyond(self, offsets: Mapping[TopicPartition, Place]) -> tuple[TopicPartition, int, int] | None:
        for at, place in offsets.items():
            partition = self._cluster.topic(at.topic).partition(at.partition)
            if place.offset > partition.high_watermark:
                partition.refresh(wait=True)
            if place.offset > partition.high_watermark:
                return at, partition.log_start, partition.high_watermark
        return None

    async def _tick_always(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.follow_topics()
            for index, shard in [*self._shards.items()]:
                try:
                    await self._tick(index, shard)
                except Exception:  # noqa: BLE001 -- one must not keep the others from being looked after
                    _log.exception("looking after the consumer groups of partition %d failed", index)

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
            mine = await self._leadership.may_lead(topic, index)
            if mine and any(group.transactions.pending for group in await self._seen(index)):
                await self._shard(index)

    async def _tick(self, index: int, shard: Shard) -> None:
        await asyncio.to_thread(shard.refresh)
        if shard.leading:
            with suppress(NotLeader):
                shard.tick()
        elif self._shards.get(index) is shard:
            del self._shards[index]
            shard.wake()
        for (name, member), consumer in [*self._consumers.items()]:
            if consumer.shard is shard and not (shard.leading and member in shard.group(name).members):
                del self._consumers[name, member]

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000


def _read_groups(partition: Partition, topics: Mapping[str, TopicState], now_ms: float) -> list[Group]:
    """What a partition of `__consumer_offsets` says of its groups, when these are the topics; blocking."""
    found = restore(replay(partition), now_ms).values()
    return [step(group, TopicsChanged(topics), now_ms)[0] for group in found]


def _has_failed(task: asyncio.Task[list[Group]]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
