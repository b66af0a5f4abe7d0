"""Routes that know their parameters: one that is misspelt is refused, as a misspelt field of a body is.

So is one that is given twice, and a number that is not written as one.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from api.requests.access import admit, names_counted
from api.requests.changes import audited
from api.requests.rules import Rule, rule_of
from api.requests.strict_body import with_content
from api.scalars import decimal
from log_tables.errors import InvalidArgument

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that takes the query parameters which its function declares, once each, and no others; after
    its rule of access.
    """

    rule: Rule

    def get_route_handler(self) -> _Handler:
        self.rule = rule_of(self.methods or (), self.path)
        handle = audited(self.inner_handler(), self.rule.change)

        async def admitted(request: Request) -> Response:
            admit(request.scope, self.rule)
            return await handle(request)

        return admitted

    def inner_handler(self) -> _Handler:
        """The handler of a request that is admitted."""
        handle, dependants = super().get_route_handler(), [*_all_of(self.dependant)]
        known = frozenset(field.alias for each in dependants for field in each.query_params)
        body_field = self.body_field
        in_path = _numbers(field for each in dependants for field in each.path_params)
        in_query = _numbers(field for each in dependants for field in each.query_params)

        async def strict(request: Request) -> Response:
            _check_numbers(request.path_params, in_path)
            if request.scope["query_string"]:
                check_names(request.query_params, known)
                _check_numbers(request.query_params, in_query)
            if body_field is None:
                return await handle(request)
            request, named = await with_content(request, body_field)
            with names_counted(request.scope, *named):
                return await handle(request)

        return strict


def _all_of(dependant: Dependant) -> Iterable[Dependant]:
    """A route's own parameters, and those of what it depends on."""
    yield dependant
    for each in dependant.dependencies:
        yield from _all_of(each)


def _numbers(fields: Iterable[Any]) -> frozenset[str]:
    """The names of those parameters that are whole numbers."""
    kinds = ((field.alias, field.field_info.annotation) for field in fields)
    return frozenset(name for name, kind in kinds if int in (kind, *get_args(kind)))


def check_names(query: QueryParams, known: Collection[str]) -> None:
    """Raise InvalidArgument for a parameter that is not `known`, or is given twice."""
    names = [name for name, _ in query.multi_items()]
    for name in names:
        if name not in known:
            raise _unknown(name, known)
    for name in known:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"the query parameter {name!r} is given {names.count(name)} times; give it once"
            )


def _check_numbers(given: Mapping[str, str], numbers: frozenset[str]) -> None:
    for name in numbers:
        if name in given and decimal(given[name]) is None:
            raise not_a_number(name, given[name])


def not_a_number(name: str, text: str) -> InvalidArgument:
    """The error for a parameter that is not a whole number, or is not written as one."""
    return InvalidArgument(f"{name} = {text[:40]!r} is not a whole number; write its digits, as 10")


def _unknown(name: str, known: Collection[str]) -> InvalidArgument:
    shown, close = name[:40], get_close_matches(name, known, n=1)
    if not known:
        return InvalidArgument(f"the query parameter {shown!r} is not known; this route takes none")
    hint = f"did you mean {close[0]}? " if close else ""
    return InvalidArgument(
        f"the query parameter {shown!r} is not known; {hint}this route takes {', '.join(sorted(known))}"
    )
