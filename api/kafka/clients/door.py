"""The parts of a gateway that the answers to Kafka's clients are made of."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from api.client_topics import TopicDescription
from api.gateway import Gateway
from api.kafka.clients.client import Client
from api.kafka.clients.producer_ids import ProducerIds
from api.kafka.clients.room_line import RoomLine
from coordinator.brokers.pipeline import Pipeline
from ingest.buffer import Buffer
from ingest.wide import Wide
from log_tables.cluster.metadata_log import BrokerRecord

NO_LEADER_EPOCH = -1
"""The log never diverges, so a client has no use for the epoch of a leader."""


CHANGE_THREADS = 4
"""Requests to change topics that are worked at at once; others wait for them."""


LOOKS_AT_ONCE = 16
"""Half of the threads that look at the store: the others are for those who ask for one partition."""


@dataclass(frozen=True, slots=True)
class Door:
    """`answers` is the memory that answers with records hold until their clients have taken them; `room_line`
    has the batches that wait for room.

    `changing` are the threads of changes of topics: one request may ask for thousands, and reads wait for
    none of them. `looks` are the partitions that wide requests open and look at side by side.
    """

    here: Gateway
    pipeline: Pipeline
    answers: Buffer
    producer_ids: ProducerIds
    room_line: RoomLine
    changing: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(CHANGE_THREADS, thread_name_prefix="kafka-change")
    )
    looks: Wide = field(default_factory=lambda: Wide(LOOKS_AT_ONCE))

    def brokers(self) -> list[BrokerRecord]:
        """The gateways that live and that Kafka's clients can reach, by id. This one is among them."""
        found = self.here.brokers.all()
        return [found[number] for number in self.here.brokers.living() if found[number].kafka]

    def leaders(self, topics: Iterable[TopicDescription]) -> Iterator[tuple[TopicDescription, list[int]]]:
        """`topics`, and the gateway to ask for each partition of each: its leader; this one where clients do
        not reach that. May be asked in any thread.
        """
        reached, own = {each.id for each in self.brokers()}, self.here.brokers.id
        for topic in topics:
            yield topic, [leader if leader in reached else own for leader in topic.leaders]


Handler = Callable[[Door, Client, Any, int], Awaitable[Any]]
"""The answer to a request of a client, which came in this version of its API."""
