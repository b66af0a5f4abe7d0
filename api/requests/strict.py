"""Routes that know their query: a parameter that is misspelt is refused, as a misspelt field of a body is."""

from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from log_tables.errors import InvalidArgument

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that takes the query parameters which its function declares, and no others."""

    def get_route_handler(self) -> _Handler:
        handle, known = super().get_route_handler(), _query_names(self.dependant)

        async def strict(request: Request) -> Response:
            if request.scope["query_string"]:
                for name in request.query_params:
                    if name not in known:
                        raise _unknown(name, known)
            return await handle(request)

        return strict


def _query_names(dependant: Dependant) -> frozenset[str]:
    """What a route takes in its query, by itself and by what it depends on."""
    names = frozenset(field.alias for field in dependant.query_params)
    return names.union(*map(_query_names, dependant.dependencies))


def _unknown(name: str, known: frozenset[str]) -> InvalidArgument:
    shown, close = name[:40], get_close_matches(name, known, n=1)
    if not known:
        return InvalidArgument(f"the query parameter {shown!r} is not known; this route takes none")
    hint = f"did you mean {close[0]}? " if close else ""
    return InvalidArgument(
        f"the query parameter {shown!r} is not known; {hint}this route takes {', '.join(sorted(known))}"
    )
