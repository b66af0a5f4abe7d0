"""A gateway as a simulated process: all of its parts but the sockets."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from api.gateway import Gateway
from api.kafka.connections.connection import Connection
from api.kafka.listener import Listener
from api.process import server
from api.process.credential_duty import CredentialDuty
from ingest.settings import Settings
from log_tables.cluster.cluster import Cluster
from log_tables.errors import LakelogError
from log_tables.store.store import Store
from tests.simulation.network import Network, PeerSession
from tests.simulation.scheduler import Process

Opened = Callable[[Process], Store]
"""The store of the root, as a process opens it."""


UNFLUSHED = "OutcomeUnknown: not everything was flushed within"
"""What a gateway ends with if its store lets it wait too long."""

MOST = 1_000
"""Connections of Kafka's clients."""


class SimulatedGateway:
    """A gateway at `url`, from its start to its death."""

    def __init__(
        self,
        process: Process,
        url: str,
        opened: Opened,
        network: Network,
        settings: Mapping[str, Any],
    ) -> None:
        self.process, self.url = process, url
        self._opened, self._network, self.settings = opened, network, settings
        self.gateway: Gateway | None = None
        self.serves = self.has_served = self.ended = False
        self.has_flushed = True
        self._told_to_stop = False
        self._stopping: asyncio.Event | None = None
        process.loop.call_soon(lambda: process.loop.create_task(self._run()))

    def stop(self) -> None:
        """Let it end in order, as SIGTERM does."""
        self._told_to_stop = True
        if self._stopping is not None:
            self.process.loop.call_soon(self._stopping.set)

    def _end_itself(self) -> None:
        self.process.scheduler.note(self.process.name, "ends itself")
        self.stop()

    async def _run(self) -> None:
        scheduler = self.process.scheduler
        try:
            await self._serve()
        except LakelogError as error:  # whoever has started it starts it again
            scheduler.note(self.process.name, f"does not start: {error.code}")
        except Exception as error:  # noqa: BLE001 -- told to whoever judges
            scheduler.failed(self.process.name, error)
        self.ended = True
        self._network.end(self.url)
        self.process.kill()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        store = self._opened(self.process)
        settings = Settings(
            data=store.url,
            advertised_url=self.url,
            peer_url=self.url,
            kafka_listener="127.0.0.1:9092",
            kafka_advertised_listener=kafka_address(self.url),
            **self.settings,
        )
        cluster = Cluster.open(store, self.process.clock, self.url)
        session: Any = PeerSession(self._network, self.process)
        self.gateway = server.gateway_of(
            cluster, settings, self.process.clock, session=session, ended=self._end_itself
        )
        if self.gateway.access.authenticator is not None:  # as `server.open_gateway` does
            CredentialDuty(cluster, self.gateway.access.authenticator).run()
        app = server._application(self.gateway)
        lifespan = _Lifespan(app)
        await lifespan.start()
        self._network.listen(self.url, self.process, app)
        listener = Listener(self.gateway, MOST, lambda: 0, Counter(), lambda make: make())
        self._network.listen_kafka(
            kafka_address(self.url),
            self.process,
            lambda: Connection(listener._door, listener._connections),
        )
        self.serves = self.has_served = True
        if not self._told_to_stop:
            await self._stopping.wait()
        self.serves = False
        self._network.end(self.url)
        await listener.close()
        try:
            await lifespan.end()
        except _Refused as error:
            if UNFLUSHED not in str(error):
                raise
            self.process.scheduler.note(self.process.name, "ends before all is flushed")
            self.has_flushed = False


def kafka_address(url: str) -> str:
    """Where Kafka's clients reach the gateway at `url`, as HOST:PORT."""
    return f"{urlsplit(url).hostname}:9092"


class _Refused(AssertionError):
    """An application did not begin or end."""


class _Lifespan:
    """The messages by which a server tells an application of its own begin and end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asked: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        work: Any = self._app(scope, self._asked.get, self._said.put)
        self._task = asyncio.create_task(work)
        await self._ask("lifespan.startup")

    async def end(self) -> None:
        await self._ask("lifespan.shutdown")

    async def _ask(self, kind: str) -> None:
        await self._asked.put({"type": kind})
        said = await self._said.get()
        if said["type"] != f"{kind}.complete":
            raise _Refused(f"{kind} fails: {said}")
