"""Idle members of Kafka's groups: each has its partitions, and sends heartbeats when they are due."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.apis import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from api.kafka.protocol.notation import Message
from bench.kafka_crowd import Answer, Connection
from coordinator.groups.classic.consumer_protocol import (
    CONSUMER,
    assigned_partitions,
    encode_assignment,
    encode_subscription,
)
from log_tables.clock import timer
from log_tables.topic_partition import TopicPartition

SETTLED_S = 8.0
"""From the last assignment on, before it is measured."""

_CLASSIC_INTERVAL_S = 3.0
"""Kafka's default, by its clients; in the newer protocol the server says it."""

_SESSION_MS, _REBALANCE_MS = 45_000, 300_000
_OPENED_AT_ONCE = 50
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(slots=True)
class Idle:
    """So many members in so many groups, each of which shares all `partitions` of the topic."""

    topic: str
    partitions: int
    members: int
    groups: int
    is_classic: bool = False
    heartbeats: int = 0
    held: dict[int, int] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"idle-{uuid4()}")
    """Of the groups. A broker that has been measured before keeps members that are gone for a while."""

    async def cores(self, bootstrap: str, cpu_seconds: Callable[[], float], seconds: float) -> float:
        """The share of a core that the server takes for them, once all have what they are to have."""
        turn = asyncio.Semaphore(_OPENED_AT_ONCE)
        working = [asyncio.create_task(self._member(bootstrap, turn, each)) for each in range(self.members)]
        try:
            await self._until_shared(working, timer() + 120)
            await self._rest(working, SETTLED_S)
            self.heartbeats, before, begin = 0, cpu_seconds(), timer()
            await self._rest(working, seconds)
            return (cpu_seconds() - before) / (timer() - begin)
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _until_shared(self, working: list["asyncio.Task[None]"], end: float) -> None:
        while (held := sum(self.held.values())) != self.groups * self.partitions:
            await self._rest(working, 0.1)
            if timer() > end:
                raise RuntimeError(f"{held} of {self.groups * self.partitions} partitions were assigned")

    async def _rest(self, working: list["asyncio.Task[None]"], seconds: float) -> None:
        """Raises what has ended a member."""
        await asyncio.sleep(seconds)
        for each in working:
            if each.done():
                each.result()

    async def _member(self, bootstrap: str, turn: asyncio.Semaphore, number: int) -> None:
        group = f"{self.name}-{number % self.groups}"
        async with turn:
            connection = await Connection.open(bootstrap)
            asked = FindCoordinatorRequest(coordinator_keys=[group])
            while True:
                found = await connection.ask(FIND_COORDINATOR, asked, FindCoordinatorResponse, 4)
                if not found.coordinators[0].error_code:
                    break
                await asyncio.sleep(0.1)
        try:
            await (self._classic if self.is_classic else self._consumer)(connection, group, number)
        finally:
            connection.writer.close()

    async def _consumer(self, connection: Connection, group: str, number: int) -> None:
        """A member of KIP-848. It says what it owns when that has changed."""
        member = str(uuid4())
        asked = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        while True:
            answer = await _ask(
                connection, CONSUMER_GROUP_HEARTBEAT, asked, ConsumerGroupHeartbeatResponse, 1
            )
            _check(answer.error_code, answer.error_message)
            self.heartbeats += 1
            asked = ConsumerGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=answer.member_epoch
            )
            if answer.assignment is None:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1_000)
            else:
                asked.topic_partitions = answer.assignment.topic_partitions
                self.held[number] = sum(len(each.partitions) for each in asked.topic_partitions)

    async def _classic(self, connection: Connection, group: str, number: int) -> None:
        """A member of a classic group, with an assignor that deals partitions out in turn."""
        member = ""
        while True:
            joining = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=member,
                protocol_type=CONSUMER,
                protocols=[JoinGroupRequestProtocol("turns", encode_subscription([self.topic]))],
            )
            joined = await _ask(connection, JOIN_GROUP, joining, JoinGroupResponse, 5)
            member = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            _check(joined.error_code)
            syncing = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=member)
            if joined.leader == member:
                syncing.assignments = self._dealt([each.member_id for each in joined.members])
            synced = await _ask(connection, SYNC_GROUP, syncing, SyncGroupResponse, 3)
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            _check(synced.error_code)
            self.held[number] = len(assigned_partitions(synced.assignment) or ())
            beating = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member)
            while True:
                await asyncio.sleep(_CLASSIC_INTERVAL_S)
                beaten = await _ask(connection, HEARTBEAT, beating, HeartbeatResponse, 3)
                self.heartbeats += 1
                if beaten.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    break
                _check(beaten.error_code)

    def _dealt(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for partition in range(self.partitions):
            shares[members[partition % len(members)]].append(TopicPartition(self.topic, partition))
        return [SyncGroupRequestAssignment(each, encode_assignment(its)) for each, its in shares.items()]


async def _ask(
    connection: Connection, key: int, request: Message, answer: type[Answer], version: int
) -> Answer:
    """An answer of the group's coordinator, once it is one: that may take a while after it was found."""
    while True:
        found = await connection.ask(key, request, answer, version)
        if found.error_code not in _NOT_YET:  # type: ignore[attr-defined]
            return found
        await asyncio.sleep(0.1)


def _check(error_code: int, message: str | None = None) -> None:
    if error_code:
        raise RuntimeError(f"a member heard error {error_code}: {message}")
