"""Whole gateways that coordinate transactional ids over one store, and the clients of those ids.

A gateway is asked without a network. What it does in threads waits at a gate, so it may die between any two
steps, or go on late, when another one leads already. Files are staged by whoever asks, as at a third gateway.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.groups.producers.producer_wire import Answer, Request, decode_answer, encode_request
from ingest.settings import Settings
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import committed_offsets
from log_tables.errors import LakelogError
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import BATCH_MAX_BYTES
from log_tables.record import Record, input_batch, to_records
from log_tables.segments.producer_staging import ProducerFile, ProducerRecords, joined, stage
from log_tables.store.store import Store, open_store
from log_tables.topic_partition import TopicIdPartition
from tests.kit.gated_loop import GatedLoop

OUT, IN = "out", "in"
PARTITIONS = 2
NOWHERE = "http://nowhere"
PATIENCE_MS = 60_000
"""How long a client goes on when nothing fails any more."""


@dataclass(eq=False)
class Asked:
    """A question to a gateway, which it has answered, or (None) not yet."""

    outcome: Any = None


class Node:
    """A gateway, its event loop, and the tasks that answer its clients."""

    def __init__(self, world: "World", **settings: int) -> None:
        self.loop = GatedLoop(world.clock)
        asyncio.set_event_loop(self.loop)
        cluster = Cluster.open(world.store, world.clock, NOWHERE)
        asked = Settings(data=world.store.url, linger_ms=0, advertised_url=NOWHERE)
        asked = asked.model_copy(update={"peer_url": NOWHERE, **settings})
        self.gateway: Gateway = gateway_of(cluster, asked, world.clock)
        self.loop.create_task(self._start())
        self.loop.turn()
        self.alive = True
        self._tasks: set[asyncio.Task[None]] = set()

    async def _start(self) -> None:
        await self.gateway.writer.start()
        self.gateway.producer_duties.start()

    def ask(self, request: Request) -> Asked:
        """Ask the coordinator; the gateway takes over if it does not lead, as far as it knows."""
        return self.begin(self._answer(request))

    async def _answer(self, request: Request) -> Answer:
        return decode_answer(await self.gateway.producers.answer(encode_request(0, request)))

    def begin(self, work: Coroutine[Any, Any, Any]) -> Asked:
        """Have `work` done, as far as it comes without threads."""
        asked = Asked()

        async def answering() -> None:
            try:
                asked.outcome = await work or True
            except LakelogError as error:
                asked.outcome = error

        task = self.loop.create_task(answering())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.loop.turn()
        return asked

    def go_on(self, times: int, which: int = 0) -> None:
        """Do up to so many pieces of work, from any of those that wait on."""
        while self.loop.gates and times:
            self.loop.open(which)
            times -= 1

    def die(self, done: int = 0) -> None:
        """End amid all that is under way; `done` pieces of work are still done, and nobody hears of them."""
        self.alive = False
        with suppress(LakelogError):
            self.loop.die(done)


@dataclass
class World:
    """The store, and the gateways: the newest last, and zombies that do not know that it leads."""

    copy: Store | None = None
    """That of a root that is about to be copied, which `begin` follows."""
    clock: ManualClock = field(default_factory=lambda: ManualClock(seed=3))
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = self.copy or open_store("memory://")
        if self.copy is None:
            make_topics(self.store, self.clock)
            self.begin()

    def begin(self) -> None:
        """Have the first gateway begin."""
        self.come_to(self.store)
        self.nodes.append(Node(self))

    def come_to(self, store: Store) -> None:
        """Whoever begins from now on finds `store`."""
        self.store, self.cluster = store, Cluster.open(store, self.clock, NOWHERE)

    def at(self, partition: int) -> TopicIdPartition:
        return TopicIdPartition(OUT, self.cluster.topic(OUT).topic_id, partition)

    def advance(self, ms: int) -> None:
        """Let the time pass."""
        self.clock.advance(ms)
        for node in self.nodes:
            node.loop.turn()

    def finish(self, asked: Asked, node: Node) -> Any:
        """The answer, when nothing fails meanwhile."""
        for _ in range(PATIENCE_MS // 50):
            node.go_on(10_000)
            if asked.outcome is not None:
                return asked.outcome
            self.advance(50)
        raise AssertionError("a gateway does not answer")

    def stage(self, entries: Sequence[ProducerRecords]) -> ProducerFile:
        return stage(self.store, self.clock, 0, entries, joined(entries))

    def written(self, partition: int) -> list[bytes]:
        """The values in a partition."""
        log = self.cluster.topic(OUT).partition(partition)
        log.refresh(wait=True)
        values, offset = [], log.log_start
        while offset < log.high_watermark:
            plan = log.plan_read(offset, BATCH_MAX_BYTES)
            values += [each.value or b"" for batch in log.read(plan) for each in to_records(batch)]
            offset = plan.end
        return values

    def offsets(self) -> dict[str, int]:
        """The offsets that each group has committed."""
        log = self.cluster.topic(CONSUMER_OFFSETS).partition(0)
        log.refresh(wait=True)
        return {key.group: value.offset for key, value in committed_offsets([log]).items()}

    def end(self) -> None:
        for node in self.nodes:
            node.die()


def make_topics(store: Store, clock: ManualClock) -> None:
    """The topics of a world, in an empty store."""
    cluster = Cluster.open(store, clock, NOWHERE)
    create_topic(cluster, OUT, PARTITIONS)
    create_topic(cluster, IN, 1)
    create_topic(cluster, CONSUMER_OFFSETS, 1, {"cleanup.policy": "compact"}, internal=True)


def values_batch(values: Sequence[bytes]) -> Any:
    return input_batch([Record(value) for value in values], 0)
