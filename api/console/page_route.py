"""The routes of pages: what fails on one is a page too, and who is not known is asked to log in."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from api.console.page import HEADERS, render
from api.errors import answer_to, explain
from api.gateway import Gateway
from api.media import prefers_page
from api.requests.access import caller_of
from api.requests.route_gateway import gateway
from api.requests.strict import StrictRoute
from coordinator.access.caller import Caller
from coordinator.access.host import is_loopback
from ingest.settings import Settings
from log_tables.errors import AuthenticationFailed, InvalidArgument, NotFound, UnknownTopic

LOGIN = "/console/login"
ENTRY = "/console"

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(StrictRoute):
    """A route that answers a page."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def paged(request: Request) -> Response:
            try:
                check_console(gateway(request))
                return await handle(request)
            except AuthenticationFailed:
                return asked_to_log_in(request.scope)
            except RequestValidationError as error:
                said = "; ".join(map(explain, error.errors()))
                return await _failed(request, InvalidArgument(f"{said}; correct the address"))
            except Exception as error:  # noqa: BLE001 (it is logged, as on every route)
                return await _failed(request, error)

        return paged


def check_console(here: Gateway) -> None:
    """Raise NotFound where the console is off."""
    if not here.settings.console_enable:
        raise NotFound("the console is off; set console_enable = true, and restart the gateway")
    if here.access.is_open and not is_local(here.settings):
        raise NotFound(
            "the console is off, as everybody who reaches this gateway may do everything here; set "
            "authentication_methods, or listen on 127.0.0.1"
        )


def is_local(settings: Settings) -> bool:
    """Whether only programs of this machine reach the gateway."""
    return settings.host == "localhost" or is_loopback(settings.host)


def has_console(here: Gateway) -> bool:
    """Whether the console is on."""
    try:
        check_console(here)
    except NotFound:
        return False
    return True


def wants_page(scope: Scope) -> bool:
    """Whether Accept weighs HTML most and names it first, as a browser's does."""
    return prefers_page(Headers(scope=scope).get("accept", ""))


def is_page(scope: Scope) -> bool:
    """Whether a request is for a page of the console, and no file or script of one."""
    if scope["method"] != "GET" or not (scope["path"] == ENTRY or scope["path"].startswith(ENTRY + "/")):
        return False
    return wants_page(scope)


def asked_to_log_in(scope: Scope) -> Response:
    """The way to the login, and back to what was asked for."""
    asked = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
    query = {} if asked in (ENTRY, LOGIN) else {"next": asked}
    return RedirectResponse(f"{LOGIN}?{urlencode(query)}" if query else LOGIN, 303, HEADERS)


async def _failed(request: Request, error: Exception) -> Response:
    """A page with the message that a program gets, which has no paths and no traces."""
    answer = await answer_to(request, error)
    said = msgspec.json.decode(answer.body, type=_Message).message
    # The error of a name that no topic can have is another one.
    missing = request.path_params.get("topic", "") if isinstance(error, UnknownTopic) else ""
    values = {"status": answer.status_code, "message": said, "missing_topic": missing}
    return render(request, "failed.html", values, authorization_of(request), answer.status_code)


class _Message(msgspec.Struct):
    message: str


def authorization_of(request: Request) -> Caller | None:
    """The rights of `request`; None before anybody has logged in."""
    try:
        return caller_of(request.scope)
    except AuthenticationFailed:
        return None
