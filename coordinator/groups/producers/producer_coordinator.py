"""The coordinator of transactional ids: what their clients ask, wherever it is led (KIP-98, KIP-890).

A request goes to the leader of the id's partition of `__consumer_offsets` (`led_producers`).
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain

from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from coordinator.groups.classic.events import CommitOffsets, PendOffsets
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.group_wire import Refused
from coordinator.groups.offsets_topic import OffsetsTopic
from coordinator.groups.producers.led_producers import LedProducers
from coordinator.groups.producers.producer_view import OpenFigures
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    AddPartitions,
    Answer,
    Describe,
    Descriptions,
    EndTransaction,
    Failed,
    InitProducer,
    Producer,
    ProducerDescription,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    failure_of,
)
from coordinator.groups.shards import Shards
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import (
    InvalidArgument,
    LakelogError,
    NotLeader,
)

NAME_MAX_BYTES = 1_000
"""The longest transactional id."""


class ProducerCoordinator:
    """The transactional ids of a cluster. Used on the event loop.

    Its methods raise NotLeader while the coordinator of an id changes, and StoreUnavailable, OutcomeUnknown,
    Damaged; InvalidArgument for a name that no id can have.
    """

    def __init__(
        self,
        shards: Shards,
        leadership: Leadership,
        peers: Peers,
        classic: ClassicCoordinator,
        led: LedProducers,
    ) -> None:
        self._shards, self._leadership, self._peers = shards, leadership, peers
        self._classic, self._led = classic, led

    @property
    def offsets(self) -> OffsetsTopic:
        """`__consumer_offsets`, whose partitions coordinate the ids."""
        return self._shards.offsets

    async def partition_of(self, name: str) -> int:
        """The partition of `__consumer_offsets` that coordinates the id. Raises InvalidArgument."""
        if not 1 <= len(name.encode()) <= NAME_MAX_BYTES:
            raise InvalidArgument(
                f"the transactional id {name[:40]!r} cannot be used; use 1 to {NAME_MAX_BYTES} bytes"
            )
        return await self.offsets.partition_of_key(name)

    async def coordinator_of(self, name: str) -> BrokerRecord | None:
        """The gateway that coordinates an id, or is the one to begin it; None is this one."""
        return await self._shards.coordinator_of(await self.partition_of(name))

    async def begin(self, asked: InitProducer) -> Producer:
        """Begin with an id: older producers are fenced, an open transaction is aborted.

        Raises InvalidTransactionTimeout, ConcurrentTransactions, StaleProducerEpoch, UnknownProducer.
        """
        return _producer(await self.ask(await self.partition_of(asked.id), asked))

    async def add_partitions(self, asked: AddPartitions) -> None:
        """Add partitions to a transaction. Raises as `begin`."""
        await self.ask(await self.partition_of(asked.id), asked)

    async def add_offsets(self, asked: AddOffsets) -> int:
        """Add a group to a transaction. Returns its number. Raises as `begin`, InvalidTransactionState."""
        return _producer(await self.ask(await self.partition_of(asked.id), asked)).number

    async def commit_offsets(self, asked: AddOffsets, commit: CommitOffsets) -> Refused:
        """Have the offsets of a group wait for the end of a transaction; returns why some of them may not.
        Raises what `add_offsets` and `ClassicCoordinator.commit` raise.
        """
        number = await self.add_offsets(asked)
        return await self._classic.pend(asked.group, PendOffsets(asked.id, asked.producer_id, number, commit))

    async def end(self, asked: EndTransaction) -> Producer:
        """End a transaction: its records are in their partitions then, or will be. Raises as `begin`,
        InvalidTransactionState.
        """
        return _producer(await self.ask(await self.partition_of(asked.id), asked))

    async def describe(self, name: str) -> ProducerDescription | None:
        """An id as its coordinator has it; None if there is none. Raises InvalidArgument."""
        found = _descriptions(await self.ask(await self.partition_of(name), Describe((name,))))
        return found[0] if found else None

    async def open_transactions(self) -> list[ProducerDescription]:
        """The ids of all gateways with a transaction that is open or takes effect, the oldest first."""
        if not await self.offsets.exists():
            return []
        partitions = range((await self.offsets.topic()).partition_count)
        answers = await asyncio.gather(*(self.ask(partition, Describe(None)) for partition in partitions))
        found = [each for answer in answers for each in _descriptions(answer)]
        return sorted(found, key=lambda each: each.began_ms)

    def open_figures(self) -> OpenFigures:
        """The open transactions whose ids this gateway coordinates, as figures."""
        return self._led.view.open_figures()

    async def coordinated_here(self) -> Iterator[ProducerDescription]:
        """The ids that this gateway coordinates, or will on their next request."""
        if not await self.offsets.exists():
            return iter(())
        shards = []
        for partition in self._leadership.led_here(await self.offsets.topic(), 0):
            with suppress(NotLeader):  # another gateway says it
                shards.append(await self._shards.shard(partition))
        return chain.from_iterable(map(self._led.view.each_of, shards))

    async def ask(self, partition: int, request: Request) -> Answer:
        """The answer of the leader of a partition of `__consumer_offsets`. Raises the error that it says."""
        here, there = partial(self._answered, partition, request), partial(self._asked, partition, request)
        return await self._shards.at_coordinator(partition, here, there)

    async def _asked(self, partition: int, request: Request, broker: BrokerRecord) -> Answer:
        return decode_answer(await self._peers.ask_producers(broker, encode_request(partition, request)))

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request that another gateway has forwarded: it goes no further."""
        try:
            partition, request = decode_request(body)
            await self._leadership.become_leader(await self.offsets.topic(), partition, forwarded=True)
            return encode_answer(await self._answered(partition, request))
        except LakelogError as error:
            return encode_answer(Failed(failure_of(error)))

    async def _answered(self, partition: int, request: Request) -> Answer:
        try:
            return await self._led.act(await self._shards.shard(partition), request)
        except NotLeader:
            return await self._led.act(await self._shards.shard(partition), request)


def _descriptions(answer: Answer) -> tuple[ProducerDescription, ...]:
    assert isinstance(answer, Descriptions)
    return answer.each


def _producer(answer: Answer) -> Producer:
    assert isinstance(answer, Producer)
    return answer
