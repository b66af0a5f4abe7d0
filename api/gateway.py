"""The parts of one gateway process."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from api.access_log import AccessLog
from api.metrics import Metrics
from api.mirror_reports import MirrorReports
from api.session import SessionCipher
from api.standby_reports import StandbyReports
from coordinator.access.access import Access
from coordinator.brokers.brokers import Brokers
from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from coordinator.brokers.router import Router
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.group_coordinator import GroupCoordinator
from coordinator.groups.producers.ended_transactions import EndedTransactions
from coordinator.groups.producers.producer_coordinator import ProducerCoordinator
from coordinator.groups.producers.producer_duties import ProducerDuties
from coordinator.groups.producers.producer_stager import ProducerStager
from coordinator.groups.sessions.tail_follower import TailFollower
from coordinator.groups.shard_manager import ShardManager
from ingest.buffer import Buffer
from ingest.loop_share import LoopShare
from ingest.periodic_task import FailureLog
from ingest.request_trace import RequestIds, Tracer
from ingest.settings import Settings
from ingest.writer import Writer
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.limits import SMALL_BODIES_MAX_BYTES, SMALL_BODY_FREE_BYTES

ROOM = "room"
"""The duty that fails while the disk of the root is full."""


@dataclass(slots=True)
class ChangeCount:
    """How many changes of topics, groups and access clients have made through this gateway."""

    made: int = 0


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
    classic: ClassicCoordinator
    producers: ProducerCoordinator
    stager: ProducerStager
    producer_duties: ProducerDuties
    ended: EndedTransactions
    tails: TailFollower
    buffer: Buffer
    access: Access
    sessions: SessionCipher
    settings: Settings
    metrics: Metrics
    failures: FailureLog
    clock: Clock
    request_ids: RequestIds
    loop_share: LoopShare
    mirrors: MirrorReports
    standbys: StandbyReports
    access_log: AccessLog | None = None
    tracer: Tracer | None = None
    sockets: Path | None = None
    """The directory of the Unix sockets of this machine's gateways, if they have any."""

    small_bodies: Buffer = field(
        default_factory=lambda: Buffer(SMALL_BODIES_MAX_BYTES, "of requests to", SMALL_BODY_FREE_BYTES)
    )
    """The room for bodies that bring no records."""

    changes: ChangeCount = field(default_factory=ChangeCount)

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway begins to stop: a waiting long poll then answers at once."""
