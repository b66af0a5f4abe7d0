"""The parts of a gateway that the answers to Kafka's clients are made of."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from api.client_topics import TopicDescription
from api.gateway import Gateway
from api.kafka.clients.client import Client
from api.kafka.clients.errors import ErrorCode, Refusal
from api.kafka.clients.racks import ReadReplicas
from api.kafka.clients.record_cache import RecordCache
from api.kafka.clients.seldom import Seldom
from coordinator.brokers.pipeline import Pipeline
from ingest.buffer import Buffer
from ingest.loop_share import Wide
from log_tables.clock import Clock
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.limits import BRIEF_PRODUCER_MAX_MS, KAFKA_RESOURCES_MAX, LOOKS_AT_ONCE
from log_tables.partition.sequencer import brief_producer_id

NO_LEADER_EPOCH = -1
"""No epoch is known, or none is checked."""

ROOM_PAUSE_S = 0.02
"""Until it is tried again whether there is room for the records of a batch, or for an answer."""

CHANGE_THREADS = 4
"""Requests to change topics that are worked at at once; others wait for them."""

GIVE_WAY_S = 1.0
"""How long nothing may move until all but the oldest give way."""

WARN_AGAIN_S = 60.0
"""A client that asks for what is not offered is warned of once in that time: some ask again at once."""

WARNINGS_MAX = 1_000
"""Addresses that are warned of in WARN_AGAIN_S; others then make no line."""

_log = logging.getLogger(__name__)

Resource = TypeVar("Resource")
Result = TypeVar("Result")


class ProducerIds:
    """The ids that one gateway has lately given to the idempotent producers of Kafka's clients. Used on the
    event loop.

    Most clients take one whenever they start, and each is kept in the tables that it writes to. So their
    number within the time that they are kept is bounded.
    """

    def __init__(self, clock: Clock, most: int) -> None:
        """`most` within BRIEF_PRODUCER_MAX_MS."""
        self._clock, self._most = clock, most
        self._given: deque[float] = deque()

    def take(self) -> int | None:
        """A new random id, so that no gateways have to agree; None if there were too many."""
        now = self._clock.monotonic()
        while self._given and self._given[0] <= now - BRIEF_PRODUCER_MAX_MS / 1_000:
            self._given.popleft()
        if len(self._given) >= self._most:
            return None
        self._given.append(now)
        return brief_producer_id(self._clock)


class RoomLine:
    """The batches of one gateway that wait for room, the oldest first. Used on the event loop.

    Their frames hold room, too. Where just that is missing, none of them would ever get in: so the younger
    ones give way.
    """

    def __init__(self, buffer: Buffer, clock: Clock) -> None:
        self._buffer, self._clock = buffer, clock
        self._waiting: dict[object, None] = {}
        self._least, self._moved = buffer.limit_bytes, 0.0

    @contextmanager
    def place(self) -> "Iterator[WaitingBatch]":
        """A place at the end, kept within the context."""
        place = WaitingBatch(self)
        try:
            yield place
        finally:
            if place in self._waiting:
                del self._waiting[place]
                self._moved = self._clock.monotonic()

    def _wait(self, place: "WaitingBatch") -> bool:
        """Let `place` wait on; returns whether it gives way."""
        now, used = self._clock.monotonic(), self._buffer.used
        if not self._waiting:
            self._least, self._moved = used, now
        self._waiting.setdefault(place)
        if used < self._least:
            self._least, self._moved = used, now
        return next(iter(self._waiting)) is not place and now - self._moved > GIVE_WAY_S


class WaitingBatch:
    """A batch in its place of the line."""

    def __init__(self, line: RoomLine) -> None:
        self._line = line

    def gives_way(self) -> bool:
        """Whether this batch, which found no room just now, is refused, so that an older one gets in."""
        return self._line._wait(self)


@dataclass(frozen=True, slots=True)
class Door:
    """`answers` is the memory that answers with records hold until their clients have taken them; `room_line`
    has the batches that wait for room.

    `changing` are the threads of changes of topics: one request may ask for thousands, and reads wait for
    none of them. `looks` are the partitions that wide requests open and look at side by side. `refusals` has
    the clients that asked for what is not offered. `records` are shared by all clients.
    """

    here: Gateway
    pipeline: Pipeline
    answers: Buffer
    producer_ids: ProducerIds
    room_line: RoomLine
    changing: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(CHANGE_THREADS, thread_name_prefix="kafka-change")
    )
    records: RecordCache = field(default_factory=RecordCache)
    looks: Wide = field(default_factory=lambda: Wide(LOOKS_AT_ONCE))
    refusals: Seldom[str] = field(default_factory=lambda: Seldom(WARN_AGAIN_S, WARNINGS_MAX))

    @property
    def leader_epoch(self) -> int:
        """The one epoch that all partitions have, as far as is known without a wait: it says which state of
        the root they go on from (`LogEpochs`), not which gateway leads.
        """
        return self.here.cluster.log_epochs.newest

    def brokers(self) -> list[BrokerRecord]:
        """The gateways that live and that Kafka's clients can reach, by id; of several at one address the one
        that stands for them.

        Clients must not hear of two brokers at one address: kafkajs then takes the leader of a partition for
        nobody, and counts its records as written.
        """
        return sorted(self._nodes().values(), key=lambda each: each.id)

    def _nodes(self) -> dict[str, BrokerRecord]:
        """The newest gateway at each address."""
        found = self.here.brokers.all()
        # One may register between the two looks.
        living = (found.get(number) for number in self.here.brokers.living())
        return {each.kafka: each for each in living if each is not None and each.kafka}

    @property
    def node_id(self) -> int:
        """The broker that clients know this gateway as."""
        return self._node_id(self.here.brokers.id) or self.here.brokers.id

    def node_id_of(self, gateway: int) -> int:
        """The broker that clients know `gateway` as; this one where they do not reach it."""
        return self._node_id(gateway) or self.node_id

    def _node_id(self, gateway: int) -> int | None:
        known = self.here.brokers.all().get(gateway)
        node = None if known is None else self.node_of(known)
        return None if node is None else node.id

    def node_of(self, gateway: BrokerRecord) -> BrokerRecord | None:
        """The broker that clients know `gateway` as; None where they do not reach it."""
        return (self._nodes().get(gateway.kafka) or gateway) if gateway.kafka else None

    def read_replicas(self) -> ReadReplicas:
        """The gateways that clients reach now, by rack."""
        return ReadReplicas(self.brokers())

    def led_elsewhere(self, topic: Topic, partition: int) -> BrokerRecord | None:
        """Another gateway that leads a partition, as far as is known without a wait, and that clients reach
        elsewhere; else None.
        """
        leader = self.here.leadership.known_leaders(topic, (partition,)).get(partition)
        if leader is None:
            return None
        own = self.here.brokers.all().get(self.here.brokers.id)
        return None if own is not None and own.kafka == leader.kafka else self.node_of(leader)

    def warn(self, client: Client, what: str, name: str) -> None:
        """Log that a client asks for `what` is not offered, and that it calls `name`."""
        if self.refusals.is_due(client.host, self.here.clock.monotonic()):
            text = "a client at %s asks for %s (%.99r), which this gateway does not offer"
            _log.warning(text, client.host, what, name)

    def leaders(self, topics: Iterable[TopicDescription]) -> Iterator[tuple[TopicDescription, list[int]]]:
        """`topics`, and the gateway to ask for each partition of each: its leader; this one where clients do
        not reach that. May be asked in any thread.
        """
        nodes, own = self._nodes(), self.node_id
        reached = {
            number: nodes[each.kafka].id
            for number, each in self.here.brokers.all().items()
            if each.kafka in nodes
        }
        for topic in topics:
            yield topic, [reached.get(leader, own) for leader in topic.leaders]


Handler = Callable[[Door, Client, Any, int], Awaitable[Any]]
"""The answer to a request of a client, which came in this version of its API."""


def epoch_code(known: int, own: int) -> ErrorCode:
    """Why a client that knows a partition with one leader epoch gets no answer from a gateway with its `own`:
    it is to ask for the metadata, or the gateway does not know of that epoch yet (KIP-320).
    """
    if known in (NO_LEADER_EPOCH, own):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known < own else ErrorCode.UNKNOWN_LEADER_EPOCH


def named_once(
    resources: Iterable[Resource], key: Callable[[Resource], Hashable]
) -> list[tuple[Resource, Refusal | None]]:
    """The resources of a request, each `key` once, and why it is not looked at: it is named twice, or comes
    after KAFKA_RESOURCES_MAX others.
    """
    found: dict[Hashable, tuple[Resource, Refusal | None]] = {}
    for each in resources:
        refusal = None
        if key(each) in found:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "it is named twice in one request")
        elif len(found) >= KAFKA_RESOURCES_MAX:
            message = f"a request names at most {KAFKA_RESOURCES_MAX} resources; send several"
            refusal = Refusal(ErrorCode.POLICY_VIOLATION, message)
        found[key(each)] = each, refusal
    return [*found.values()]


async def in_thread(door: Door, change: Callable[[], Result]) -> Result:
    """The result of `change`, which may block. One that has begun goes on when its client is gone."""
    try:
        return await asyncio.get_running_loop().run_in_executor(door.changing, change)
    finally:
        door.here.changes.made += 1  # what was looked at before is old
