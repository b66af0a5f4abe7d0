"""The requests of Kafka's clients to their groups: members, offsets, and the looks of administrators.

A request that comes to another gateway than the group's coordinator is forwarded. Kafka's clients look for
the coordinator, but behind a load balancer they cannot choose.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from coordinator.access.principal import RequestContext
from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.events import (
    CommitOffsets,
    DeleteOffsets,
    EndPending,
    GroupHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    PendOffsets,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.classic.rebalance import rebalancing
from coordinator.groups.events import Configure, ConsumerHeartbeat, Delete, HeartbeatAnswer, OffsetAndMetadata
from coordinator.groups.group_coordinator import GroupCoordinator
from coordinator.groups.group_wire import (
    Forwarded,
    Refused,
    Result,
    decode_event,
    decode_result,
    encode_event,
    encode_result,
)
from coordinator.groups.pending_answers import no_coordinator
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.shard_manager import ShardManager
from coordinator.groups.state.acts import is_act
from coordinator.groups.state.consumer_step import told, waits
from coordinator.groups.state.group import Group
from coordinator.groups.wide_change import WideChange
from log_tables.clock import Clock
from log_tables.cluster.group_log import OffsetValue
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import LakelogError, OffsetMetadataTooLarge, OutcomeUnknown
from log_tables.limits import OFFSET_METADATA_MAX_CHARS, OFFSETS_AT_ONCE
from log_tables.topic_partition import TopicPartition

HEARTBEAT_CHECK_S = 2.0
"""How old the last look for another coordinator may be, when a member hears that all is well. Shards look a
few times a second, unless the store hangs."""

WAITING_MS = 250
"""How often a Kafka client asks for partitions that others are to let go of, where there are few clients."""

WAITING_PART = 4
"""Where there are many, it comes so many times as often as those that wait for nothing."""


class ClassicCoordinator:
    """The groups of a cluster as Kafka's clients ask for them. Used on the event loop.

    Its methods raise NotLeader while the coordinator of the group changes, and StoreUnavailable,
    OutcomeUnknown, Damaged; InvalidConsumer for a name that no group can have.
    """

    def __init__(
        self,
        shards: ShardManager,
        leadership: Leadership,
        peers: Peers,
        coordinator: GroupCoordinator,
        consumers: SessionManager,
        wide_change: WideChange,
        clock: Clock,
    ) -> None:
        self._shards, self._leadership, self._peers = shards, leadership, peers
        self._coordinator, self._sessions, self._clock = coordinator, consumers, clock
        self._whole = wide_change

    async def coordinator_of(self, group_id: str) -> BrokerRecord | None:
        """The gateway that coordinates a group, or is the one to begin it; None is this one."""
        _, partition = await self._shards.partition_for(group_id)
        return await self._shards.coordinator_of(partition)

    async def join(self, group_id: str, event: JoinGroup) -> JoinAnswer:
        """Join a group: the answer comes when all members have joined.

        Raises MemberIdRequired, and what `classic.step` raises; QuotaReached.
        """
        answer = await self._apply(group_id, event)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def sync(self, group_id: str, event: SyncGroup) -> SyncAnswer:
        """The assignment of a member: the answer comes when the leader has assigned."""
        answer = await self._apply(group_id, event)
        assert isinstance(answer, SyncAnswer)
        return answer

    async def leave(self, group_id: str, event: LeaveGroup) -> LeaveAnswer:
        """Let members leave."""
        answer = await self._apply(group_id, event)
        assert isinstance(answer, LeaveAnswer)
        return answer

    async def heartbeat(self, group_id: str, event: GroupHeartbeat) -> None:
        """Note that a member is alive. Raises RebalanceInProgress, and what `classic.step` raises."""
        await self._apply(group_id, event)

    async def consumer_heartbeat(self, group_id: str, event: ConsumerHeartbeat) -> HeartbeatAnswer:
        """Note that a member of KIP-848 joins, is alive or leaves. Raises what `heard_of_client` raises, and
        QuotaReached.
        """
        answer = await self._apply(group_id, event)
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    async def commit(self, group_id: str, event: CommitOffsets) -> Refused:
        """Commit offsets; returns why some of them were not. Raises what `classic.committed` raises."""
        refused = await self._apply(group_id, event)
        assert isinstance(refused, dict)
        return refused

    async def pend(self, group_id: str, event: PendOffsets) -> Refused:
        """Have offsets wait for the end of a transaction; returns why some of them may not. Raises as
        `commit`, ConcurrentTransactions.
        """
        refused = await self._apply(group_id, event)
        assert isinstance(refused, dict)
        return refused

    async def end_pending(self, group_id: str, event: EndPending) -> None:
        """Tell a group how a transaction with offsets of it has ended."""
        await self._apply(group_id, event)

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        context: RequestContext | None = None,
    ) -> Refused:
        """Delete committed offsets; returns why some of them were not. Raises UnknownGroup, GroupNotEmpty."""
        refused = await self._apply(group_id, DeleteOffsets(frozenset(partitions), context=context))
        assert isinstance(refused, dict)
        return refused

    async def delete(self, group_id: str, context: RequestContext | None = None) -> None:
        """Delete a group. Raises UnknownGroup, GroupNotEmpty."""
        await self._apply(group_id, Delete(context=context))

    async def configure(self, group_id: str, event: Configure) -> None:
        """Change the settings of a group, which need not exist. Raises QuotaReached."""
        await self._apply(group_id, event)

    async def group(self, group_id: str) -> Group:
        """A group, durable. Its state is Dead if there is none.

        Its coordinator knows how far a rebalance is; another gateway knows what was written.
        """
        await self._shards.refresh_topics()
        if await self.coordinator_of(group_id) is not None:
            return await self._shards.stored_group(group_id)
        shard = await self._shard(group_id)
        shard.expire_members(group_id)
        found = shard.group(group_id)
        await shard.wait_durable(group_id)
        return found

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request that another gateway has forwarded: it goes no further."""
        try:
            group_id, event = decode_event(body)
            topic, partition = await self._shards.partition_for(group_id)
            await self._leadership.become_leader(topic, partition, forwarded=True)
            return encode_result(await self._apply_here(group_id, event))
        except LakelogError as error:
            return encode_result(error)

    async def _apply(self, group_id: str, event: Forwarded) -> Result:
        _, partition = await self._shards.partition_for(group_id)
        here, there = partial(self._apply_here, group_id, event), partial(self._apply_there, group_id, event)
        return await self._shards.at_coordinator(partition, here, there)

    async def _apply_there(self, group_id: str, event: Forwarded, broker: BrokerRecord) -> Result:
        answer = await self._peers.ask_group(broker, encode_event(group_id, event))
        try:
            return decode_result(answer)
        except ValueError:
            raise OutcomeUnknown(
                f"broker {broker.id} answered something else; use the same version everywhere"
            ) from None

    async def _apply_here(self, group_id: str, event: Forwarded) -> Result:
        match event:
            case GroupHeartbeat():
                await self._note_alive(group_id, event)
                return None
            case ConsumerHeartbeat():
                return await self._hear(group_id, event)
            case CommitOffsets() | PendOffsets() | DeleteOffsets():
                return await self._set_offsets(group_id, event)
            case EndPending():
                await self._end_pending(group_id, event)
                return None
            case Configure() | Delete():
                await self._change(group_id, event)
                return None
        shard = await self._shard(group_id)
        if isinstance(event, JoinGroup):
            self._check_join(shard, group_id, event)
        answer = await shard.ask(group_id, event)
        assert not isinstance(answer, LakelogError)
        return answer

    async def _set_offsets(
        self, group_id: str, event: CommitOffsets | PendOffsets | DeleteOffsets
    ) -> Refused:
        match event:
            case CommitOffsets():
                return await self._commit(group_id, event)
            case PendOffsets():
                return await self._pend(group_id, event)
            case DeleteOffsets():
                return await self._delete_offsets(group_id, event)

    async def _change(self, group_id: str, event: Configure | Delete) -> None:
        if isinstance(event, Delete):
            await self._coordinator.delete(group_id, event.force, event.context)
            return
        if any(value is not None for value in event.configs.values()):
            self._shards.check_quota(await self._shard(group_id), group_id, None)
        await self._coordinator.apply_event(group_id, event)

    def _check_join(self, shard: Shard, group_id: str, event: JoinGroup) -> None:
        """Raise QuotaReached when a client that is no member yet is one too many."""
        group = shard.group(group_id)
        returns = event.instance_id is not None and group.static_member(event.instance_id) is not None
        is_new = not event.member_id or event.member_id in group.classic.pending
        if not returns and (is_new or (group.members and event.member_id not in group.members)):
            self._shards.check_quota(shard, group_id, event.context, joins=True)
        if not event.member_id:
            self._shards.make_way()

    async def _hear(self, group_id: str, event: ConsumerHeartbeat) -> HeartbeatAnswer:
        if event.topics is not None or event.pattern is not None:
            await self._shards.refresh_topics()
        if event.pattern:
            await self._shards.match(event.pattern)
        shard = await self._shard(group_id)
        if self._clock.monotonic() - shard.looked_s > HEARTBEAT_CHECK_S:
            await asyncio.to_thread(shard.refresh)
        await self._whole.share.turn()
        shard.expire_members(group_id)
        before = shard.group(group_id)
        instance = event.client.instance_id
        returns = event.member_id in before.members or (instance and before.static_member(instance))
        if event.epoch == 0 and not returns:
            self._shards.check_quota(shard, group_id, event.context, joins=True)
        event = replace(event, session_timeout_ms=self._shards.session_timeout_ms(before))
        after = shard.apply(group_id, event)
        await shard.wait_durable(group_id)
        if event.epoch < 0:
            return HeartbeatAnswer(event.member_id, event.epoch)
        return _answer(before, after, event, self._shards.heartbeat_interval_ms(after))

    async def _note_alive(self, group_id: str, event: GroupHeartbeat) -> None:
        shard = await self._shard(group_id)
        if self._clock.monotonic() - shard.looked_s > HEARTBEAT_CHECK_S:
            await asyncio.to_thread(shard.refresh)
        group = shard.apply_classic(group_id, event)
        ours = group.members.get(event.member_id)
        if ours.asked_ms is not None if ours else group.classic.state is ClassicState.PREPARING_REBALANCE:
            raise rebalancing()

    async def _commit(self, group_id: str, event: CommitOffsets) -> Refused:
        await self._shards.refresh_topics()
        shard = await self._shard(group_id)
        self._shards.check_quota(shard, group_id, event.context)
        if event.generation < 0:
            shard.expire_members(group_id)
            if is_act(shard.group(group_id), event.offsets):
                event = replace(event, every=frozenset(event.offsets))
        refused: Refused = {}

        def commit(some: Sequence[TopicPartition], checked: bool) -> Group:
            group, offsets = shard.group(group_id), {at: event.offsets[at] for at in some}
            found = _refused(group, offsets)
            refused.update(found)
            kept = {at: place for at, place in offsets.items() if at not in found}
            after = shard.apply_classic(group_id, replace(event, offsets=kept, checked=checked))
            # At once: an instance must not commit over it what it was given before.
            for consumer in self._sessions.existing(group_id, group.members):
                consumer.forget(kept)
            return after

        await self._whole.set(shard, group_id, event.offsets, commit)
        return refused

    async def _pend(self, group_id: str, event: PendOffsets) -> Refused:
        await self._shards.refresh_topics()
        shard, commit = await self._shard(group_id), event.commit
        self._shards.check_quota(shard, group_id, commit.context)
        if commit.generation < 0:
            shard.expire_members(group_id)
        group, is_wide = shard.group(group_id), len(commit.offsets) > OFFSETS_AT_ONCE
        refused, waiting = await self._whole.share.maybe_in_thread(is_wide, lambda: _waiting(group, event))
        shard.apply_classic(group_id, replace(event, commit=replace(commit, offsets={}), waiting=waiting))
        await shard.wait_durable(group_id)
        return refused

    async def _end_pending(self, group_id: str, event: EndPending) -> None:
        await self._shards.refresh_topics()
        shard = await self._shard(group_id)
        before = shard.group(group_id).unstable.get(event.id)
        commits = before is not None and event.committed and before.number == event.number
        places = (each[:2] for each in before.offsets) if before is not None and commits else ()
        starts = {TopicPartition(*at): start for start, at in enumerate(places)}

        def end(some: Sequence[TopicPartition], _checked: bool) -> Group:
            after = shard.apply_classic(group_id, replace(event, start=starts[some[0]] if some else 0))
            # At once: an instance must not commit over it what it was given before.
            for consumer in self._sessions.existing(group_id, after.members):
                consumer.forget(some)
            return after

        await self._whole.set(shard, group_id, starts, end, over_commits=True)

    async def _delete_offsets(self, group_id: str, event: DeleteOffsets) -> Refused:
        await self._shards.refresh_topics()
        shard = await self._shard(group_id)
        shard.expire_members(group_id)
        group, is_wide = shard.group(group_id), len(event.partitions) > OFFSETS_AT_ONCE

        def deletable() -> frozenset[TopicPartition]:
            return event.partitions - _undeletable(group, event.partitions).keys()

        every = await self._whole.share.maybe_in_thread(is_wide, deletable)
        about = replace(
            event, partitions=frozenset[TopicPartition](), at_ms=self._clock.now_ms(), every=every
        )
        before = shard.apply_classic(group_id, about)
        refused: Refused = {}

        def delete(some: Sequence[TopicPartition]) -> None:
            found = _undeletable(before, some)
            refused.update(found)
            shard.apply_classic(group_id, DeleteOffsets(frozenset(some) - found.keys(), checked=True))

        await self._whole.delete(shard, before, event.partitions, delete)
        return refused

    async def _shard(self, group_id: str) -> Shard:
        """The shard of the group, which is claimed if nobody leads it."""
        topic, partition = await self._shards.partition_for(group_id)
        if not await self._leadership.should_lead(topic, partition):
            raise no_coordinator()
        return await self._shards.shard(partition)


def _answer(before: Group, after: Group, event: ConsumerHeartbeat, interval_ms: int) -> HeartbeatAnswer:
    """The answer to the member of `event`, which made `after` of the group `before`."""
    member, assignment = after.members[event.member_id], told(before, after, event)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(assignment or ()):
        by_topic.setdefault(after.topics[topic].topic_id, []).append(partition)
    if waits(after, member):
        interval_ms = min(interval_ms, max(WAITING_MS, interval_ms // WAITING_PART))
    shown = None if assignment is None else {name: tuple(listed) for name, listed in by_topic.items()}
    return HeartbeatAnswer(member.id, member.epoch, interval_ms, shown)


def _refused(group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Refused:
    """The offsets that cannot be committed."""
    refused: Refused = {}
    for at, place in offsets.items():
        try:
            group.check(at)
            if len(place.metadata) > OFFSET_METADATA_MAX_CHARS:
                raise OffsetMetadataTooLarge(
                    f"the metadata of an offset has {len(place.metadata)} characters, "
                    f"{OFFSET_METADATA_MAX_CHARS} are allowed; send less"
                )
        except LakelogError as error:
            refused[at] = error
    return refused


def _waiting(group: Group, event: PendOffsets) -> tuple[Refused, tuple[tuple[str, int, OffsetValue], ...]]:
    """The offsets of `event` that cannot be committed, and those that wait for the end of its transaction."""
    commit, of = event.commit, (event.producer_id, event.number)
    refused, by, waiting = _refused(group, commit.offsets), commit.member_id, []
    before = group.pending_orders()
    for at, place in commit.offsets.items():
        if at not in refused:
            topic_id = group.topics[at.topic].topic_id
            known = group.offsets.get(at)
            order = 1 + max(before.get(at, 0), 0 if known is None else known.order)
            value = OffsetValue(
                place.offset, topic_id, place.metadata, commit.at_ms, by, place.leader_epoch, of, order
            )
            waiting.append((*at, value))
    return refused, tuple(waiting)


def _undeletable(group: Group, partitions: Iterable[TopicPartition]) -> Refused:
    """The partitions whose offsets cannot be deleted."""
    refused: Refused = {}
    for at in partitions:
        try:
            group.check(at)
            group.check_not_subscribed(at.topic)
        except LakelogError as error:
            refused[at] = error
    return refused
