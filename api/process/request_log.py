"""Each HTTP request, as it is written down: its line in the access log, and its span in a trace."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access_log import CONTEXT, AccessLog, principal_of
from api.process.reserved import OPERATORS_PATHS
from api.requests.access import host_of
from api.requests.heads import REFUSED, TARGETED, TRACE, heads
from coordinator.access.principal import RequestContext
from coordinator.brokers.peers import PING_PATH
from ingest.request_trace import CURRENT, RequestTrace, Span, Tracer
from log_tables.clock import timer

UNTRACED_PATHS = frozenset((*OPERATORS_PATHS, PING_PATH))
"""Paths that are asked again and again, by nobody who looks for a trace of it."""

NOT_ADMITTED = 421


class RequestLogMiddleware:
    """The outermost layer, where one of the two is wanted."""

    def __init__(self, app: ASGIApp, access_log: AccessLog | None, tracer: Tracer | None) -> None:
        self._app, self._access_log, self._tracer = app, access_log, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, span, answer = timer(), self._begin(scope), _Answer(send)
        if span is not None:
            scope[TRACE] = span.trace
        trace: RequestTrace = scope[TRACE]
        CURRENT.set(trace)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            status = answer.status or scope.get(REFUSED)
            route = _route(scope)
            if span is not None:
                _end(span, scope, route, status)
            if self._access_log is not None:
                of_gateway = TARGETED in heads(scope) and status != NOT_ADMITTED
                context: RequestContext | None = scope.get(CONTEXT)
                self._access_log.http(
                    trace,
                    scope["method"],
                    route,
                    (status, answer.size_bytes),
                    timer() - began,
                    host_of(scope),
                    principal_of(context, of_gateway),
                )

    def _begin(self, scope: Scope) -> Span | None:
        if self._tracer is None or scope["path"] in UNTRACED_PATHS:
            return None
        method = scope["method"]
        return self._tracer.begin(method, "server", scope[TRACE], {"http.request.method": method})


class _Answer:
    """The status of an answer, and the bytes of its body so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.size_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.size_bytes += len(message.get("body", b""))
        await self._send(message)


def _route(scope: Scope) -> str | None:
    """The path of the route, with the names of its parameters; None if there is none for this path."""
    if "route" in scope:
        found: str = scope["route"].path
        return found
    return scope["path"] if "endpoint" in scope else None  # between gateways, where paths have no parameters


def _end(span: Span, scope: Scope, route: str | None, status: int | None) -> None:
    method = scope["method"]
    attributes: dict[str, str | int] = {} if route is None else {"http.route": route}
    if status is not None:
        attributes["http.response.status_code"] = status
    failed = "" if status is not None and status < 500 else f"status {status}"
    span.end(attributes, failed, method if route is None else f"{method} {route}")
