"""Protection from pages in a browser: they may not write, nor reach this gateway by a name of their own.

A browser sends requests of any page to any address. It asks that address first, by a preflight which this
gateway does not answer, only if a form could not send the same request. So a write must have a header that no
form can send. A page whose own name leads here (DNS rebinding) needs no preflight, but its `Host` shows it.
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from api.errors import ForeignHost, ForeignOrigin, UnsupportedMediaType
from api.gateway import Gateway
from api.media import OF_VALUES, SUPPORTED, essence, is_supported_body, is_value_body
from api.requests.access import PUBLIC_PATHS
from api.requests.heads import TARGETED, foreign_site, heads
from coordinator.access.host import is_loopback
from ingest.settings import Settings

_WILDCARDS = ("0.0.0.0", "::", "")
ANY_HOST = "*"

FORM_PATHS = ("/console/login", "/console/logout")
"""The routes that take forms, of pages of this origin alone (`check_origin`): they work without scripts."""

_VALUES = re.compile(r"/topics/[^/]+/values")
"""The path that takes bodies of any type but those of forms."""

EXPOSED = (
    "Acks",
    "Generation",
    "High-Watermark",
    "Log-Start-Offset",
    "Next-Offset",
    "Producer-Expected-Seq",
    "Retry-After",
    "Throttle-Time-Ms",
    "X-Request-Id",
)
"""Headers of answers that a page of another origin sees."""

_HOST = re.compile(rb"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""A name or an address, and maybe a port; nothing else that a URL may have, such as a user or a path."""


def check_media_type(_: Gateway, scope: Scope) -> None:
    """Raise UnsupportedMediaType for a POST that a form could send, also without a body; and for any other
    body that is to be written and is nothing that is known here.

    The check is by method, so that no route can forget it. Requests of other gateways pass: no form can send
    their header.
    """
    if scope["path"] in FORM_PATHS:
        return
    if scope["method"] != "POST" and not (scope["method"] in ("PUT", "PATCH") and _has_body(scope)):
        return
    named = heads(scope).get(b"content-type", ())
    of_values = _VALUES.fullmatch(scope["path"]) is not None
    fits = _is_value_body if of_values else _is_supported
    if (named and all(map(fits, named))) or any(heads(scope).get(TARGETED, ())):
        return
    said = ", ".join(essence(value.decode("latin-1")) for value in named)[:100]
    known = OF_VALUES if of_values else f"{SUPPORTED}, also without a body"
    raise UnsupportedMediaType(f"{scope['method']} takes no Content-Type {said!r}; name one of {known}")


def check_origin(here: Gateway, scope: Scope) -> None:
    """Raise ForeignOrigin for what a consumer instance is asked by a page of another origin, and for a form
    of one.

    A GET needs no preflight, and a poll moves the instance on. Other GETs change nothing, and the page cannot
    read their answers.
    """
    if scope["method"] == "POST" and scope["path"] in FORM_PATHS:
        _check_form(scope)
    if scope["method"] == "GET" and scope["path"].startswith("/consumers/"):
        origins = {each.decode("latin-1") for each in heads(scope).get(b"origin", ())}
        if origins and origins <= {*here.settings.cors_allowed_origins}:
            return
        _check_site(scope, "cannot be a consumer here; send it from a program, or from a page of this origin")


def _check_form(scope: Scope) -> None:
    """Browsers say from where a form comes: by Sec-Fetch-Site, and old ones by Origin."""
    _check_site(scope, "may not send this form; open /console")
    hosts = {each.decode("latin-1").lower() for each in heads(scope).get(b"host", ())}
    for origin in heads(scope).get(b"origin", ()):
        if urlsplit(origin.decode("latin-1").lower()).netloc not in hosts:
            raise ForeignOrigin(
                f"Origin {origin.decode('latin-1')[:100]!r} may not send this form; open /console"
            )


def _check_site(scope: Scope, what: str) -> None:
    if site := foreign_site(scope):
        raise ForeignOrigin(f"Sec-Fetch-Site: {site} is a page of another origin, which {what}")


def with_cors(app: ASGIApp, settings: Settings) -> ASGIApp:
    """`app`, of which pages of the origins in `cors_allowed_origins` may ask everything; of others nothing.

    Cookies are never taken: a page sends its credential in a header.
    """
    if not settings.cors_allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_allowed_origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=EXPOSED,
    )


def check_host(here: Gateway, scope: Scope) -> None:
    """Raise ForeignHost for a name that is not this gateway's: while it listens on a loopback address, which
    only programs of this machine reach, and where `allowed_hosts` says which names it has.

    A public path has nothing to hide, and a kubelet asks for it by any address.
    """
    if scope["path"] in PUBLIC_PATHS:
        return
    settings, server = here.settings, (scope.get("server") or ("", 0))[0]
    if not settings.allowed_hosts and (settings.host in _WILDCARDS or not is_loopback(server)):
        return
    own = (settings.host, settings.advertised_url, settings.peer_url)
    for host in heads(scope).get(b"host", ()):
        if not _is_allowed(host, server, own, settings.allowed_hosts):
            raise ForeignHost(
                f"Host {host.decode('latin-1')[:100]!r} is no name of this gateway; use its URL, or add the "
                "name to its setting allowed_hosts"
            )


@lru_cache(maxsize=256)
def _is_allowed(host: bytes, server: str, own: tuple[str, str, str], allowed: tuple[str, ...]) -> bool:
    """`own` is the setting `host`, and two URLs."""
    if ANY_HOST in allowed:
        return True
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = _plain(found[1].decode())
    names = (server, own[0], *map(_host_of, own[1:]), *allowed)
    return name in map(_plain, names) or name == "localhost" or is_loopback(name)


def _host_of(url: str) -> str:
    """The host in `url`, one of the settings, without its port; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as brackets without an address
        return ""


def _plain(name: str) -> str:
    return name.lower().removesuffix(".").strip("[]")


def _has_body(scope: Scope) -> bool:
    found = heads(scope)
    return found.get(b"content-length", (b"0",))[0] != b"0" or any(found.get(b"transfer-encoding", ()))


@lru_cache(maxsize=256)
def _is_value_body(media_type: bytes) -> bool:
    return is_value_body(media_type.decode("latin-1"))


@lru_cache(maxsize=256)
def _is_supported(media_type: bytes) -> bool:
    return is_supported_body(media_type.decode("latin-1"))
