"""The parts of one gateway process, and how a route gets them."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from api.metrics import Metrics
from coordinator.access.access import Access
from coordinator.brokers.brokers import Brokers
from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from coordinator.brokers.router import Router
from coordinator.failure_log import FailureLog
from coordinator.groups.group_coordinator import GroupCoordinator
from coordinator.groups.shard_manager import ShardManager
from coordinator.groups.tail_follower import TailFollower
from ingest.buffer import Buffer
from ingest.settings import Settings
from ingest.writer import Writer
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.limits import SMALL_BODIES_MAX_BYTES, SMALL_BODY_FREE_BYTES


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts; values (`settings`) stay apart from components."""

    cluster: Cluster
    writer: Writer
    brokers: Brokers
    peers: Peers
    leadership: Leadership
    router: Router
    shard_manager: ShardManager
    coordinator: GroupCoordinator
    tails: TailFollower
    buffer: Buffer
    access: Access
    settings: Settings
    metrics: Metrics
    failures: FailureLog
    clock: Clock
    small_bodies: Buffer = field(
        default_factory=lambda: Buffer(SMALL_BODIES_MAX_BYTES, "of requests to", SMALL_BODY_FREE_BYTES)
    )
    """The room for bodies that bring no records."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway begins to stop: a waiting long poll then answers at once."""


def gateway(request: Request) -> Gateway:
    """The gateway that serves `request`: `app.state.gateway`."""
    found: Gateway = request.app.state.gateway
    return found


async def _here(request: Request) -> Gateway:
    # Async although it never waits: FastAPI would call a plain function in a thread, every time.
    return gateway(request)


Here = Annotated[Gateway, Depends(_here)]
"""A route's parameter that takes the gateway."""
