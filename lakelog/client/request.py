"""Requests to a gateway, apart from how they are sent: the core that the two faces of a client share.

A *call* is a generator. It yields each request, or the seconds to pause before the next one, is sent the
answer or thrown the error, and returns its result. Where another call asks already, it yields a future that
is done when that has found out. `Client` makes calls in a thread, `AsyncClient` on an event loop.
"""

import ssl
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from lakelog.client.credential import Credential
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
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return Unreachable(
            f"the certificate at {url} is not trusted ({said}); name its authorities in an ssl_context, or "
            "LAKELOG_CA_FILE, or the URL that it is for"
        )
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


class Authorization(httpx.Auth):
    """The header of a credential on each request: httpx sends it to no other host, wherever it is redirected.

    A request that is refused is sent once more if the credential is another one by now.
    """

    def __init__(self, credential: object) -> None:
        """Raises InvalidArgument for what is no Credential."""
        if not isinstance(credential, Credential):
            kind = type(credential).__name__  # its text may be a secret
            raise InvalidArgument(
                f"the credential is a {kind}; make a lakelog.Credential of it, as by api_key"
            )
        self._credential = credential

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        sent = self._credential.header()
        request.headers["Authorization"] = sent
        answer = yield request
        if answer.status_code == HTTPStatus.UNAUTHORIZED and isinstance(request.stream, httpx.ByteStream):
            renewed = self._credential.renewed(sent)
            if renewed is not None:
                request.headers["Authorization"] = renewed
                yield request


def http_options(
    url: str, credential: Credential | None, ssl_context: ssl.SSLContext | None
) -> dict[str, Any]:
    """Options of httpx's clients."""
    auth = None if credential is None else Authorization(credential)
    if ssl_context is None and url.startswith("https:"):
        ssl_context = ssl.create_default_context()  # the system's authorities; httpx comes with its own
    return {"base_url": url, "auth": auth, **({} if ssl_context is None else {"verify": ssl_context})}


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises InvalidArgument for what is no URL of a gateway."""
    try:
        parsed = httpx.URL(url)
        if parsed.userinfo:
            raise InvalidArgument("the URL has a user or a password in it; hand them over as a credential")
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
