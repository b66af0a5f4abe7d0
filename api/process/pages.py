"""The pages /docs and /redoc, complete: they load nothing from other hosts.

The files of Swagger UI and ReDoc come from the package fastapi-offline. The content security policy of a page
lets it load from this gateway, and send requests to this gateway.
"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from api.requests.strict import StrictRoute
from log_tables.errors import NotFound

router = APIRouter(prefix="/docs", include_in_schema=False, route_class=StrictRoute)
redoc = APIRouter(prefix="/redoc", include_in_schema=False, route_class=StrictRoute)
openapi = APIRouter(prefix="/openapi.json", include_in_schema=False, route_class=StrictRoute)

_FILES = Path(str(files("fastapi_offline"))) / "static"
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


@router.get("")
async def docs() -> Response:
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


@router.get("/files/{name}")
async def file(name: Annotated[str, PathParameter()]) -> Response:
    """A file of the pages. Raises NotFound."""
    if name in _STARTS:
        return Response(_STARTS[name], media_type="text/javascript", headers=_HEADERS)
    if name not in _NAMES:
        raise NotFound(f"there is no file {name[:40]!r}; see /docs")
    return FileResponse(_FILES / name, headers=_HEADERS)


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
