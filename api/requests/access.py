"""Who sends a request, by what it is let in, and whether a route admits it.

A credential is a header, a session cookie, or the certificate of the connection. A request that waits, as a
long poll does, or for its own body, is looked at again afterwards: what has let it in may be revoked or
expired by then.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Annotated

import msgspec
from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from api.access_log import CONTEXT
from api.errors import code_of
from api.gateway import Gateway
from api.requests.heads import TARGETED, heads
from api.requests.rules import Rule
from coordinator.access.access import Access
from coordinator.access.caller import Caller
from coordinator.access.principal import ANONYMOUS, RequestContext
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.errors import AuthenticationFailed, LakelogError, QuotaReached, Retriable
from log_tables.limits import KAFKA_INLINE_ELEMENTS
from log_tables.topic_partition import TopicPartition

PUBLIC_PATHS = frozenset(("/health", "/ready"))
"""Answered without a credential: they say nothing but the state of the process."""

_LOGIN_PATHS = frozenset(
    ("/console/login", "/console/login/oidc", "/console/login/oidc/callback", "/console/logout")
)
_FILES = "/console/files/"

_CALLER = "lakelog.caller"
"""The key of an ASGI scope for its Caller, once it was asked for."""


def is_login(scope: Scope) -> bool:
    """Whether a request is for what a browser needs to log in or out: it may have no credential, yet or any
    longer.
    """
    path: str = scope["path"]
    return path in _LOGIN_PATHS or path.startswith(_FILES)


def caller_of(scope: Scope) -> Caller:
    """Who sends a request. Raises AuthenticationFailed without a principal."""
    found: Caller | None = scope.get(_CALLER)
    if found is None:
        access, is_forwarded = scope["app"].state.gateway.access, TARGETED in heads(scope)
        found = scope[_CALLER] = Caller(access, context_of(scope), code_of, is_audited=not is_forwarded)
    return found


async def _asked(request: Request) -> Caller:
    return caller_of(request.scope)


Asked = Annotated[Caller, Depends(_asked)]
"""A route's parameter that takes the caller of its request."""


async def check_each(
    here: Gateway, asked: Caller, operation: Operation, resource_type: ResourceType, names: Collection[str]
) -> None:
    """`Caller.check_all`, of names that may be thousands."""
    if len(names) <= KAFKA_INLINE_ELEMENTS:
        asked.check_all(operation, resource_type, names)
        return
    async for name in here.loop_share.each(names):
        asked.check(operation, resource_type, name)


async def check_reads(here: Gateway, asked: Caller, partitions: Iterable[TopicPartition]) -> None:
    """Raise AuthorizationFailed unless `asked` may read records of these partitions."""
    topics = dict.fromkeys(at.topic for at in partitions)
    await check_each(here, asked, Operation.READ, ResourceType.TOPIC, topics)


def admit(scope: Scope, rule: Rule) -> None:
    """Raise AccessDenied unless the request may do what `rule` needs.

    A forwarded one was admitted by the gateway that forwards it, which names its principal.
    """
    access = scope["app"].state.gateway.access
    if access.is_open or scope["path"] in PUBLIC_PATHS or is_login(scope):
        return
    context = context_of(scope)
    if TARGETED not in heads(scope):
        for operation, resource_type, named in rule.needs:
            name = scope["path_params"][named] if named else CLUSTER_NAME
            access.check(context, operation, resource_type, name)


def names_counted(scope: Scope, names: int, elements: int) -> AbstractContextManager[None]:
    """Count what a request names while it is worked at. Raises QuotaReached."""
    access: Access = scope["app"].state.gateway.access
    return access.named(scope.get(CONTEXT), names, elements)


def host_of(scope: Scope) -> str:
    """The IP address that a request comes from."""
    return scope["client"][0] if scope.get("client") else ""


def context_of(scope: Scope) -> RequestContext:
    """The principal and address of a request. Raises AuthenticationFailed where nobody has put it there."""
    access = scope["app"].state.gateway.access
    found: RequestContext | None = scope.get(CONTEXT)
    if access.is_open:
        return RequestContext(ANONYMOUS, host_of(scope))
    if found is None:
        raise AuthenticationFailed("it is not known whose request this is; send a credential")
    return found


def encode_context(context: RequestContext) -> str:
    """`context` as the header by which a gateway says whose request it forwards."""
    return msgspec.json.encode(context).decode()


def decode_context(header: bytes) -> RequestContext:
    """The reverse of `encode_context`. Raises AuthenticationFailed."""
    try:
        return msgspec.json.decode(header, type=RequestContext)
    except msgspec.MsgspecError:
        raise AuthenticationFailed("a gateway has not said whose request it forwards; update it") from None


COOKIES_MAX = 5
"""Cookies of the right name that are tried."""

SUBJECT = "lakelog.subject"
"""The key of an ASGI scope for the subject of the certificate that the client has shown; absent without."""


def credential(here: Gateway, scope: Scope) -> bytes | None:
    """The header Authorization; without one, that for which the session of the browser stands.

    Raises AuthenticationFailed if there are several, and for a change by a session without its token.
    """
    found = heads(scope).get(b"authorization", ())
    if len(found) > 1:
        raise AuthenticationFailed("there are several Authorization headers; send one")
    if found:
        return found[0]
    cookie = cookie_of(here, scope)
    session = None if cookie is None else here.sessions.open(cookie)
    if cookie is None or session is None:
        return None
    here.sessions.check_csrf(cookie, scope["method"], heads(scope).get(b"x-csrf-token", ()))
    return session.header.encode("latin-1")


def cookie_of(here: Gateway, scope: Scope) -> str | None:
    """The session cookie of a request: of several the first that can be opened; None without one."""
    found = []
    for header in heads(scope).get(b"cookie", ()):
        for pair in header.decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == here.sessions.cookie_name and value:
                found.append(value)
    # Another server of the same host may have put one before ours.
    return next(filter(here.sessions.open, found[:COOKIES_MAX]), found[0] if found else None)


async def check_again(here: Gateway, scope: Scope) -> None:
    """Raise AuthenticationFailed if what has let a request in is no longer right.

    The gateway to which the client speaks does it; others take its word. A credential that cannot
    be checked now, as the provider of its keys is away, counts as right.
    """
    if CONTEXT not in scope or TARGETED in heads(scope):
        return
    header, subject = credential(here, scope), scope.get(SUBJECT)
    if here.access.known(header, subject) is None:
        try:
            with suppress(Retriable):
                await here.access.verify(header, subject, host_of(scope))
        except (AuthenticationFailed, QuotaReached) as error:
            note_refusal(here, scope, error)
            raise


def note_refusal(here: Gateway, scope: Scope, error: LakelogError) -> None:
    """The credential of a request is refused with this error."""
    header = heads(scope).get(b"authorization", (None,))[0]
    here.access.note_refusal(header, host_of(scope), error)
