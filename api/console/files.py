"""The scripts, the style and the library that pages load, as files of the package.

The hash of all of them is in their URLs: a browser keeps them for a year, and asks for others as soon as one
has changed.
"""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Annotated, NamedTuple

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.requests import Request
from starlette.responses import Response

from api.requests.strict import StrictRoute
from log_tables.errors import NotFound

router = APIRouter(prefix="/console/files", include_in_schema=False, route_class=StrictRoute)

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
_HASH_DIGITS = 12
_HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept-Encoding",
}


class _File(NamedTuple):
    content: bytes
    packed: bytes
    kind: str


@cache
def _all() -> dict[str, _File]:
    """Every file, by its name."""
    found = {}
    for each in files("api.console").joinpath("static").iterdir():
        kind = _KINDS.get(each.name[each.name.rfind(".") :])
        if kind is not None:
            content = each.read_bytes()
            found[each.name] = _File(content, gzip.compress(content, 9, mtime=0), kind)
    return found


@cache
def _version() -> str:
    """The hash of all files: modules import one another by names that are relative to their own URL."""
    digest = hashlib.sha256()
    for name, each in sorted(_all().items()):
        digest.update(f"{name} {len(each.content)}\n".encode() + each.content)
    return digest.hexdigest()[:_HASH_DIGITS]


def file_url(name: str) -> str:
    """The URL of a file, as it is now."""
    assert name in _all(), name
    return f"/console/files/{_version()}/{name}"


@router.get("/{version}/{name}")
async def file(
    request: Request, version: Annotated[str, PathParameter()], name: Annotated[str, PathParameter()]
) -> Response:
    """A file of the console. Raises NotFound."""
    found = _all().get(name)
    if found is None:
        raise NotFound(f"there is no file {name[:40]!r} of the console; load /console again")
    headers = dict(_HEADERS)
    if version != _version():
        headers["Cache-Control"] = "no-store"  # a page of before an update asks for it
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.content, headers=headers, media_type=found.kind)
