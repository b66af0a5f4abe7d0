"""The one list of checks that every request passes before any application sees it.

A check reads the head of a request, before its body is read, and raises an error if the request is wrong. The
checks hold for all requests: those to the public API, those between gateways, and those to unknown paths. Any
path may end with a slash.
"""

from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from api.caller import CONTEXT
from api.console.page_route import asked_to_log_in, is_page
from api.errors import MalformedBody, UnsupportedMediaType, error_response, status_and_code
from api.gateway import Gateway
from api.process.authentication import authenticate
from api.process.browsers import check_host, check_media_type, check_origin
from api.process.throttle import throttle
from api.requests.body import brings_records
from api.requests.content_coding import IDENTITY, coding_of
from api.requests.heads import TRACE, listed
from coordinator.access.pending_requests import PendingCount
from coordinator.access.principal import RequestContext
from ingest.request_trace import CURRENT
from log_tables.errors import AuthenticationFailed, LakelogError, NotFound

Check = Callable[[Gateway, Scope], None]
"""Reads an ASGI scope of type http. Raises LakelogError for a request that is refused."""


def check_codings(_: Gateway, scope: Scope) -> None:
    """Raise UnsupportedMediaType for a body that is encoded otherwise than records may be, and MalformedBody
    for one that is so on its way.

    It would be taken for what it is not.
    """
    encoded = {*listed(scope, b"content-encoding")} - {IDENTITY}
    if encoded and not brings_records(scope):
        raise UnsupportedMediaType(
            f"Content-Encoding {min(encoded)[:40]!r} is taken of records alone; send this body as it is"
        )
    coding_of(scope)
    coded = {*listed(scope, b"transfer-encoding")} - {"chunked"}
    if coded:
        raise MalformedBody(f"Transfer-Encoding {min(coded)[:40]!r} is not taken; send it chunked, or sized")


def check_path(_: Gateway, scope: Scope) -> None:
    """Raise NotFound for a path with a line feed, which no name has.

    The pattern of a route takes one at its end, where nothing else that looks at the path does.
    """
    path = scope["path"]
    if "\n" in path:
        raise NotFound(f"{scope['method']} {path[:200]!r}: Not Found; see /docs")


CHECKS: Sequence[Check] = (check_host, check_path, check_origin, check_media_type, check_codings)
"""In order: the first failing check is the answer."""


class GuardMiddleware:
    """The ASGI middleware around the application of a gateway."""

    def __init__(self, app: ASGIApp, gateway: Gateway, checks: Sequence[Check] = CHECKS) -> None:
        self._app, self._gateway, self._checks = app, gateway, checks
        self._pending = gateway.access.pending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            CURRENT.set(scope.get(TRACE))
            _drop_slash(scope)
            try:
                for check in self._checks:
                    check(self._gateway, scope)
                await authenticate(self._gateway, scope)
                entered = self._entered(scope)
            except LakelogError as error:
                await self._refuse(error, scope, receive, send)
                return
            try:
                await self._throttled(scope, receive, send)
            finally:
                if entered is not None:
                    self._pending.leave(entered)
            return
        await self._app(scope, receive, send)

    def _entered(self, scope: Scope) -> PendingCount | None:
        """Count a request under way; one without a principal counts for nobody. Raises QuotaReached."""
        context: RequestContext | None = scope.get(CONTEXT)
        return None if context is None else self._pending.enter(context.principal)

    async def _throttled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer, when the quotas of the principal let the request go on."""
        try:
            receive, send = await throttle(self._gateway.access, scope, receive, send)
        except LakelogError as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _refuse(self, error: LakelogError, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway.metrics.request_failed(status_and_code(error)[1])
        answer = error_response(error)
        if isinstance(error, AuthenticationFailed) and is_page(scope):
            answer = asked_to_log_in(scope)
        await answer(scope, receive, send)


def _drop_slash(scope: Scope) -> None:
    """Take the slash from the end of a path, which some clients write: /topics/ is /topics."""
    raw: bytes = scope["raw_path"]
    if raw[-1:] == b"/" and raw != b"/":
        scope["path"], scope["raw_path"] = scope["path"].removesuffix("/"), raw.removesuffix(b"/")
