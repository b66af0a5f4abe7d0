"""One gateway process: open the root, listen, say when it is ready, stop in order."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import uvicorn
from starlette.types import ASGIApp

from api.access_log import AccessLog
from api.errors import code_of
from api.gateway import Gateway
from api.log_format import announced, log_to_stderr
from api.metrics import Metrics
from api.mirror_reports import MirrorReports
from api.peer import PeerMiddleware
from api.process.app import create_app
from api.process.browsers import with_cors
from api.process.cluster_secret import check_peers, peer_secrets, salt_key, with_peer_secret
from api.process.credential_duty import CredentialDuty, authenticator_of
from api.process.duties import Duty
from api.process.guard import GuardMiddleware
from api.process.protocol import Bounds, after_handshake, bounded, check_connections
from api.process.request_log import RequestLogMiddleware
from api.process.span_export import tracer_of
from api.process.tls import (
    RELOAD_INTERVAL_S,
    Handshake,
    HandshakeQueue,
    ServerCertificate,
    check_own_certificate,
    peer_context,
)
from api.session import SessionCipher
from api.standby_reports import StandbyReports
from coordinator.access.access import Access
from coordinator.access.audit import Audit, AuditedWrites, Writes
from coordinator.access.host import host_and_port, is_loopback
from coordinator.brokers.brokers import Brokers
from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peer_secret import PeerSecrets
from coordinator.brokers.peers import Peers
from coordinator.brokers.router import Router
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.group_coordinator import GroupCoordinator
from coordinator.groups.producers.ended_transactions import EndedTransactions
from coordinator.groups.producers.led_producers import LedProducers
from coordinator.groups.producers.producer_coordinator import ProducerCoordinator
from coordinator.groups.producers.producer_duties import ProducerDuties
from coordinator.groups.producers.producer_stager import ProducerStager
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.sessions.tail_follower import TailFollower
from coordinator.groups.shard_manager import ShardManager
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from coordinator.groups.wide_change import WideChange
from ingest.buffer import Buffer
from ingest.loop_share import LoopShare
from ingest.opening import cluster_of
from ingest.periodic_task import FailureLog
from ingest.request_trace import RequestIds
from ingest.settings import Settings
from ingest.writer import Writer
from log_tables.clock import Clock, SystemClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidConfig
from log_tables.limits import HANDSHAKE_S, REQUEST_BYTES
from log_tables.root.inspection import check_location
from log_tables.without_pandas import WithoutPandas

if TYPE_CHECKING:
    import aiohttp

    from api.kafka.listener import Listener

BACKLOG = 2_048
"""Connections that the kernel accepts before this process does."""

OTHER_FILES_MIN = 64
"""Files that are left for everything but connections, or a quarter of all, if that is more."""

GARBAGE_OBJECTS = 10_000
"""New objects after which the garbage collector looks for cycles. They may hold the bodies of requests that
failed: of about a hundred at most.
"""

SHUT = "this cluster is secured now, and this gateway authenticates nobody: it stops"
SHUT_STATUS = 2
"""The exit status of a gateway that must not serve."""

_LOOK_TICKS = 5
"""uvicorn's ticks, of 0.1 s, from one look at all connections to the next."""

_log = logging.getLogger(__name__)


def say(line: str) -> None:
    """Print a line on standard output, at once."""
    print(line, flush=True)


def run(
    settings: Settings,
    peer_port: int | None = None,
    ready: Callable[[str], None] = say,
    kafka_port: int | None = None,
    sockets: Path | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop accepting, answer what is in flight, flush and return.

    A second signal ends the process at once, which loses nothing that was acknowledged with acks=all.
    `ready` is given one line when requests are answered; it is printed by default. With `peer_port` this
    process shares its port with others, and listens on that one, too, for the other gateways, and at a Unix
    socket in the directory `sockets`, if there is one. Requests come first to what `around` makes of the
    application.

    Raises OSError when the address cannot be listened on, LakelogError when the root cannot be opened,
    SystemExit(1) when the flush was not done.
    """
    log_to_stderr(settings.log_level, settings.log_format)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.root.level))
    # api/errors.py has logged it already, with the reference that the client has.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "in ASGI application" not in record.msg)
    _raise_file_limit()
    sys.meta_path.insert(0, WithoutPandas())
    certificate = ServerCertificate(settings) if settings.ssl_certfile else None
    listeners = [listen(settings.host, settings.port, shared=peer_port is not None)]
    if peer_port is not None:
        listeners.append(listen(settings.host, peer_port, shared=True))
    urls = [url_of(settings.host, each, scheme_of(settings)) for each in listeners]
    kafka = kafka_sockets(settings, kafka_port)
    if kafka and not settings.kafka_advertised_listener:
        host, _ = host_and_port(settings.kafka_listener)
        told = {"kafka_advertised_listener": kafka_address(host, kafka[-1])}
        settings = settings.model_copy(update=told)
    gateway = open_gateway(settings, urls[0], urls[-1], sockets=sockets)
    if certificate is not None:
        _check_trust(gateway, certificate, several=peer_port is not None)
    bounds = _bounds(gateway, lambda: server.kafka_connections)
    queue = None
    if certificate is not None:
        queue = _handshakes(certificate, bounds, lambda: server.connections)
    config = uvicorn.Config(
        around(_application(gateway)),
        loop="uvloop",
        http=bounded(bounds) if queue is None else after_handshake(bounded(bounds), queue),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.shutdown_timeout_ms // 1_000,
    )
    server = _Server(config, gateway, ready, queue, KafkaDoor(kafka, bounds), forced=peer_port is None)
    gateway.metrics.watch_connections(
        lambda: server.connections + (0 if queue is None else len(queue)), bounds.max_connections
    )
    if certificate is not None:
        Duty("certificates", RELOAD_INTERVAL_S, certificate.reload, gateway.failures).start()
    try:
        server.run(listeners)
    except SystemExit:
        sys.exit(1)  # starting failed, and uvicorn has logged how; its own code means something else here
    if gateway.access.is_shut or gateway.brokers.is_refused:
        sys.exit(SHUT_STATUS)
    if server.lifespan.should_exit:
        sys.exit(1)  # flushing failed, and uvicorn has logged how


def _application(gateway: Gateway) -> ASGIApp:
    """All layers around the routes, the outermost first."""
    app = GuardMiddleware(PeerMiddleware(create_app(gateway), gateway), gateway)
    shared = with_cors(app, gateway.settings)
    if gateway.access_log is None and gateway.tracer is None:
        return shared
    return RequestLogMiddleware(shared, gateway.access_log, gateway.tracer)


def _bounds(gateway: Gateway, others: Callable[[], int]) -> Bounds:
    """The bounds of a connection. Files are reserved for tables, and for connections that are refused.
    `others` counts those of other doors.
    """
    settings = gateway.settings
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = settings.max_connections
    if files != resource.RLIM_INFINITY:
        most = max(1, min(most, files - max(OTHER_FILES_MIN, files // 4)))
    if most < settings.max_connections:
        _log.warning("%d files may be open, which is enough for %d connections", files, most)
    return Bounds(
        most,
        settings.max_connections_per_ip,
        settings.connections_max_idle_ms / 1_000,
        settings.receive_timeout_ms / 1_000,
        settings.send_timeout_ms / 1_000,
        gateway.metrics.request_failed,
        gateway.request_ids,
        gateway.access_log,
        others,
    )


def _handshakes(
    certificate: ServerCertificate, bounds: Bounds, connections: Callable[[], int]
) -> HandshakeQueue:
    timeout_s = min(HANDSHAKE_S, bounds.receive_s)
    return HandshakeQueue(certificate.context, connections, bounds.max_connections, bounds.per_ip, timeout_s)


def check_exposure(settings: Settings) -> None:
    """Raise InvalidConfig for a gateway that other machines would reach, at any of its doors, and that
    authenticates nobody, unless it is to be insecure.
    """
    if settings.authentication_methods:
        return
    hosts = {"host": settings.host}
    if settings.kafka_listener:
        hosts["kafka_listener"] = host_and_port(settings.kafka_listener)[0]
    for name, host in hosts.items():
        if host == "localhost" or is_loopback(host):
            continue
        if not settings.insecure:
            raise InvalidConfig(
                f"{name} = {getattr(settings, name)!r} lets other machines do everything, without "
                "authentication; set authentication_methods, such as api-key, or start it with --insecure"
            )
        _log.warning("whoever reaches %s may do everything: this gateway is insecure", host)


def scheme_of(settings: Settings) -> str:
    """How clients reach a gateway."""
    return "https" if settings.ssl_certfile else "http"


def _check_trust(gateway: Gateway, certificate: ServerCertificate, several: bool) -> None:
    """Say that other gateways will not trust this one. Raises InvalidConfig if there are `several`."""
    try:
        check_own_certificate(gateway.settings, certificate.context)
    except InvalidConfig as error:
        if several:
            raise
        _log.warning("%s, before you start another one", error)


def _raise_file_limit() -> None:
    """Allow as many open connections as the system lets this process ask for; often it starts with 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # macOS calls its limit infinite and then refuses that much
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int, shared: bool = False) -> socket.socket:
    """A socket bound to `host` and `port`, a free one when 0; others may be bound there, too, if `shared`.

    Raises OSError.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        refused = OSError(
            f"{at} cannot be listened on ({error.strerror}); stop what listens there, which may be another "
            "gateway, or choose another address or port, such as --port 0"
        )
        refused.errno = error.errno
        raise refused from None
    return listener


def url_of(host: str, listener: socket.socket, scheme: str = "http") -> str:
    """Where others reach a gateway that listens on `host`: a wildcard address stands for this machine."""
    port = listener.getsockname()[1]
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def kafka_sockets(settings: Settings, own_port: int | None) -> list[socket.socket]:
    """The sockets for Kafka's clients; with `own_port` the first is shared with other processes, and the last
    is this one's own, to which clients are led. Raises OSError.
    """
    if not settings.kafka_listener:
        return []
    host, port = host_and_port(settings.kafka_listener)
    if own_port is None:
        return [listen(host, port)]
    return [listen(host, port, shared=True), listen(host, own_port, shared=True)]


def kafka_address(host: str, listener: socket.socket) -> str:
    """Where Kafka's clients reach a gateway that listens on `host`, as `HOST:PORT`."""
    return url_of(host, listener).removeprefix("http://")


def open_gateway(
    settings: Settings,
    url: str,
    peer_url: str = "",
    clock: Clock | None = None,
    sockets: Path | None = None,
) -> Gateway:
    """The parts of a gateway that answers at `url`, other gateways at `peer_url`, unless the settings name
    others. `clock` is the machine's if none is given. Gateways with the same `sockets` meet there.
    """
    urls = {
        "advertised_url": settings.advertised_url or url,
        "peer_url": settings.peer_url or peer_url or url,
    }
    settings = settings.model_copy(update=urls)
    clock = clock or SystemClock()
    cluster = cluster_of(settings, clock, settings.peer_url, create=True)
    store = cluster.store
    check_location(cluster, settings.leader_timeout_ms / 1000)
    if settings.remote_root:
        set_remote_root(cluster, settings.remote_root)
    settings = with_peer_secret(settings, store, clock)
    gateway = gateway_of(cluster, settings, clock, sockets)
    if gateway.access.is_shut:
        raise InvalidConfig(
            "this cluster is secured, and this gateway authenticates nobody; name its methods with the "
            "setting authentication_methods, such as api-key"
        )
    if gateway.access.ignores_rules:
        _log.warning(
            "this cluster has ACLs or super users, and this gateway authenticates nobody: whoever reaches %s "
            "may do everything; set authentication_methods, such as api-key, and run `lakelog security "
            "enable`, after which no such gateway starts",
            settings.host,
        )
    wait_s = settings.leader_timeout_ms / 1000
    check_peers(
        cluster,
        PeerSecrets(peer_secrets(settings, store, clock), cluster.cluster_id),
        settings.peer_url,
        wait_s,
    )
    if gateway.access.authenticator is not None:
        CredentialDuty(cluster, gateway.access.authenticator).run()
    return gateway


def _audit_of(settings: Settings, clock: Clock, metrics: Metrics) -> Audit:
    writes = Writes(AuditedWrites(settings.audit_writes), settings.audit_writes_interval_ms / 1000)
    return Audit(clock, code_of, metrics.audit_dropped, writes=writes)


def gateway_of(
    cluster: Cluster,
    settings: Settings,
    clock: Clock,
    sockets: Path | None = None,
    session: "aiohttp.ClientSession | None" = None,
    ended: Callable[[], None] | None = None,
) -> Gateway:
    """The parts of a gateway that serves `cluster`; the settings name its URLs. It asks others by `session`,
    or by one that it makes. `ended` is called when it must end, instead of a signal to this process.
    """
    shared = peer_secrets(settings, cluster.store, clock)
    secrets = PeerSecrets(shared, cluster.cluster_id)
    metrics = Metrics()
    failures = FailureLog(metrics.duty_failed)
    buffer = Buffer(settings.buffer_memory, request_bytes=REQUEST_BYTES)
    tracer = tracer_of(os.environ)
    authenticator = authenticator_of(settings, clock, failures, salt_key(shared, cluster.cluster_id))
    audited = authenticator is not None and settings.audit_enable
    audit = _audit_of(settings, clock, metrics) if audited else None
    authored = None if audit is None or settings.audit_writes != "ranges" else audit.wrote
    writer = Writer(cluster, settings, clock, metrics.committed, tracer, failures, authored)
    brokers = Brokers(cluster, settings, clock, failures, secrets, ended or _end)
    trust = peer_context(settings) if settings.peer_ca_certs else None
    peers = Peers(brokers, trust, settings.peer_server_name, tracer, sockets, session)
    leadership = Leadership(cluster, writer, brokers, peers, clock, failures)
    router = Router(writer, leadership, brokers, peers, settings, clock, metrics.forwarded)
    standbys = StandbyReports(cluster.store, clock)
    transactions = TransactionCoordinator(
        cluster, router.append, buffer, clock, metrics.transaction, standbys.keep_staged_s
    )
    tails = TailFollower(clock)
    consumers = SessionManager(cluster, tails, clock)
    access = Access(
        lambda: cluster.metadata_log.access, clock, authenticator, audit, settings.principal_requests_max
    )
    shards = ShardManager(cluster, leadership, consumers, transactions, access, settings, clock, failures)
    loop_share = LoopShare()
    wide_change = WideChange(loop_share)
    coordinator = GroupCoordinator(
        cluster, shards, consumers, transactions, wide_change, clock, settings.group_undo_ms
    )
    classic = ClassicCoordinator(shards, leadership, peers, coordinator, consumers, wide_change, clock)
    ends = EndedTransactions(cluster.store, classic, transactions, clock)
    led = LedProducers(shards.shards, ends, settings, clock, metrics.transaction)
    producers = ProducerCoordinator(shards.shards, leadership, peers, classic, led)
    return Gateway(
        cluster,
        writer,
        brokers,
        peers,
        leadership,
        router,
        shards,
        coordinator,
        classic,
        producers,
        ProducerStager(cluster.store, producers, clock, writer.room.check),
        ProducerDuties(shards.shards, led, producers, classic, clock, failures),
        ends,
        tails,
        buffer,
        access,
        SessionCipher(shared, cluster.cluster_id, clock, settings.advertised_url.startswith("https:")),
        settings,
        metrics,
        failures,
        clock,
        RequestIds(clock.random_hex(12)),
        loop_share,
        MirrorReports(cluster, clock),
        standbys,
        AccessLog() if settings.access_log_enable else None,
        tracer,
        sockets,
    )


def _end() -> None:
    """Another gateway has this one's URL, or another secret: a partition could not be asked."""
    os.kill(os.getpid(), signal.SIGTERM)


class KafkaDoor(NamedTuple):
    """The sockets for Kafka's clients, none without a door for them, and what bounds their connections."""

    sockets: Sequence[socket.socket]
    bounds: Bounds


class _Server(uvicorn.Server):
    """uvicorn, which says when it is ready, wakes long polls when it stops, and ends with exit code 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        ready: Callable[[str], None],
        handshakes: HandshakeQueue | None,
        kafka: KafkaDoor,
        forced: bool,
    ) -> None:
        """With `forced` a second signal ends it at once; a worker may get both its own and its parent's."""
        super().__init__(config)
        self._gateway, self._ready, self._forced = gateway, ready, forced
        self._handshakes, self._kafka_door = handshakes, kafka
        self._kafka: Listener | None = None
        self._leaving: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many clients are connected, at all doors."""
        return len(self.server_state.connections) + self.kafka_connections

    @property
    def kafka_connections(self) -> int:
        """How many of Kafka's clients are connected."""
        return 0 if self._kafka is None else len(self._kafka)

    def _secured(self, made: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol that `made` makes, after the TLS handshake if there is one."""
        return made() if self._handshakes is None else Handshake(self._handshakes, made)

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK_TICKS == 0:
            check_connections(self.server_state.connections, asyncio.get_running_loop().time())
            if self._gateway.access.is_shut and self._leaving is None:
                _log.error(SHUT)
                self._stop(signal.SIGTERM)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own would raise the signal again after an orderly stop and so make it look like a crash.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        yield

    def _stop(self, number: int) -> None:
        if self._leaving is not None:
            if self._forced:
                _forced_end(number)
            return
        self._leaving = asyncio.create_task(self._leave())

    async def _leave(self) -> None:
        """Hand over while requests still come, which would else meet a closed connection; then stop."""
        try:
            async with asyncio.timeout(self._gateway.settings.shutdown_timeout_ms / 1_000):
                await self._gateway.leadership.close()
        except TimeoutError:
            _log.warning("not everything was handed over to the other gateways in time")
        except Exception:  # noqa: BLE001 -- the process ends in any case
            _log.exception("handing over to the other gateways failed")
        self.should_exit = True
        self._gateway.stopping.set()
        self._gateway.coordinator.wake()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._handshakes is not None:
            self._handshakes.close()
        if self._kafka is not None:
            await self._kafka.close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._gateway.brokers.is_refused:
            return
        settings = self._gateway.settings
        if self._kafka_door.sockets:
            from api.kafka.listener import Listener  # a gateway without Kafka's clients needs none of it

            bounds, connections = self._kafka_door.bounds, self.server_state.connections
            self._kafka = Listener(
                self._gateway, bounds.max_connections, lambda: len(connections), bounds.by_ip, self._secured
            )
            await self._kafka.start(self._kafka_door.sockets, BACKLOG)
        _settle_memory()
        line = f"lakelog is ready at {settings.advertised_url} (data: {settings.data})"
        self._ready(announced(line, settings.log_format))


def _forced_end(number: int) -> NoReturn:
    _log.warning("stopped by a second signal: what was not flushed is lost")
    os._exit(128 + number)


def _settle_memory() -> None:
    """Keep all loaded objects out of the garbage collector, which would walk them again and again.

    It then looks for garbage less often: the requests under way alone have more than Python's 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
