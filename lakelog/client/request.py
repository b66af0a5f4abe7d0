"""Requests to a gateway, apart from how they are sent: the core that the two faces of a client share.

A *call* is a generator. It yields each request, or the seconds to pause before the next one, is sent the
answer or thrown the error, and returns its result. Where another call asks already, it yields a future that
is done when that has found out. `Client` makes calls in a thread, `AsyncClient` on an event loop.
"""

from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from log_tables.errors import InvalidArgument, OutcomeUnknown, Unreachable

ARROW = "application/vnd.apache.arrow.stream"

_CONNECT_TIMEOUT_S = 5.0
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.InvalidURL,
    httpx.UnsupportedProtocol,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `options` are httpx's."""

    method: str
    path: str
    timeout_s: float
    options: Mapping[str, Any]

    @property
    def timeout(self) -> httpx.Timeout:
        return httpx.Timeout(self.timeout_s, connect=min(self.timeout_s, _CONNECT_TIMEOUT_S))


Result = TypeVar("Result")
Call = Generator[Request | float | Future[None], Any, Result]
"""Yields requests, pauses in seconds, and what it waits for; it is sent the httpx.Response of each request.
Its maker closes it.
"""


def once(request: Request) -> Call[httpx.Response]:
    """A call that is one request, not repeated."""
    answer: httpx.Response = yield request
    return answer


def failure(url: str, method: str, error: Exception) -> Exception:
    """The error of a request to which no answer came: httpx's as one of ours, any other as it is."""
    if not isinstance(error, httpx.HTTPError | httpx.InvalidURL):
        return error
    said = str(error) or type(error).__name__
    if isinstance(error, _NOT_SENT):
        return Unreachable(
            f"no gateway answers at {url} ({said}); start one with lakelog serve, or name its url"
        )
    if method == "GET":
        return Unreachable(f"no gateway answers at {url} to the end ({said}); ask again")
    return OutcomeUnknown(
        f"the gateway at {url} did not answer ({said}), so it may have done what was asked or not; "
        "look before repeating"
    )


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises InvalidArgument for what is no URL of a gateway."""
    try:
        parsed = httpx.URL(url)
        usable = parsed.scheme in ("http", "https") and parsed.host
    except (httpx.InvalidURL, UnicodeError):
        usable = False
    if not usable:
        raise InvalidArgument(f"{url!r} is not the URL of a gateway; write it as http://127.0.0.1:8082")
    return url.rstrip("/")


def quoted(name: str) -> str:
    """`name` as a part of a URL's path. Raises InvalidArgument for one that leads to another path, or that
    is no Unicode text.
    """
    if "/" in name or name in ("", ".", ".."):
        raise InvalidArgument(f"nothing can be called {name[:40]!r}; use a name that has no slash")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidArgument(f"nothing can be called {name[:40]!r}, which is no Unicode text") from None
