"""By what a request is let in: its header, its session cookie, and the certificate of its connection.

A request that waits, as a long poll does, or for its own body, is looked at again afterwards: what has let it
in may be revoked or expired by then.
"""

from contextlib import suppress

from starlette.types import Scope

from api.access_log import CONTEXT
from api.gateway import Gateway
from api.requests.access import host_of
from api.requests.heads import TARGETED, heads
from log_tables.errors import AuthenticationFailed, LakelogError, QuotaReached, Retriable

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
