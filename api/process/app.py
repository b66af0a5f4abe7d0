"""The application: all routers, the one form of errors, and the background duties."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cache

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from api.console import files
from api.console.pages import (
    access,
    deleted_topics,
    export,
    groups,
    help_page,
    history,
    login,
    maintenance,
    messages,
    mirror_change,
    offset_reset,
    open_transactions,
    overview,
    partition,
    produce_page,
    sql,
    topic,
    topic_change,
)
from api.console.pages import mirrors as mirror_pages
from api.console.state import ConsoleState
from api.errors import ANY_OTHER_ERROR, add_error_handlers
from api.gateway import Gateway
from api.peer_door import PeerDoor
from api.process import ops
from api.process.audit_duty import AuditDuty
from api.process.duties import DUTY_END_S, duties, table_sizes
from api.process.fold_duty import FoldDuty, FoldLags
from api.process.lag_metrics import LagMetrics, group_lags, lag_sums
from api.process.mirror_metrics import MirrorFollower, MirrorMetrics
from api.process.standby_metrics import StandbyMetrics
from api.requests.child_process import CommandRunner
from api.requests.hot import HotRoutes
from api.samples import SampleLog
from api.v2 import (
    consumer_offsets,
    consumer_records,
    consumers,
    fetch,
    mirrors,
    produce,
    schemas,
    standbys,
    topics,
    transactions,
    values,
)
from api.v2 import (
    deleted_topics as v2_deleted_topics,
)
from api.v3 import acls as v3_acls
from api.v3 import clusters
from api.v3 import groups as v3_groups
from api.v3 import history as v3_history
from api.v3 import records as v3_records
from api.v3 import topics as v3
from log_tables.cluster.admin.undelete import deletions
from log_tables.errors import LakelogError, OutcomeUnknown
from log_tables.version import VERSION

LOOK_THREADS = 32
"""Looks at the store at once: they wait for it, not for a core, of which asyncio would have only 4 more."""

# A route is looked for in this order: the hot ones first.
_PARTS = (
    produce,
    values,
    topics,
    v2_deleted_topics,
    schemas,
    fetch,
    consumers,
    consumer_records,
    consumer_offsets,
    transactions,
    mirrors,
    standbys,
    clusters,
    v3,
    v3_records,
    v3_groups,
    v3_acls,
    v3_history,
    ops,
)

CONSOLE = (
    files.router,
    login.router,
    login.oidc,
    login.callback,
    overview.router,
    overview.figures,
    topic.all_topics,
    history.topics,
    history.access,
    deleted_topics.router,
    topic_change.new_topics,
    topic_change.router,
    topic.router,
    messages.router,
    export.router,
    produce_page.router,
    partition.router,
    groups.router,
    groups.histories,
    mirror_pages.router,
    mirror_change.new_mirrors,
    mirror_change.router,
    open_transactions.router,
    offset_reset.router,
    sql.router,
    maintenance.router,
    access.router,
    help_page.router,
)
"""Those of the console. A path is looked for in this order: `new` is no topic."""

_DESCRIPTION = """\
A streaming log on the lakehouse. A topic is a set of partitions, and a partition is a Delta table. Versions
2 and 3 follow the Confluent REST Proxy. Record headers, timestamps, transactions and a stateless fetch are
added.
"""


class _App(FastAPI):
    """FastAPI, which is not asked about requests to hot routes."""

    def build_middleware_stack(self) -> ASGIApp:
        routes = [route for part in _PARTS for route in part.router.routes]
        return HotRoutes(super().build_middleware_stack(), routes)


@cache
def routes() -> tuple[BaseRoute, ...]:
    """All routes, made once in a process, as no route knows a gateway.

    FastAPI would make them at the first request of each application: 0.15 s of the event loop.
    """
    made = APIRouter(redirect_slashes=False, responses=ANY_OTHER_ERROR)
    for router in (*(part.router for part in _PARTS), *CONSOLE, ops.docs, ops.redoc, ops.openapi):
        made.include_router(router)
    for route in made.routes:
        route.matches({"type": "http", "method": "GET", "path": "/", "root_path": ""})
    return (*made.routes,)


def create_app(gateway: Gateway) -> FastAPI:
    """The ASGI application of `gateway`: it starts the gateway's writer, and flushes it at the end."""
    figures = SampleLog(
        gateway.metrics,
        lambda: gateway.buffer.used,
        lambda: lag_sums(gateway.shard_manager, gateway.cluster, gateway.clock),
        gateway.clock,
    )
    state = ConsoleState(gateway, figures)
    mirrored = MirrorFollower(gateway.cluster, gateway.mirrors, gateway.leadership.is_first)
    folds = FoldDuty(gateway.cluster, gateway.leadership.folds, gateway.leadership.is_led, gateway.clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        looking = ThreadPoolExecutor(LOOK_THREADS, thread_name_prefix="look")
        asyncio.get_running_loop().set_default_executor(looking)
        await gateway.writer.start()
        door = None if gateway.sockets is None else PeerDoor(gateway, gateway.sockets)
        if door is not None:
            await door.start()
        await gateway.brokers.start()
        await gateway.leadership.start()
        await gateway.shard_manager.start()
        gateway.producer_duties.start()
        auditing = AuditDuty(gateway)
        auditing.start()
        beside = duties(gateway, folds, figures, mirrored)
        for duty in beside:
            duty.start()
        try:
            yield
        finally:
            gateway.stopping.set()
            await state.close()
            for duty in beside:
                duty.stop()
            await _end(gateway, auditing)
            if door is not None:
                await door.close()
            for duty in beside:
                await asyncio.to_thread(duty.join, DUTY_END_S)
            with suppress(LakelogError):  # the next gateway does the rest
                await asyncio.to_thread(folds.run)

    app = _App(
        redirect_slashes=False,
        docs_url=None,  # those of api/process/ops.py need no other host
        redoc_url=None,
        openapi_url=None,
        title="lakelog",
        version=VERSION,
        description=_DESCRIPTION,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # /metrics has what is measured
        responses=ANY_OTHER_ERROR,
    )
    app.state.gateway, app.state.console = gateway, state
    app.state.commands = CommandRunner(gateway.settings, gateway.clock, gateway.stopping)
    _watch(gateway, folds, mirrored)
    add_error_handlers(app)
    app.router.routes.extend(routes())
    return app


def _watch(gateway: Gateway, folds: FoldDuty, mirrored: MirrorFollower) -> None:
    """Let the metrics ask the parts for what these know."""
    gateway.metrics.watch_buffer(lambda: gateway.buffer.used, gateway.settings.buffer_memory)
    if gateway.writer.budget is not None:
        gateway.metrics.watch_budget(gateway.writer.budget)
    gateway.metrics.watch_debt(gateway.writer.debt)
    gateway.metrics.watch_room(gateway.writer.room)
    authenticator = gateway.access.authenticator
    if authenticator is not None:
        gateway.metrics.watch_authentications(lambda: authenticator.counts)
    gateway.metrics.watch_transactions(gateway.producers.open_figures)
    gateway.metrics.watch_deleted_topics(
        lambda: sum(each.bytes for each in deletions(gateway.cluster)),
    )
    gateway.metrics.watch_brokers(lambda: len(gateway.brokers.living()))
    gateway.metrics.watch_tables(lambda: table_sizes(gateway.cluster))
    gateway.metrics.watch_schemas(gateway.cluster.schema_sources.counts)
    gateway.metrics.watch(FoldLags(folds.lags))
    gateway.metrics.watch(MirrorMetrics(mirrored.figures))
    gateway.metrics.watch(
        StandbyMetrics(
            lambda: [each for each in gateway.standbys.seen() if gateway.leadership.is_first(each.target)]
        )
    )
    gateway.metrics.watch(
        LagMetrics(lambda: group_lags(gateway.shard_manager, gateway.cluster, gateway.clock))
    )


async def _end(gateway: Gateway, auditing: AuditDuty) -> None:
    """Finish what was taken, hand over what is led, and leave."""
    timeout_ms = gateway.settings.shutdown_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            gateway.coordinator.wake()
            await gateway.stager.close()
            await gateway.producer_duties.close()
            await gateway.ended.close()
            await gateway.shard_manager.close()
            await auditing.close()
            await gateway.router.close()
            await gateway.leadership.close()
            await gateway.writer.close()
            await gateway.brokers.close()
            await gateway.peers.close()
            gateway.loop_share.close()
    except TimeoutError:
        raise OutcomeUnknown(
            f"not everything was flushed within {timeout_ms} ms: records sent with acks 0 or 1 may be lost;"
            " look where the topics end, and allow a longer shutdown_timeout_ms"
        ) from None
    finally:
        await auditing.finish()
