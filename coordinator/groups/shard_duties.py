"""Shards looked after: the time that passes for their groups, their hand-over, and groups that a dead gateway
has left with pending transactions.
"""

import asyncio
from contextlib import suppress

from coordinator.brokers.leadership import Leadership
from coordinator.groups.group_reader import GroupReader
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards, follow_on
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.pending_tasks import PendingTasks
from ingest.periodic_task import FailureLog, PeriodicTask
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, NotLeader
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import LOOKS_AT_ONCE

TICK_S = 0.25
"""How often session timeouts, and created and deleted topics, are looked for."""

IDLE_S = 5.0
"""How often a shard without members looks who leads it: each look is a request to the store."""

LOOKS_PER_S = 16
"""Looks of all shards with members together: of more than four each looks less often, down to IDLE_S."""

EXPIRE_S = 60.0
"""How often groups that were without members for too long are looked for."""

ADOPT_S = 5.0
"""How often pending transactions are looked for that a dead gateway has left, in groups without requests."""

ADOPT_AGAIN_S = 60.0
"""How often they are looked for where there were none and no gateway has come or gone since."""


class ShardDuties:
    """Used on the event loop."""

    def __init__(
        self,
        shards: Shards,
        reader: GroupReader,
        leadership: Leadership,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        settings: Settings,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        self._shards, self._reader, self._leadership = shards, reader, leadership
        self._sessions, self._transactions = consumers, transactions
        self._retention_ms = settings.offsets_retention_minutes * 60_000
        self._undo_ms = settings.group_undo_ms
        self._clock, self._failures = clock, failures
        self._nothing_pending: dict[int, tuple[object, float]] = {}
        self._expiring: dict[int, float] = {}
        self._ticks: set[int] = set()
        self._tasks, self._looking = PendingTasks(), asyncio.Semaphore(LOOKS_AT_ONCE)
        self._ticking = PeriodicTask("groups", TICK_S, self._tick_all, failures)
        self._adopting = PeriodicTask("adoption", ADOPT_S, self.take_over_pending, failures)
        leadership.before_hand_over(self._before_hand_over)
        shards.on_load(lambda partition: self._nothing_pending.pop(partition, None))

    async def start(self) -> None:
        """Begin to look after session timeouts, and for pending transactions that were left."""
        self._ticking.start()
        self._adopting.start()

    async def close(self) -> None:
        """Note the positions of members, and stop."""
        for partition in self._shards.by_partition():
            with suppress(LakelogError):
                await self._before_hand_over(await self._shards.offsets.topic(), partition)
        await self._transactions.close()
        await self._ticking.close()
        await self._adopting.close()
        await self._tasks.cancel()
        for shard in self._shards:
            shard.end()

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
        self._shards.follow_topics()
        for partition, shard in self._shards.by_partition().items():
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
                await self._shards.refresh_topics()  # what came before a member is given up is the group's
            await follow_on(shard)
            with suppress(NotLeader):
                shard.tick()
                self._expire(partition, shard)
        else:
            self._shards.drop(partition, shard)
        self._sessions.tidy(shard)

    def _look_pause_s(self, shard: Shard) -> float:
        """Seconds from one look of a shard who leads it to the next.

        Without members nothing happens before a request comes, whose commit finds out who leads. With them a
        poll that waits is to hear of it, if the gateway that takes over could not ask this one.
        """
        if not shard.members:
            return IDLE_S
        in_use = sum(each.members > 0 for each in self._shards)
        return min(IDLE_S, max(TICK_S, in_use / LOOKS_PER_S))

    def _expire(self, partition: int, shard: Shard) -> None:
        now = self._clock.monotonic()
        if now >= self._expiring.get(partition, 0):
            more = shard.expire(self._retention_ms) or shard.forget_acts(self._undo_ms)
            self._expiring[partition] = now + (0 if more else EXPIRE_S)

    async def take_over_pending(self) -> None:
        """Take over groups that nobody coordinates and that have pending transactions.

        Their partition may be led here already: after a hand-over nobody has asked for them yet.
        """
        if not await self._shards.offsets.exists():
            return
        topic = await self._shards.offsets.topic()
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
            if any(group.transactions.pending for group in await self._reader.groups_of(partition)):
                await self._shards.shard(partition)
            else:
                self._nothing_pending[partition] = known, self._clock.monotonic()
