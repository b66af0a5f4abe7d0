"""Gateways that answer over HTTP in the process of a test, on its event loop: it sees their parts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from api.gateway import Gateway
from api.peer import PeerMiddleware
from api.process.app import create_app
from api.process.guard import GuardMiddleware
from api.process.server import gateway_of, listen, open_gateway, url_of
from ingest.settings import Settings
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import Store
from tests.kit.gateway import NEVER_MS
from tests.kit.run_credential import note_gateway, settings_of
from tests.kit.support import WAIT_S, wait_until

JSON = "application/vnd.kafka.json.v2+json"


@dataclass
class Served:
    """A gateway, and a client of it."""

    gateway: Gateway
    client: httpx.AsyncClient

    async def produce(
        self, topic: str, *records: dict[str, Any], partition: int | None = None
    ) -> httpx.Response:
        path = f"/topics/{topic}" + ("" if partition is None else f"/partitions/{partition}")
        return await self.client.post(path, json={"records": records}, headers={"Content-Type": JSON})


@asynccontextmanager
async def served(
    root: Path,
    wrap: Callable[[Store], Store] | None = None,
    sockets: Path | None = None,
    **given: Any,
) -> AsyncIterator[Served]:
    """A gateway with these settings that is stopped in order at the end; over what `wrap` makes of its store,
    if it is given. Those with the same `sockets` meet there.
    """
    listener = listen("127.0.0.1", 0)
    url = url_of("127.0.0.1", listener)
    own = "authentication_methods" in given
    given = {"linger_ms": 0, **({} if own else settings_of(root)), **given}
    settings = Settings(data=str(root), **{"leader_timeout_ms": NEVER_MS, **given})
    note_gateway(url, own)
    gateway = open_gateway(settings, url, sockets=sockets)
    if wrap is not None:
        cluster = Cluster.open(wrap(gateway.cluster.store), gateway.clock, url)
        gateway = gateway_of(cluster, gateway.settings, gateway.clock, sockets)
    app = GuardMiddleware(PeerMiddleware(create_app(gateway), gateway), gateway)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, ws="none"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await asyncio.to_thread(wait_until, lambda: server.started or serving.done(), "it listens")
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as client:
            yield Served(gateway, client)
    finally:
        server.should_exit = True
        await serving
