"""The parts of a gateway that coordinate one group and lead all partitions, and its client's transactions."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from coordinator.groups.events import OffsetAndMetadata, TopicState
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group
from coordinator.groups.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionRequest,
    TransactionResult,
)
from ingest.buffer import Buffer, Room
from ingest.settings import Settings
from ingest.writer import Acks, AppendOutcome, Writer
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import AppendedRange
from log_tables.cluster.topic import Topic
from log_tables.errors import OutcomeUnknown, Retriable
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.store import Store, open_store
from log_tables.topic_partition import TopicPartition

IN0 = TopicPartition("in", 0)
OUT = ("out", "other")
TRANSACTIONS = 3
BATCHES = 2
"""Record batches that a transaction has for a partition: each is an append of its own."""


@dataclass
class Client:
    """A client's transactions, in order, and their answers: it outlives every gateway."""

    answers: list[tuple[AppendedRange, ...]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"k{len(self.answers)}"

    def asked(self, cluster: Cluster) -> TransactionRequest:
        """The next transaction: BATCHES records for each partition of OUT, and the offset after them."""
        number = len(self.answers)
        parts = [
            PartitionRecords(name, cluster.topic(name).topic_id, partition, batches(number, name, partition))
            for name in OUT
            for partition in range(2)
        ]
        forget = (f"k{number - 1}",) if number else ()
        return TransactionRequest(
            {IN0: OffsetAndMetadata(number + 1)}, parts, key=self.key, digest="d", forget=forget
        )


def batches(number: int, name: str, partition: int) -> list[pa.RecordBatch]:
    wanted = expected(number, name, partition)
    return [input_batch([Record(value)], 0) for value in wanted]


def expected(number: int, name: str, partition: int) -> list[bytes]:
    return [b"%d-%s-%d-%d" % (number, name.encode(), partition, place) for place in range(BATCHES)]


class Gateway:
    """The parts of a gateway that coordinate one group and lead all partitions, alone."""

    def __init__(self, store: Store, seed: int, keep_staged_s: float = 0.0) -> None:
        self.clock = ManualClock(seed=seed)
        self.cluster = Cluster.open(store, self.clock)
        self.writer = Writer(self.cluster, Settings(linger_ms=0), self.clock)
        self.happened: list[str] = []
        self.transactions = TransactionCoordinator(
            self.cluster,
            self._append,
            Buffer(1 << 30),
            self.clock,
            self.happened.append,
            lambda: keep_staged_s,
        )
        self.shard: Shard | None = None

    @property
    def group(self) -> Group:
        assert self.shard is not None
        return self.shard.group("g")

    async def start(self) -> None:
        await self.writer.start()
        accumulator = await self.writer.accumulator_for(self.cluster.topic(CONSUMER_OFFSETS), 0)
        self.shard = Shard(self.cluster, accumulator, self.clock)
        await asyncio.to_thread(self.shard.read)
        topics = self.cluster.topics(include_internal=True)
        self.shard.follow({t.name: TopicState(t.topic_id, t.partition_count) for t in topics})
        self.transactions.recover(self.shard)

    async def _append(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]], acks: Acks, room: Room
    ) -> list[AppendOutcome]:
        for partition, _ in parts:
            await self.writer.accumulator_for(topic, partition)
        return await self.writer.append(topic, parts, acks, room)

    async def serve(self, client: Client) -> None:
        """Have the next transaction of `client` done, and answered."""
        assert self.shard is not None
        done = await self.transactions.transact(
            self.shard, "g", None, client.asked(self.cluster), lambda _group: None
        )
        client.answers.append(await done.where())

    async def transact(self, asked: TransactionRequest) -> TransactionResult:
        assert self.shard is not None
        return await self.transactions.transact(self.shard, "g", None, asked, lambda _group: None)

    def staged(self, *topics: str) -> StagedFile:
        """Records for the first partition of each of `topics`, in one file."""
        parts = [
            PartitionRecords(name, self.cluster.topic(name).topic_id, 0, batches(0, name, 0))
            for name in topics
        ]
        return staging.stage(self.cluster.store, self.clock, "g", parts)

    async def known(self, key: str) -> TransactionResult | None:
        assert self.shard is not None
        return await self.transactions.find_repeat(self.shard, "g", key, "d")

    async def stop(self) -> None:
        assert self.shard is not None
        with suppress(Retriable, OutcomeUnknown):
            self.transactions.mark_applied(self.shard)
            await self.shard.wait_all_durable()
        await self.transactions.close()
        await self.writer.close()


def make_topics(store: Store) -> None:
    cluster = Cluster.open(store, ManualClock(seed=99))
    for name, partitions in (("in", 1), *((name, 2) for name in OUT)):
        create_topic(cluster, name, partitions)
    create_topic(cluster, CONSUMER_OFFSETS, 1, {"cleanup.policy": "compact"}, internal=True)
    source = cluster.topic("in").partition(0)
    source.claim("http://nowhere")
    source.append([AppendRequest(input_batch([Record(b"x")] * TRANSACTIONS, 0))])


def topics_made() -> Store:
    store = open_store("memory://")
    make_topics(store)
    return store


async def finish_until_refused(gateway: Gateway) -> None:
    """Finish transactions until the gateway notices, after a moment, that a file is lost."""
    while True:
        assert gateway.shard is not None
        await gateway.transactions.finish(gateway.shard, "g", force=False)
        await asyncio.to_thread(gateway.shard.refresh)
