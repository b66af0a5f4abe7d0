"""What may be asked of a group: its members' polls and commits, transactions, changes from outside."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from coordinator.groups.consumer_session import ConsumerSession, PollResult
from coordinator.groups.events import Delete, Event, Heartbeat, Join, Leave, OffsetAndMetadata, Reset
from coordinator.groups.group import Group, Member
from coordinator.groups.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.shard_manager import ShardManager
from coordinator.groups.transaction_coordinator import (
    TransactionCoordinator,
    TransactionRequest,
    TransactionResult,
)
from ingest.wide import batched
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster, contradicted
from log_tables.cluster.topic import Topic, check_public
from log_tables.errors import Damaged, InvalidOffset, OffsetOutOfRange, TopicDeleted
from log_tables.partition.partition import Partition
from log_tables.topic_partition import TopicPartition

Answer = TypeVar("Answer")


class GroupCoordinator:
    """The consumer groups of a cluster, for who asks something of them. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        shards: ShardManager,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        clock: Clock,
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._shards, self._consumers, self._transactions = shards, consumers, transactions
        self._closed = False

    def wake(self) -> None:
        """Have every poll that waits answer, and those that come wait no more."""
        self._closed = True
        self._shards.wake()

    async def happen(self, name: str, event: Event) -> Group:
        """Let `event` happen to the group `name`; durable on return. Returns the group as it is then.

        Raises what `step` raises; InvalidConsumer for a name that no group can have, NotLeader,
        StoreUnavailable, OutcomeUnknown, Damaged.
        """

        async def attempt(shard: Shard) -> Group:
            if isinstance(event, Heartbeat):
                # Nothing is appended that could meet a newer claim: look whether there is one.
                await asyncio.to_thread(shard.refresh)
            if isinstance(event, Join) and event.member not in shard.group(name).members:
                self._shards.check_room(shard, name, joins=True)
            group = shard.apply(name, event)
            await shard.wait_durable(name)
            return group

        await self._shards.look()
        return await self._shards.leading(name, attempt)

    async def member(self, name: str, member: str) -> Member:
        """A member, as is known here. Raises UnknownMember."""

        async def attempt(shard: Shard) -> Member:
            return shard.group(name).member(member)

        return await self._shards.leading(name, attempt)

    async def poll(
        self,
        name: str,
        member: str,
        generation: int | None,
        max_bytes: int,
        timeout_s: float,
        ended: Callable[[], Awaitable[bool]],
        give: Callable[[ConsumerSession, PollResult], Awaitable[Answer]],
    ) -> Answer:
        """What `give` makes of `ConsumerSession.poll` of a member; it tells the consumer (`advance`) what
        became of it. What of that turns out to be of a topic that is gone is polled again.

        Raises what `ConsumerSession.poll` and `give` raise.
        """
        deadline = self._clock.monotonic() + timeout_s

        async def over() -> bool:
            return self._closed or await ended()

        async def attempt(shard: Shard) -> Answer:
            consumer = self._consumers.of(shard, name, member)
            while True:
                known = self._shards.topics_version
                try:
                    polled = await consumer.poll(generation, max_bytes, deadline, over)
                    return await give(consumer, polled)
                except (TopicDeleted, Damaged) as error:
                    # What is damaged may be what is left of a topic that is gone, its segments swept.
                    await self._shards.look()
                    if self._shards.topics_version == known:
                        raise error if isinstance(error, Damaged) else contradicted(error) from None

        return await self._shards.leading(name, attempt)

    async def commit(
        self, name: str, member: str, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> None:
        """Commit a member's offsets, None for all that it was given.

        Also beyond the end of a log, as Kafka does: a poll goes by auto.offset.reset there. Raises
        UnknownTopic, UnknownPartition, NotAssigned.
        """

        async def attempt(shard: Shard) -> None:
            consumer = self._consumers.of(shard, name, member)
            await consumer.commit(offsets)

        if offsets:
            await self._shards.look()
            await self._open(offsets)
        await self._shards.leading(name, attempt)

    async def transacted(self, name: str, key: str, digest: str | None) -> TransactionResult | None:
        """The answer to a transaction that is repeated, None to a new one; without a `digest` whatever its
        content was. Raises RetryKeyReused.
        """

        async def attempt(shard: Shard) -> TransactionResult | None:
            return await self._transactions.known(shard, name, key, digest)

        return await self._shards.leading(name, attempt)

    async def transact(self, name: str, member: str | None, asked: TransactionRequest) -> TransactionResult:
        """Commit offsets and records as one, of a member or (None) of nobody in the group; and apply it.

        Raises NotAssigned, GroupNotEmpty, StaleGeneration, RetryKeyReused, OffsetOutOfRange, UnknownMember,
        UnknownTopic, UnknownPartition, InvalidRequest, NotLeader, StoreUnavailable: then nothing of it is
        there, nor will be. OutcomeUnknown: all of it or nothing; a repeat with the same key makes sure.
        """

        async def attempt(shard: Shard) -> TransactionResult:
            self._shards.check_room(shard, name)

            def committing(group: Group) -> None:
                for consumer in self._consumers.known(name, group.members if member is None else [member]):
                    if member is None:
                        consumer.forget(asked.offsets)
                    else:
                        consumer.note_committed(asked.offsets)

            return await self._transactions.transact(shard, name, member, asked, committing)

        await self._shards.look()
        await self._check_ends(asked.offsets)
        return await self._shards.leading(name, attempt)

    async def seek(self, name: str, member: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set where a member goes on. Raises NotAssigned, InvalidOffset."""

        async def attempt(shard: Shard) -> None:
            self._consumers.of(shard, name, member).seek(positions)
            await shard.wait_durable(name)

        for at, offset in positions.items():
            if offset < 0:
                raise InvalidOffset(f"offset {offset} of {at} is negative; name one from 0")
        await self._shards.look()
        await self._shards.leading(name, attempt)

    async def leave(self, name: str, member: str) -> None:
        """Delete a member; what auto-commit owes it is committed. Raises UnknownMember."""

        async def attempt(shard: Shard) -> None:
            self._consumers.of(shard, name, member).leave()
            shard.apply(name, Leave(member))
            await shard.wait_durable(name)
            self._consumers.forget(name, member)

        await self._shards.leading(name, attempt)

    async def reset(
        self, name: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], force: bool
    ) -> Group:
        """Set a group's offsets from outside; with `force` its members go on from there, too.

        Raises GroupNotEmpty, OffsetOutOfRange, UnknownTopic, UnknownPartition.
        """

        async def attempt(shard: Shard) -> Group:
            self._shards.check_room(shard, name)
            group = shard.apply(name, Reset(offsets, self._clock.now_ms(), force))
            # At once: what a member was given before must not be committed over it.
            for consumer in self._consumers.known(name, group.members):
                consumer.forget(offsets)
            await shard.wait_durable(name)
            return group

        await self._shards.look()
        await self._check_ends(offsets)
        return await self._shards.leading(name, attempt)

    async def delete(self, name: str, force: bool) -> None:
        """Forget a group; with `force` also its members, and the records of transactions whose staged file is
        lost. Raises UnknownGroup, GroupNotEmpty; Conflict for such a file; Retriable.
        """

        async def attempt(shard: Shard) -> None:
            await self._transactions.finish(shard, name, force)
            await shard.wait_durable(name)
            shard.apply(name, Delete(force))
            self._consumers.forget_group(name)
            await shard.wait_durable(name)

        await self._shards.group(name)
        await self._shards.leading(name, attempt)

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
    ) -> dict[TopicPartition, Partition]:
        """The partitions of these offsets. Raises UnknownTopic, UnknownPartition; InvalidOffset for a
        negative offset, InvalidTopicName for one of an internal topic.
        """
        for at, place in offsets.items():
            check_public(at.topic)
            if place.offset < 0:
                raise InvalidOffset(f"offset {place.offset} of {at} is negative; name one from 0")

        def opened(some: Sequence[TopicPartition]) -> dict[TopicPartition, Partition]:
            return {
                at: self._cluster.with_current_topic(
                    at.topic, partial(Topic.partition, partition=at.partition)
                )
                for at in some
            }

        found: dict[TopicPartition, Partition] = {}
        for some in batched([*offsets]):
            found |= await asyncio.to_thread(opened, some)
        return found


def _beyond(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], opened: Mapping[TopicPartition, Partition]
) -> TopicPartition | None:
    """The first of `offsets` that is beyond its log's end, looked for anew where it seems so."""
    for at, place in offsets.items():
        if place.offset > opened[at].high_watermark:
            opened[at].refresh(wait=True)
        if place.offset > opened[at].high_watermark:
            return at
    return None
