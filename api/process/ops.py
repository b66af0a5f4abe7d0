"""Routes for operators: whether the gateway is alive and ready, and its metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.page_route import has_console, wants_page
from api.errors import error_responses
from api.gateway import ROOM
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from log_tables.errors import NotLeader, StoreUnavailable
from log_tables.version import VERSION

router = APIRouter(tags=["operations"], route_class=StrictRoute)


class Health(BaseModel):
    """The process answers requests."""

    status: str = Field(examples=["alive"])


class Readiness(BaseModel):
    """The gateway can serve: its root answers, and the metadata log can be read."""

    status: str = Field(
        examples=["ready"],
        description="`full` where the disk of the root is: records are served, and appends refused.",
    )


class Welcome(BaseModel):
    """The name and the version of this gateway, and its main paths."""

    name: str = Field(examples=["lakelog"])
    version: str = Field(examples=[VERSION])
    links: dict[str, str] = Field(description="Paths of this gateway.")


_LINKS = {
    "documentation": "/docs",
    "openapi": "/openapi.json",
    "console": "/console",
    "topics": "/topics",
    "clusters": "/v3/clusters",
    "health": "/health",
    "metrics": "/metrics",
}


@router.get("/", summary="Name, version and links", response_model=Welcome)
async def welcome(request: Request, here: Here) -> Welcome | Response:
    """A browser is led to the console, where there is one."""
    if has_console(here) and wants_page(request.scope):
        return RedirectResponse("/console", 303)
    return Welcome(name="lakelog", version=VERSION, links=_LINKS)


@router.get("/health", summary="Liveness")
async def health() -> Health:
    return Health(status="alive")


@router.get("/ready", summary="Readiness", responses=error_responses(503))
def ready(here: Here) -> Readiness:
    """Reads the metadata log. 503 while the root does not answer, and while the gateway stops."""
    if here.stopping.is_set() or here.brokers.leaving:
        raise NotLeader("this gateway is stopping; send the request to another one")
    looked = False
    with here.failures.catch("readiness"):  # logged once, however often anybody asks
        here.cluster.refresh()
        here.cluster.metadata_log.check_exists(here.cluster.store)
        looked = True
    if not looked:  # anybody may ask, and the error has paths or URLs of the store
        raise StoreUnavailable("this gateway cannot serve now; its log says why")
    return Readiness(status="full" if ROOM in here.failures.failing else "ready")


@router.get(
    "/metrics",
    summary="Metrics, for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(here: Here) -> Response:
    here.metrics.forget_topics(lambda name: here.cluster.cached_topic(name) is None)
    return Response(here.metrics.render(), media_type=CONTENT_TYPE_LATEST)
