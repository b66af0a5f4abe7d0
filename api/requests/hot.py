"""Hot routes: requests so frequent that the layers of FastAPI would cost as much as their work.

FastAPI documents a hot route, and `HotRoutes` answers it: the path, the query and the headers become the
arguments of its function by the types that the function declares. Everything else is the same: the checks
before the application, the names of parameters, the errors.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple, get_args

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import answer_to
from api.requests.access import admit
from api.requests.rules import Rule
from api.requests.strict import StrictRoute, check_names, not_a_number
from api.scalars import decimal
from log_tables.errors import LakelogError

Arguments = dict[str, Any]


class HotResponse(Response):
    """A response with status 200 whose `headers` are bytes already; those besides its length."""

    def __init__(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status_code, self.body, self.background = 200, body, None
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]


class _Field(NamedTuple):
    """A parameter of a function, and the name that a request has for it."""

    name: str
    alias: str
    is_number: bool

    def value(self, text: str) -> str | int:
        """Raises InvalidArgument for a number that is not written as one."""
        if not self.is_number:
            return text
        number = decimal(text)
        if number is None:
            raise not_a_number(self.alias, text)
        return number


class HotRoute(StrictRoute):
    """A route of texts and whole numbers, each of which has a default unless it stands in the path."""

    def bind(self) -> "Callable[[Scope], Arguments]":
        """A function from the scope of a request to the arguments of the route's own function."""
        dependant = self.dependant
        in_path, in_query, in_head = map(
            _parameters, (dependant.path_params, dependant.query_params, dependant.header_params)
        )
        by_query = {each.alias: each for each in in_query}
        by_head = {each.alias.encode(): each for each in in_head}

        def arguments(scope: Scope) -> Arguments:
            matched = scope["path_params"]
            found: Arguments = {each.name: each.value(matched[each.alias]) for each in in_path}
            if scope["query_string"]:
                query = Request(scope).query_params
                check_names(query, by_query.keys())
                found |= {by_query[name].name: by_query[name].value(text) for name, text in query.items()}
            if by_head:
                for name, value in reversed(scope["headers"]):  # the first one counts
                    if name in by_head:
                        found[by_head[name].name] = value.decode("latin-1")
            return found

        return arguments


def _parameters(fields: Sequence[Any]) -> list[_Field]:
    kinds = ((field, field.field_info.annotation) for field in fields)
    return [_Field(field.name, field.alias, int in (kind, *get_args(kind))) for field, kind in kinds]


class _Bound(NamedTuple):
    methods: Collection[str]
    path: re.Pattern[str]
    rule: Rule
    arguments: Callable[[Scope], Arguments]
    answer: Callable[..., Awaitable[Response]]
    route: "HotRoute"


class HotRoutes:
    """An ASGI application around all layers of FastAPI: it answers the hot ones of `routes` itself."""

    def __init__(self, app: ASGIApp, routes: Sequence[Any]) -> None:
        self._app = app
        self._bound = [
            _Bound(route.methods or (), route.path_regex, route.rule, route.bind(), route.endpoint, route)
            for route in routes
            if isinstance(route, HotRoute)
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for bound in self._bound:
                if scope["method"] in bound.methods and (match := bound.path.match(scope["path"])):
                    scope["path_params"], scope["route"] = match.groupdict(), bound.route
                    await _respond(Request(scope, receive), send, bound)
                    return
        await self._app(scope, receive, send)


async def _respond(request: Request, send: Send, bound: _Bound) -> None:
    response: Response | None = None
    try:
        try:
            admit(request.scope, bound.rule)
            response = await bound.answer(request, **bound.arguments(request.scope))
        except (LakelogError, ClientDisconnect) as error:
            response = await answer_to(request, error)
        await response(request.scope, request.receive, send)
    except Exception as error:  # as Starlette's outermost layer, which is not around this
        failed = await answer_to(request, error)
        if response is None:
            await failed(request.scope, request.receive, send)
        raise
