"""The list of mirrors, and the page of one: how far its copies are, what has stopped and why, who copies."""

from typing import Annotated, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.console.page import ItemPage, paged, render
from api.console.page_route import PageRoute
from api.gateway import Gateway
from api.mirror_changes import SeenMirror, check_copies, compared, seen_mirror, seen_mirrors, shown_mirror
from api.requests.access import Asked
from api.requests.child_process import commands
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.admin.mirror_progress import Progress
from log_tables.cluster.admin.mirror_view import MirrorView, state_of

router = APIRouter(prefix="/console/mirrors", include_in_schema=False, route_class=PageRoute)

VERIFY_LIMIT_S = 120.0
SHOWN_CHARS = 100_000
"""Characters of what a comparison prints that the page shows."""

_PageNumber = Annotated[int, Query(ge=1)]


class _Row(NamedTuple):
    seen: SeenMirror
    view: MirrorView


def mirror_path(name: str) -> str:
    """The path of a mirror's page."""
    return f"/console/mirrors/{quote(name, safe='')}"


def may_change(asked: Caller) -> bool:
    """Whether `asked` may change mirrors."""
    return asked.allows(Operation.ALTER, ResourceType.CLUSTER)


@router.get("")
async def mirrors(request: Request, here: Here, asked: Asked, page: _PageNumber = 1) -> Response:
    """The mirrors of which the reader may see a copy."""
    seen = await run_in_threadpool(_all, here, asked)
    shown = paged(seen, page)
    found = [_Row(each, await run_in_threadpool(shown_mirror, here, asked, each)) for each in shown.items]
    rows = ItemPage(found, shown.page, shown.pages, shown.total)
    return render(request, "mirrors.html", {"rows": rows, "may_change": may_change(asked)}, asked)


def _all(here: Gateway, asked: Caller) -> list[SeenMirror]:
    here.cluster.refresh()
    return seen_mirrors(here, asked)


@router.get("/{mirror}")
async def mirror(request: Request, here: Here, asked: Asked, mirror: str, page: _PageNumber = 1) -> Response:
    """One mirror."""
    seen = await run_in_threadpool(seen_mirror, here, asked, mirror)
    view = await run_in_threadpool(shown_mirror, here, asked, seen)
    rows: ItemPage[Progress] = paged(view.partitions, page)
    values = {
        "seen": seen,
        "view": view,
        "rows": rows,
        "path": mirror_path(mirror),
        "state_of": state_of,
        "may_change": may_change(asked),
        "record": seen.record,
    }
    return render(request, "mirror.html", values, asked)


@router.get("/{mirror}/verify")
async def verify(
    request: Request, here: Here, asked: Asked, mirror: str, topic: Annotated[str, Query()] = ""
) -> Response:
    """The result of `lakelog mirror verify`, which reads both sides."""
    asked.check(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    topics = [topic] if topic else []
    await run_in_threadpool(check_copies, here, mirror, topics)
    words = compared(mirror, topics, None)
    result = await commands(request).run(request, words, VERIFY_LIMIT_S)
    values = {
        "name": mirror,
        "path": mirror_path(mirror),
        "shown": _indented(result.output)[:SHOWN_CHARS],
        "failed": result.failed,
        "seconds": result.seconds,
        "command": " ".join(("lakelog", *words)),
    }
    return render(request, "mirror_verify.html", values, asked)


def _indented(output: bytes) -> str:
    """JSON for people; as it is where it is none."""
    try:
        return msgspec.json.format(output, indent=2).decode(errors="replace")
    except msgspec.MsgspecError:
        return output.decode(errors="replace")
