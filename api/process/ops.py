"""Routes about the gateway itself: whether it is alive and ready, its metrics, and the pages of its API.

The pages /docs and /redoc are complete, and load nothing from other hosts: the files of Swagger UI and ReDoc
come from the package fastapi-offline. The content security policy of a page lets it load from this gateway,
and send requests to this gateway.
"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from api.console.page_route import has_console, wants_page
from api.errors import error_responses
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from log_tables.errors import NotFound, NotLeader, StoreUnavailable
from log_tables.version import VERSION

router = APIRouter(tags=["operations"], route_class=StrictRoute)

docs = APIRouter(prefix="/docs", include_in_schema=False, route_class=StrictRoute)
redoc = APIRouter(prefix="/redoc", include_in_schema=False, route_class=StrictRoute)
openapi = APIRouter(prefix="/openapi.json", include_in_schema=False, route_class=StrictRoute)

_DOCS_FILES = Path(str(files("fastapi_offline"))) / "static"
_NAMES = ("swagger-ui.css", "swagger-ui-bundle.js", "redoc.standalone.js", "favicon.png")

_STARTS = {
    "docs.js": 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#page", validatorUrl: null})',
    "redoc.js": 'Redoc.init("/openapi.json", {}, document.getElementById("page"))',
}
"""The scripts that start the pages, as files: the policy allows no inline script."""

_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; "  # both write their styles into the page
    "worker-src blob:; "  # ReDoc's search
    "img-src 'self' data:; font-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Health(BaseModel):
    """The process answers requests."""

    status: str = Field(examples=["alive"])


class Readiness(BaseModel):
    """The gateway can serve: its root answers, and the metadata log can be read."""

    status: str = Field(
        examples=["ready"],
        description="`full` while records are refused for lack of room in the store; all else goes on.",
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
    return Readiness(status="full" if here.writer.room.full is not None else "ready")


@router.get(
    "/metrics",
    summary="Metrics, for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(here: Here) -> Response:
    here.metrics.forget_topics(lambda name: here.cluster.cached_topic(name) is None)
    return Response(here.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@docs.get("")
async def swagger() -> Response:
    """Swagger UI, which can also send requests."""
    style = '<link rel="stylesheet" href="/docs/files/swagger-ui.css">'
    return _page(style, "swagger-ui-bundle.js", "docs.js")


@redoc.get("")
async def reference() -> Response:
    """ReDoc."""
    return _page("<style>body { margin: 0 }</style>", "redoc.standalone.js", "redoc.js")


@openapi.get("")
async def document(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@docs.get("/files/{name}")
async def file(name: Annotated[str, PathParameter()]) -> Response:
    """A file of the pages. Raises NotFound."""
    if name in _STARTS:
        return Response(_STARTS[name], media_type="text/javascript", headers=_HEADERS)
    if name not in _NAMES:
        raise NotFound(f"there is no file {name[:40]!r}; see /docs")
    return FileResponse(_DOCS_FILES / name, headers=_HEADERS)


def _page(style: str, library: str, start: str) -> Response:
    return HTMLResponse(
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lakelog</title>
<link rel="icon" href="/docs/files/favicon.png">
{style}
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript; the OpenAPI document is at /openapi.json.</noscript>
<script src="/docs/files/{library}"></script>
<script src="/docs/files/{start}"></script>
</body>
</html>
""",
        headers=_HEADERS,
    )
