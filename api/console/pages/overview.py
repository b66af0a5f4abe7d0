"""The first page: the gateways, what goes through them, and what is wrong now."""

from collections.abc import Callable, Sequence

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import ClusterState
from api.console.drawing.curve import curve
from api.console.drawing.page import duration, number, render, size
from api.console.drawing.page_route import PageRoute
from api.console.facts.gateways import GatewayView, all_gateways, own_figures, summed
from api.console.facts.problems import problems
from api.console.state import console
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.samples import Sample
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.topic import is_internal

router = APIRouter(prefix="/console", include_in_schema=False, route_class=PageRoute)
figures = APIRouter(prefix="/console/figures", include_in_schema=False, route_class=StrictRoute)

TOPICS_SHOWN = 50
"""Topics that the list of what a gateway leads names."""

_SHOWN = (
    ("Records in, per second", "produced", number),
    ("Bytes in, per second", "produced_bytes", size),
    ("Records out, per second", "fetched", number),
    ("Commits, p99", "commit_p99_ms", lambda ms: duration(ms / 1000)),
)


@figures.get("")
async def figures_of_here(request: Request, here: Here) -> Response:
    """The figures of this gateway, which others ask for."""
    return Response(msgspec.json.encode(own_figures(request, here)), media_type="application/json")


@router.get("")
async def overview(request: Request, here: Here, asked: Asked) -> Response:
    """The page."""
    look = _visible(await console(request).index.look(), asked)
    topics = look.topics.values()
    is_operator = asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    gateways = await all_gateways(request, here, asked.context) if is_operator else []
    found = await problems(here, look, gateways) if is_operator else []
    samples = summed(each.figures.samples for each in gateways if each.figures is not None)
    values = {
        "topics": topics,
        "records": sum(each.records for each in topics),
        "bytes": sum(each.size_bytes for each in topics),
        "rate": sum(each.rate for each in topics),
        "partitions": sum(each.partition_count for each in topics),
        "groups": look.groups,
        "gateways": gateways,
        "led": {each.broker.id: _led(each, asked) for each in gateways},
        "topics_shown": TOPICS_SHOWN,
        "is_internal": is_internal,
        "problems": found,
        "is_operator": is_operator,
        "curves": [(label, _curve(samples, label, name, shown)) for label, name, shown in _SHOWN],
    }
    return render(request, "overview.html", values, asked)


def _visible(look: ClusterState, asked: Caller) -> ClusterState:
    """The topics and the groups that the reader may know of, and the lags in them."""
    topics = {name: each for name, each in look.topics.items() if asked.describes(name)}
    groups = {
        name: each
        for name, each in look.groups.items()
        if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, name)
    }
    lags = {name: [each for each in look.of_group.get(name, ()) if each.topic in topics] for name in groups}
    return look._replace(topics=topics, groups=groups, of_group=lags)


def _led(gateway: GatewayView, asked: Caller) -> list[tuple[str, list[int]]]:
    """The topics of which a gateway leads partitions, and which: those that the reader may know of."""
    return sorted(pair for pair in gateway.broker.leads.items() if asked.describes(pair[0]))


def _curve(samples: Sequence[Sample], label: str, name: str, shown: Callable[[float], str]) -> str:
    return curve([(each.at_ms, getattr(each, name)) for each in samples], label, shown)
