"""The parts of a gateway that the answers to Kafka's clients are made of."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
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
from log_tables.limits import LOOKS_AT_ONCE

NO_LEADER_EPOCH = -1
"""The log never diverges, so a client has no use for the epoch of a leader."""


CHANGE_THREADS = 4
"""Requests to change topics that are worked at at once; others wait for them."""


WARN_AGAIN_S = 60.0
"""A client that asks for what is not offered is warned of once in that time: some ask again at once."""

WARNINGS_MAX = 1_000
"""Addresses that are warned of in WARN_AGAIN_S; others then make no line."""


class RefusalLog:
    """The addresses whose clients were warned of a short time ago. Used on the event loop."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def is_due(self, host: str, now_s: float) -> bool:
        """Whether to warn of a client at `host` now; then it is noted. `now_s`: a monotonic clock."""
        for earlier, since in [*islice(self._since.items(), 2)]:  # the oldest; one more than is added
            if now_s >= since + WARN_AGAIN_S:
                del self._since[earlier]
        before_s = self._since.get(host)
        if (before_s is not None and now_s < before_s + WARN_AGAIN_S) or len(self._since) >= WARNINGS_MAX:
            return False
        self._since.pop(host, None)
        self._since[host] = now_s
        return True


@dataclass(frozen=True, slots=True)
class Door:
    """`answers` is the memory that answers with records hold until their clients have taken them; `room_line`
    has the batches that wait for room.

    `changing` are the threads of changes of topics: one request may ask for thousands, and reads wait for
    none of them. `looks` are the partitions that wide requests open and look at side by side. `refusals` has
    the clients that asked for what is not offered.
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
    refusals: RefusalLog = field(default_factory=RefusalLog)

    def brokers(self) -> list[BrokerRecord]:
        """The gateways that live and that Kafka's clients can reach, by id. This one is among them."""
        found = self.here.brokers.all()
        # One may register between the two looks.
        living = (found.get(number) for number in self.here.brokers.living())
        return [each for each in living if each is not None and each.kafka]

    def leaders(self, topics: Iterable[TopicDescription]) -> Iterator[tuple[TopicDescription, list[int]]]:
        """`topics`, and the gateway to ask for each partition of each: its leader; this one where clients do
        not reach that. May be asked in any thread.
        """
        reached, own = {each.id for each in self.brokers()}, self.here.brokers.id
        for topic in topics:
            yield topic, [leader if leader in reached else own for leader in topic.leaders]


Handler = Callable[[Door, Client, Any, int], Awaitable[Any]]
"""The answer to a request of a client, which came in this version of its API."""
