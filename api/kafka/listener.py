"""Listening for Kafka's clients: from the first connection to the last answer."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence

from api.gateway import Gateway
from api.kafka.clients.door import Door, ProducerIds, RoomLine
from api.kafka.connections.connection import Connection
from api.kafka.connections.connections import Connections
from coordinator.brokers.pipeline import Pipeline
from ingest.buffer import Buffer
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError
from log_tables.limits import KAFKA_ANSWERS_MAX_BYTES

Secured = Callable[[Callable[[], asyncio.Protocol]], asyncio.Protocol]
"""Makes the protocol of a new connection, which becomes the one that it is given."""

END_PAUSE_S = 0.02
"""How often a listener that closes looks whether all is answered."""

_log = logging.getLogger(__name__)


class Listener:
    """The listener of one gateway. Used on the event loop."""

    def __init__(
        self, here: Gateway, most: int, others: Callable[[], int], by_ip: Counter[str], secured: Secured
    ) -> None:
        """`most` connections at once, together with the `others`; `by_ip` counts all of them. `secured` puts
        the TLS handshake before a connection, where there is one.
        """
        self._here = here
        self._pipeline = Pipeline(here.router, here.writer, here.peers, here.clock, _say_lost)
        self._secured = secured
        self._connections = Connections(most, here.settings.max_connections_per_ip, others, by_ip)
        here.metrics.watch_kafka_connections(lambda: len(self))
        ids = ProducerIds(here.clock, here.settings.producer_ids_max)
        self.answers = Buffer(KAFKA_ANSWERS_MAX_BYTES, "of")
        self._door = Door(here, self._pipeline, self.answers, ids, RoomLine(here.buffer, here.clock))
        self._servers: list[asyncio.Server] = []

    async def start(self, sockets: Sequence[socket.socket], backlog: int) -> None:
        """Answer at these sockets, which are bound."""
        loop = asyncio.get_running_loop()
        for each in sockets:
            self._servers.append(
                await loop.create_server(
                    lambda: self._secured(lambda: Connection(self._door, self._connections)),
                    sock=each,
                    backlog=backlog,
                )
            )

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    async def close(self) -> None:
        """Accept nothing more, answer what came, and close the connections."""
        for server in self._servers:
            server.close()
        for connection in self._connections.each():
            connection.finish()
        try:
            async with asyncio.timeout(self._here.settings.shutdown_timeout_ms / 1_000):
                while self._connections.busy:  # noqa: ASYNC110 -- it ends
                    await asyncio.sleep(END_PAUSE_S)
                await self._pipeline.close()
        except TimeoutError:
            pass
        for connection in self._connections.each():
            connection.close()
        self._door.changing.shutdown(wait=False, cancel_futures=True)


def _say_lost(topic: Topic, error: LakelogError) -> None:
    _log.warning(
        "records of topic %s that were answered before they were durable are lost: %s", topic.name, error
    )
