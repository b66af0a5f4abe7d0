"""The requests to a group: its members' polls and commits, transactions, changes from outside."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from coordinator.access.principal import RequestContext
from coordinator.groups.events import (
    Assign,
    Delete,
    Event,
    Heartbeat,
    Join,
    Leave,
    LogEnd,
    OffsetAndMetadata,
    Reset,
    Start,
    Subscribe,
    Undo,
)
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.shard_manager import ShardManager
from coordinator.groups.state.acts import is_act, known_acts
from coordinator.groups.state.group import Group
from coordinator.groups.state.member import Member
from coordinator.groups.state.undo import UndoPlan, undo_plan
from coordinator.groups.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionRequest,
    TransactionResult,
)
from coordinator.groups.wide_change import WideChange
from ingest.loop_share import Wide, batched
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Act
from log_tables.cluster.topic import Topic, check_public
from log_tables.errors import Damaged, InvalidOffset, NotFound, OffsetOutOfRange, TopicDeleted, UnknownTopic
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.partition.reader import PartitionReader
from log_tables.topic_partition import TopicPartition

Answer = TypeVar("Answer")

ENDS_AT_ONCE = 8
"""Threads that read log ends for new subscriptions: a quarter of those that look at the store."""

LOOKED_AT_BY_ONE = 16
"""Log ends that one of them reads before it serves others that wait."""


class GroupCoordinator:
    """The consumer groups of a cluster, for the routes of the API. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        shards: ShardManager,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        wide_change: WideChange,
        clock: Clock,
        undo_ms: int,
    ) -> None:
        """Acts of operators can be undone for `undo_ms` milliseconds."""
        self._cluster, self._whole, self._clock, self._undo_ms = cluster, wide_change, clock, undo_ms
        self._shard_manager, self._sessions, self._transactions = shards, consumers, transactions
        self._looks = Wide(ENDS_AT_ONCE)
        self._closed = False

    def wake(self) -> None:
        """Have every waiting poll answer, and later ones answer at once."""
        self._closed = True
        self._shard_manager.wake()

    async def apply_event(self, group_id: str, event: Event) -> Group:
        """Apply `event` to the group `group_id`. Returns the group as it is then, durable.

        Raises what `step` raises; InvalidConsumer for a name that no group can have, NotLeader,
        StoreUnavailable, OutcomeUnknown, Damaged.
        """

        async def attempt(shard: Shard) -> Group:
            if isinstance(event, Heartbeat):
                # Nothing is appended that would meet a newer claim: check whether there is one.
                await asyncio.to_thread(shard.refresh)
            if isinstance(event, Join) and event.member_id not in shard.group(group_id).members:
                self._shard_manager.check_quota(shard, group_id, event.context, joins=True)
            group = shard.apply(group_id, event)
            if isinstance(event, Subscribe | Assign):
                group = await self._started(shard, group_id, event.member_id)
            await shard.wait_durable(group_id)
            return group

        await self._shard_manager.refresh_topics()
        if isinstance(event, Subscribe) and event.pattern:
            await self._shard_manager.match(event.pattern)
        return await self._shard_manager.with_shard(group_id, attempt)

    async def member(self, group_id: str, member_id: str) -> Member:
        """A member, as it is known here. Raises UnknownMember."""

        async def attempt(shard: Shard) -> Member:
            return shard.group(group_id).member(member_id)

        return await self._shard_manager.with_shard(group_id, attempt)

    async def poll(
        self,
        group_id: str,
        member_id: str,
        generation: int | None,
        max_bytes: int,
        timeout_s: float,
        ended: Callable[[], Awaitable[bool]],
        readable: Callable[[str], bool],
        give: Callable[[ConsumerSession, PollResult], Awaitable[Answer]],
    ) -> Answer:
        """The result of `give` with the `ConsumerSession.poll` of a member, of `readable` topics; `give`
        calls its `advance`. When a topic of the result turns out to be deleted, it polls again.

        Raises what `ConsumerSession.poll` and `give` raise.
        """
        deadline = self._clock.monotonic() + timeout_s

        async def over() -> bool:
            return self._closed or await ended()

        async def attempt(shard: Shard) -> Answer:
            consumer = self._sessions.session_for(shard, group_id, member_id)
            await self._started(shard, group_id, member_id)
            while True:
                version = self._shard_manager.topics_version
                try:
                    polled = await consumer.poll(generation, max_bytes, deadline, over, readable)
                    return await give(consumer, polled)
                except (UnknownTopic, Damaged) as error:
                    # Damage may be the rest of a deleted topic whose segments are swept; `give` may find that
                    # this process knows a topic no more.
                    await self._shard_manager.refresh_topics()
                    if self._shard_manager.topics_version == version:
                        if not isinstance(error, TopicDeleted):
                            raise
                        owned = shard.group(group_id).member(member_id).owned
                        await asyncio.to_thread(self._go_on, {at.topic for at in owned}, error)

        return await self._shard_manager.with_shard(group_id, attempt)

    def _go_on(self, names: Iterable[str], error: TopicDeleted) -> None:
        """`Cluster.go_on` for the topics of these names; blocking."""
        for name in names:
            topic = self._cluster.cached_topic(name)
            if topic is not None:
                self._cluster.go_on(topic, error)

    async def commit(
        self, group_id: str, member_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> None:
        """Commit a member's offsets, None for all that it was given.

        An offset may be beyond the end of a log, as in Kafka: a poll goes by auto.offset.reset there. Raises
        UnknownTopic, UnknownPartition, NotAssigned.
        """

        async def attempt(shard: Shard) -> None:
            consumer = self._sessions.session_for(shard, group_id, member_id)
            named = consumer.given if offsets is None else offsets
            group = shard.group(group_id)
            group.check_owned(group.member(member_id), named)

            def commit(some: Sequence[TopicPartition], checked: bool) -> Group:
                return consumer.commit({at: named[at] for at in some}, checked)

            await self._whole.set(shard, group_id, named, commit)

        if offsets:
            await self._shard_manager.refresh_topics()
            await self._open(offsets)
        await self._shard_manager.with_shard(group_id, attempt)

    async def find_repeat(self, group_id: str, key: str, digest: str | None) -> TransactionResult | None:
        """The result of a repeated transaction, None for a new one; without a `digest` its content is not
        compared. Raises RetryKeyReused.
        """

        async def attempt(shard: Shard) -> TransactionResult | None:
            return await self._transactions.find_repeat(shard, group_id, key, digest)

        return await self._shard_manager.with_shard(group_id, attempt)

    async def transact(
        self, group_id: str, member_id: str | None, asked: TransactionRequest
    ) -> TransactionResult:
        """Commit offsets and records as one, of a member or (None) of a client outside the group; apply it.

        Raises NotAssigned, GroupNotEmpty, StaleGeneration, RetryKeyReused, OffsetOutOfRange, UnknownMember,
        UnknownTopic, UnknownPartition, InvalidRequest, NotLeader, StoreUnavailable: then nothing of it is
        written, now or later. OutcomeUnknown: all of it or nothing; a repeat with the same key makes sure.
        """

        async def attempt(shard: Shard) -> TransactionResult:
            self._shard_manager.check_quota(shard, group_id, asked.context)

            def committing(group: Group) -> None:
                for consumer in self._sessions.existing(
                    group_id, group.members if member_id is None else [member_id]
                ):
                    if member_id is None:
                        consumer.forget(asked.offsets)
                    else:
                        consumer.note_committed(asked.offsets)

            return await self._transactions.transact(shard, group_id, member_id, asked, committing)

        await self._shard_manager.refresh_topics()
        await self._check_ends(asked.offsets)
        return await self._shard_manager.with_shard(group_id, attempt)

    async def seek(self, group_id: str, member_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set a member's positions. Raises NotAssigned, InvalidOffset."""

        async def attempt(shard: Shard) -> None:
            consumer = self._sessions.session_for(shard, group_id, member_id)
            group = shard.group(group_id)
            group.check_owned(group.member(member_id), positions)

            def seek(some: Sequence[TopicPartition], checked: bool) -> Group:
                return consumer.seek({at: positions[at] for at in some}, checked)

            await self._whole.set(shard, group_id, positions, seek, over_commits=True)

        for at, offset in positions.items():
            if offset < 0:
                raise InvalidOffset(f"offset {offset} of {at} is negative; name one from 0")
        await self._shard_manager.refresh_topics()
        await self._shard_manager.with_shard(group_id, attempt)

    async def leave(self, group_id: str, member_id: str) -> None:
        """Delete a member, after its last auto-commit. Raises UnknownMember."""

        async def attempt(shard: Shard) -> None:
            self._sessions.session_for(shard, group_id, member_id).leave()
            shard.apply(group_id, Leave(member_id))
            await shard.wait_durable(group_id)
            self._sessions.forget(group_id, member_id)

        await self._shard_manager.refresh_topics()  # what came before it left is the group's
        await self._shard_manager.with_shard(group_id, attempt)

    async def reset(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        force: bool,
        context: RequestContext | None = None,
        mirror: str = "",
        before: Mapping[TopicPartition, int] | None = None,
        keep: bool = False,
    ) -> None:
        """Set a group's offsets from outside, for the client of `context`; with `force` subscribed members go
        on from there. A `mirror` does so in its topics, where it has set the offsets `before`. With `keep`
        it can be undone, and where `is_act` says that an operator does it.

        Raises GroupNotEmpty, OffsetOutOfRange, UnknownTopic, UnknownPartition, Conflict, MirroredTopic.
        """

        async def attempt(shard: Shard) -> None:
            self._shard_manager.check_quota(shard, group_id, context)
            at_ms = self._clock.now_ms()
            is_kept = not mirror and (keep or is_act(shard.group(group_id), offsets))
            every = frozenset(offsets) if is_kept else frozenset()

            def reset(some: Sequence[TopicPartition], checked: bool) -> Group:
                places = {at: offsets[at] for at in some}
                event = Reset(places, at_ms, force, context, checked, mirror, before or {}, every)
                group = shard.apply(group_id, event)
                # At once: a member must not commit over it what it was given before.
                for consumer in self._sessions.existing(group_id, group.members):
                    consumer.forget(places)
                return group

            await self._whole.set(shard, group_id, offsets, reset)

        await self._shard_manager.refresh_topics()
        await self._check_ends(offsets)
        if mirror:
            await asyncio.to_thread(self._check_copies, {at.topic for at in offsets}, mirror)
        await self._shard_manager.with_shard(group_id, attempt)

    def _check_copies(self, topics: Iterable[str], mirror: str) -> None:
        for name in topics:
            self._cluster.check_own(self._cluster.topic(name), mirror)

    async def undo_plan(self, group_id: str, acts: int = 1) -> UndoPlan:
        """The changes that `undo` would make, of the group as it is durable.

        Raises NotFound, InvalidArgument.
        """
        return undo_plan(await self.kept_group(group_id), acts, self._kept_since_ms())

    async def acts(self, group_id: str) -> tuple[Act, ...]:
        """The acts that can be undone, the newest first."""
        return known_acts(await self.kept_group(group_id), self._kept_since_ms())

    async def kept_group(self, group_id: str) -> Group:
        """The group as it is durable, which may have been deleted."""
        await self._shard_manager.refresh_topics()
        if not await self._shard_manager.has_groups():
            return Group(group_id)
        return await self._shard_manager.stored_group(group_id)

    async def undo(
        self,
        group_id: str,
        acts: int = 1,
        context: RequestContext | None = None,
        check: Callable[[UndoPlan], None] = lambda _: None,
        newest_ms: int = 0,
    ) -> tuple[Group, UndoPlan]:
        """Give a group the offsets again that it had before its newest `acts` acts of operators, unless
        `check` raises for the plan, or the newest is not that of `newest_ms`; 0: any. Returns the group
        before, and what was changed.

        Raises GroupNotEmpty, Conflict, NotFound, InvalidArgument, and as `check`.
        """

        async def attempt(shard: Shard) -> tuple[Group, UndoPlan]:
            shard.expire_members(group_id)
            self._shard_manager.check_quota(shard, group_id, context)
            since_ms = self._kept_since_ms()
            before = shard.group(group_id)
            plan = undo_plan(before, acts, since_ms, newest_ms)
            check(plan)
            event = Undo(acts, self._clock.now_ms(), since_ms, context, newest_ms)
            group = shard.apply(group_id, event)
            # At once: a member must not commit over it what it was given before.
            for consumer in self._sessions.existing(group_id, group.members):
                consumer.forget(plan.changed)
            await shard.wait_durable(group_id)
            return before, plan

        await self._shard_manager.refresh_topics()
        return await self._shard_manager.with_shard(group_id, attempt)

    def _kept_since_ms(self) -> int:
        return self._clock.now_ms() - self._undo_ms

    async def delete(self, group_id: str, force: bool, context: RequestContext | None = None) -> None:
        """Delete a group; with `force` also its members, and the records of transactions whose staged file is
        lost. Raises UnknownGroup, GroupNotEmpty; Conflict for such a file; Retriable.
        """

        async def attempt(shard: Shard) -> None:
            await self._transactions.finish(shard, group_id, force)
            await shard.wait_durable(group_id)
            shard.apply(group_id, Delete(force, self._clock.now_ms(), context))
            self._sessions.forget_group(group_id)
            await shard.wait_durable(group_id)

        await self._shard_manager.group(group_id)
        await self._shard_manager.with_shard(group_id, attempt)

    async def _started(self, shard: Shard, group_id: str, member_id: str) -> Group:
        """The group when it is noted, and durable, where a member at `latest` begins: at the log ends of now,
        where nothing else says it.
        """
        group = shard.group(group_id)
        member = group.member(member_id)
        starting = group.starting(member)
        if not starting:
            return group
        known = {name: group.topics[name] for name in starting}
        pieces = [*batched(group.unplaced(member, starting), OFFSETS_AT_ONCE)] or [[]]
        for number, some in enumerate(pieces, 1):
            ends = await self._log_ends([(at, known[at.topic].topic_id) for at in some])
            done = known if number == len(pieces) else {}
            group = shard.apply(group_id, Start(member_id, ends, done, self._clock.now_ms()))
        await shard.wait_durable(group_id)
        return group

    async def _log_ends(
        self, some: Sequence[tuple[TopicPartition, str]]
    ) -> dict[TopicPartition, LogEnd | None]:
        """The log ends of partitions of these incarnations, None for those that are gone or damaged."""

        async def look(few: Sequence[tuple[TopicPartition, str]]) -> dict[TopicPartition, LogEnd | None]:
            async with self._looks.turn:
                return await asyncio.to_thread(self._look, few)

        found = await self._looks.each(look, [*batched(some, LOOKED_AT_BY_ONE)])
        return {at: end for ends in found for at, end in ends.items()}

    def _look(self, few: Sequence[tuple[TopicPartition, str]]) -> dict[TopicPartition, LogEnd | None]:
        found: dict[TopicPartition, LogEnd | None] = {}
        for at, topic_id in few:
            found[at] = None
            topic = self._cluster.cached_topic(at.topic)
            if topic is not None and topic.topic_id == topic_id:
                with suppress(Damaged, NotFound):
                    partition = topic.partition(at.partition)
                    partition.refresh()
                    found[at] = LogEnd(topic_id, partition.high_watermark)
        return found

    async def _check_ends(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise OffsetOutOfRange for an offset that no record has yet, and what `_open` raises."""
        opened = await self._open(offsets)
        beyond = await asyncio.to_thread(_beyond, offsets, opened)
        if beyond is not None:
            raise OffsetOutOfRange(
                f"offset {offsets[beyond].offset} of {beyond} is beyond the end of the log, "
                f"{opened[beyond].high_watermark}; commit up to there",
                log_start_offset=opened[beyond].log_start,
                high_watermark=opened[beyond].high_watermark,
            )

    async def _open(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, PartitionReader]:
        """The partitions of these offsets. Raises UnknownTopic, UnknownPartition; InvalidOffset for a
        negative offset, InvalidTopicName for one of an internal topic.
        """

        def opened(some: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionReader]:
            for at in some:
                check_public(at.topic)
                if offsets[at].offset < 0:
                    raise InvalidOffset(f"offset {offsets[at].offset} of {at} is negative; name one from 0")
            return {
                at: self._cluster.with_current_topic(
                    at.topic, partial(Topic.partition, partition=at.partition)
                )
                for at in some
            }

        found: dict[TopicPartition, PartitionReader] = {}
        for some in batched([*offsets]):
            found |= await asyncio.to_thread(opened, some)
        return found


def _beyond(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], opened: Mapping[TopicPartition, PartitionReader]
) -> TopicPartition | None:
    """The first of `offsets` that is beyond its log's end, also after a refresh."""
    for at, place in offsets.items():
        if place.offset > opened[at].high_watermark:
            opened[at].refresh(wait=True)
        if place.offset > opened[at].high_watermark:
            return at
    return None
