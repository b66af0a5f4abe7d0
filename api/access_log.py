"""The access log: a line for each request, at all doors, when it is answered.

It has no path, no query and no header of a client: the path is that of the route. Of a client it has
the id of the request, names of principals and of Kafka's clients, and addresses. The principal of a request
over HTTP is in its scope, where authentication has put it.
"""

import logging
from collections.abc import Sequence
from typing import Any

from starlette.types import Scope

from api.log_format import FIELDS
from coordinator.access.principal import ANONYMOUS, RequestContext
from ingest.request_trace import CURRENT, RequestTrace

NAME_MAX_CHARS = 200
"""Of a principal, or of what a Kafka client calls itself."""

ERRORS_MAX = 10
"""Different errors in one answer that are named."""

_log = logging.getLogger("lakelog.access")

CONTEXT = "lakelog.context"
"""The key of an ASGI scope for its RequestContext. A public path has none, nor has an open gateway."""


class AccessLog:
    """The access log of one gateway. It is written at every `log_level`."""

    def __init__(self) -> None:
        _log.setLevel(logging.INFO)

    def http(
        self,
        trace: RequestTrace,
        method: str,
        route: str | None,
        answer: tuple[int | None, int],
        seconds: float,
        client: str,
        principal: dict[str, str],
    ) -> None:
        """A request over HTTP is over: `answer` is its status and the bytes of its body. None is the route of
        a path that there is not, and of a request that is refused before its route is looked up; and the
        status of a request whose client has gone before.
        """
        status, size = answer
        fields = {"door": "http", "method": method, "route": route, "status": status, "bytes": size}
        _write(trace, {**fields, "seconds": round(seconds, 6), "client": client, **principal})

    def kafka(
        self,
        trace: RequestTrace,
        api: tuple[str, int],
        errors: Sequence[str],
        sizes: tuple[int, int],
        seconds: float,
        client: tuple[str, str],
        principal: dict[str, str],
    ) -> None:
        """A request of a Kafka client is over: the name and the version of its `api`, the bytes of request
        and answer as `sizes`, and the address and the id of the client.
        """
        fields = {
            "door": "kafka",
            "api": api[0],
            "version": api[1],
            "errors": sorted({*errors})[:ERRORS_MAX],
            "request_bytes": sizes[0],
            "bytes": sizes[1],
            "seconds": round(seconds, 6),
            "client": client[0],
            "client_id": client[1][:NAME_MAX_CHARS],
        }
        _write(trace, {**fields, **principal})


def principal_of(context: RequestContext | None, is_gateway: bool = False) -> dict[str, str]:
    """The principal of a request, and its class: a user, another gateway for itself, or anybody."""
    if context is not None and context.principal != ANONYMOUS:
        return {"principal": context.principal.name[:NAME_MAX_CHARS], "principal_class": "user"}
    return {"principal": "", "principal_class": "gateway" if is_gateway else "anonymous"}


def _write(trace: RequestTrace, fields: dict[str, Any]) -> None:
    token = CURRENT.set(trace)
    try:
        _log.info("request", extra={FIELDS: fields})
    finally:
        CURRENT.reset(token)


def caller(scope: Scope) -> str:
    """The name of the principal and its address, for logs: one line, however long the name is."""
    context: RequestContext | None = scope.get(CONTEXT)
    return "somebody" if context is None else f"{context.principal.name[:200]!r} at {context.host}"
