"""The few headers that are looked at before an application is called, found in one iteration over all of
them.
"""

from collections.abc import Mapping, Sequence

from starlette.types import Scope

from coordinator.brokers.peers import ASKER, CALLER, TARGET

TARGETED, ASKED_BY, CALLED_BY = TARGET.encode(), ASKER.encode(), CALLER.encode()

ARRIVED = "lakelog.arrived"
"""The key of an ASGI scope that says that the whole request has arrived: to receive it takes no time."""

TRACE = "lakelog.trace"
"""The key of an ASGI scope for its RequestTrace."""

REFUSED = "lakelog.refused"
"""The key of an ASGI scope for the status by which the protocol has refused the rest of the request."""

_FOREIGN_SITES = (b"cross-site", b"same-site")
_FOUND = "lakelog.heads"
"""The key of an ASGI scope where they are."""

_LOOKED_AT = frozenset(
    (
        b"authorization",
        b"cookie",
        b"host",
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"transfer-encoding",
        b"origin",
        b"sec-fetch-site",
        b"x-csrf-token",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
        TARGETED,
        ASKED_BY,
        CALLED_BY,
    )
)


def heads(scope: Scope) -> Mapping[bytes, Sequence[bytes]]:
    """The values of each header that is looked at, in their order; one that is not there has no key."""
    found: dict[bytes, list[bytes]] | None = scope.get(_FOUND)
    if found is None:
        found = scope[_FOUND] = {}
        for name, value in scope["headers"]:
            if name in _LOOKED_AT:
                found.setdefault(name, []).append(value)
    return found


def listed(scope: Scope, header: bytes) -> list[str]:
    """The items that the lists in the headers of that name have, in lower case; `header` is looked at."""
    found = heads(scope).get(header)
    if found is None:
        return []
    each = ",".join(value.decode("latin-1") for value in found).lower().split(",")
    return [item.strip() for item in each if item.strip()]


def foreign_site(scope: Scope) -> str:
    """The Sec-Fetch-Site of a request that a page of another origin has sent; empty for all others."""
    sites = heads(scope).get(b"sec-fetch-site", ())
    return next((site.decode() for site in sites if site in _FOREIGN_SITES), "")


def content_type(scope: Scope) -> str:
    """The first Content-Type of a request, empty if there is none."""
    return heads(scope).get(b"content-type", (b"",))[0].decode("latin-1")
