"""The one list of checks that every request passes before any application sees it.

A check reads the head of a request, before its body is read, and raises an error if the request is wrong. The
checks hold for all requests: those to the public API, those between gateways, and those to unknown paths. Any
path may end with a slash. Then the request is authenticated, and quotas of its principal may delay it.
"""

import asyncio
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access_log import CONTEXT
from api.console.page_route import asked_to_log_in, is_page
from api.errors import MalformedBody, UnsupportedMediaType, error_response, status_and_code
from api.gateway import Gateway
from api.process.browsers import check_host, check_media_type, check_origin
from api.requests.access import PUBLIC_PATHS, SUBJECT, credential, host_of, is_login, note_refusal
from api.requests.body import IDENTITY, brings_records, coding_of
from api.requests.heads import TARGETED, TRACE, heads, listed
from coordinator.access.access import Access
from coordinator.access.pending_requests import PendingCount
from coordinator.access.principal import Principal, RequestContext
from coordinator.access.quota_manager import QuotaKind, QuotaManager
from ingest.request_trace import CURRENT
from log_tables.errors import AuthenticationFailed, LakelogError, NotFound, NotLeader, QuotaReached


async def authenticate(here: Gateway, scope: Scope) -> None:
    """Put the RequestContext of a request into `scope`. A credential that is refused is audited.

    A request of another gateway is left to the peer middleware, which admits no other, and takes from it
    whose request it forwards.

    Raises AuthenticationFailed without a right credential, QuotaReached after many wrong ones; NotLeader
    while the cluster is secured, and this gateway is not configured for it.
    """
    try:
        await _authenticate(here, scope)
    except (AuthenticationFailed, QuotaReached) as error:
        note_refusal(here, scope, error)
        raise


async def _authenticate(here: Gateway, scope: Scope) -> None:
    access = here.access
    if scope["path"] in PUBLIC_PATHS:
        return
    if access.is_shut:
        raise NotLeader("this gateway authenticates nobody, and its cluster is secured; ask another one")
    if here.settings.ssl_client_auth == "required" and SUBJECT not in scope and TARGETED not in heads(scope):
        raise AuthenticationFailed("this gateway wants a certificate of its clients; connect with one")
    if access.is_open or TARGETED in heads(scope) or is_login(scope):
        return
    header, subject, host = credential(here, scope), scope.get(SUBJECT), host_of(scope)
    principal = access.known(header, subject)
    if principal is None:
        principal = await access.verify(header, subject, host)
    scope[CONTEXT] = RequestContext(principal, host)


THROTTLED = b"throttle-time-ms"
"""The header of an answer that says for how long its request was delayed, as Kafka's throttle_time_ms."""


async def throttle(access: Access, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Wait until the quotas of its principal let a request go on; `receive` and `send` for its answer then.
    A refused body is not read. Bytes are counted as they come and go, so a client that is beyond its quota
    pays with its next request.

    A request that another gateway forwards was counted there. Raises QuotaReached.
    """
    context: RequestContext | None = scope.get(CONTEXT)
    if context is None or not access.quotas.exist:
        return receive, send
    request = _ThrottledRequest(access.quotas, context.principal, scope, receive, send)
    await request.wait()
    return request.receive, request.send


def is_fetch(path: str) -> bool:
    """Whether a GET of `path` answers records: a fetch, a poll, or a page or an export of the console."""
    return path.endswith("/records") or (
        path.startswith("/console/topics/") and path.endswith(("/messages", "/value", "/export"))
    )


def _is_query(path: str) -> bool:
    """Whether `path` answers queries, which are sent in two ways."""
    return path in ("/console/sql", "/console/sql/file")


class _ThrottledRequest:
    """One request, and what it uses."""

    def __init__(
        self, quotas: QuotaManager, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._quotas, self._principal, self._receive, self._send = quotas, principal, receive, send
        self._brings = brings_records(scope)
        path = scope["path"]
        self._fetches = _is_query(path) or (scope["method"] == "GET" and is_fetch(path))
        self._delay_ms = 0

    async def wait(self) -> None:
        """Raises QuotaReached."""
        kinds = [QuotaKind.REQUESTS]
        kinds += [QuotaKind.PRODUCER_BYTES] if self._brings else []
        kinds += [QuotaKind.CONSUMER_BYTES] if self._fetches else []
        delay_s = max(self._quotas.delay_s(self._principal, kind) for kind in kinds)
        self._quotas.charge(self._principal, QuotaKind.REQUESTS, 1)
        if delay_s > 0:
            self._delay_ms = max(1, round(delay_s * 1_000))
            await asyncio.sleep(delay_s)

    async def receive(self) -> Message:
        message = await self._receive()
        if self._brings and message["type"] == "http.request":
            self._quotas.charge(self._principal, QuotaKind.PRODUCER_BYTES, len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._delay_ms:
            headers = [*message["headers"], (THROTTLED, b"%d" % self._delay_ms)]
            message = {**message, "headers": headers}
        elif self._fetches and message["type"] == "http.response.body":
            self._quotas.charge(self._principal, QuotaKind.CONSUMER_BYTES, len(message.get("body", b"")))
        await self._send(message)


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
