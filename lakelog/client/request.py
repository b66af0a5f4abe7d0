"""Requests to a gateway, apart from how they are sent: the core that the two faces of a client share.

A *call* is a generator. It yields each request, or the seconds to pause before the next one, is sent the
answer or thrown the error, and returns its result. Where another call asks already, it yields a future that
is done when that has found out; and it yields a function of the program that is to be called. `Client` makes
calls in a thread, `AsyncClient` on an event loop.
`Retry` says when a request is repeated.
"""

import ssl
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from lakelog.client.security_config import Credential
from log_tables import errors
from log_tables.clock import Clock
from log_tables.error_codes import ERROR_CODES, INTERNAL, NAMED
from log_tables.errors import InvalidArgument, LakelogError, OutcomeUnknown, Unreachable

ARROW = "application/vnd.apache.arrow.stream"

_CONNECT_TIMEOUT_S = 5.0
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.InvalidURL,
    httpx.UnsupportedProtocol,
)

_BY_CODE: Mapping[int, type[LakelogError]] = {
    code: kind for kind, code in reversed([*ERROR_CODES.items()]) if code != INTERNAL
}
"""The first class of each code."""

_BY_NAME = {kind.code: kind for kind in NAMED}

_DENIED = {401: errors.AuthenticationFailed, 403: errors.AuthorizationFailed}


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
Asked = Request | float | Future[None] | Callable[[], object]
Call = Generator[Asked, Any, Result]
"""Yields requests, pauses in seconds, what it waits for, and functions of the program; it is sent the
httpx.Response of each request.
Its maker closes it.
"""


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
        tls = ", or by https:// if it speaks TLS" if url.startswith("http:") else ""
        return Unreachable(f"no gateway answers at {url} to the end ({said}); ask again{tls}")
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
    if ssl_context is None:
        # The system's authorities; httpx comes with its own. To read them takes 50 ms, which HTTP needs not.
        secure = url.startswith("https:")
        ssl_context = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"base_url": url, "auth": auth, "verify": ssl_context}


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


def kind_of(code: int) -> type[LakelogError]:
    """The class of errors with this code. One that is not known here goes by its first three digits."""
    status = int(str(code)[:3])
    by_status = errors.InvalidRequest if 400 <= status < 500 else LakelogError
    return _BY_CODE.get(code) or _BY_CODE.get(status) or _DENIED.get(status) or by_status


def refusal(answer: httpx.Response) -> LakelogError:
    """A gateway's refusal in Python: the error that its answer names."""
    try:
        body = answer.json()
        code, message = int(body.pop("error_code")), str(body.pop("message"))
    except (KeyError, TypeError, ValueError, AttributeError):
        said = f"the gateway answered {answer.status_code} without saying why"
        if answer.status_code in _DENIED:
            return _DENIED[answer.status_code](f"{said}; a proxy may want another credential")
        # The answer is that of a proxy, which does not know whether the gateway has done it.
        lost = answer.status_code in (502, 503, 504)
        return errors.OutcomeUnknown(f"{said}; look before repeating") if lost else LakelogError(said)
    return error_of({"error_code": code, "message": message, **_retry_after(answer), **body})


def error_of(body: Mapping[str, Any]) -> LakelogError:
    """The error that the body of an answer names."""
    details = {name: value for name, value in body.items() if name not in ("error", "error_code", "message")}
    kind = _BY_NAME.get(str(body.get("error", ""))) or kind_of(int(body["error_code"]))
    return kind(str(body["message"]), **details)


def _retry_after(answer: httpx.Response) -> dict[str, float]:
    """Retry-After, in seconds, where the answer has one."""
    text = answer.headers.get("Retry-After", "")
    return {"retry_after_s": float(text)} if text.isdecimal() else {}


PAUSE_S = 0.1
"""Between two attempts, where the gateway does not say how long."""

Answer = TypeVar("Answer")
MayRepeat = Callable[[LakelogError], bool]


class Retry:
    """Whether an attempt is repeated: for `timeout_s` after its first error, if `may_repeat` accepts it."""

    def __init__(self, may_repeat: MayRepeat, timeout_s: float, clock: Clock) -> None:
        self._may_repeat, self._timeout_s, self._clock = may_repeat, timeout_s, clock
        self._deadline: float | None = None

    def pause_s(self, error: LakelogError) -> float | None:
        """The seconds before the next attempt; None: there is none."""
        now_s = self._clock.monotonic()
        if self._deadline is None:
            self._deadline = now_s + self._timeout_s
        pause_s = float(error.details.get("retry_after_s", PAUSE_S))
        return pause_s if self._may_repeat(error) and now_s + pause_s <= self._deadline else None


def call_retried(
    attempt: Callable[[], Call[Result]], may_repeat: MayRepeat, timeout_s: float, clock: Clock
) -> Call[Result]:
    """The result of the calls that `attempt` makes, as `retry` has it."""
    again = Retry(may_repeat, timeout_s, clock)
    while True:
        try:
            return (yield from attempt())
        except LakelogError as error:
            pause_s = again.pause_s(error)
            if pause_s is None:
                raise
        yield pause_s


def retry(attempt: Callable[[], Answer], may_repeat: MayRepeat, timeout_s: float, clock: Clock) -> Answer:
    """The result of `attempt`, tried again for `timeout_s` after its first error that `may_repeat` accepts.

    Raises the first error that it does not accept, or the last one when the time is over.
    """
    again = Retry(may_repeat, timeout_s, clock)
    while True:
        try:
            return attempt()
        except LakelogError as error:
            pause_s = again.pause_s(error)
            if pause_s is None:
                raise
        clock.pause(pause_s)
