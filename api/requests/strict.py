"""Routes that know their parameters, and bodies that know their fields: what is misspelt is refused.

So is a parameter that is given twice, and a number that is not written as one. Of a body it takes few words,
however much is wrong: each problem that a validation finds takes a kilobyte, so a million of them are not
collected.
"""

import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Annotated, Any, TypeVar, get_args

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, FailFast, model_validator
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from api.requests.access import admit, names_counted
from api.requests.changes import audited
from api.requests.rules import Rule, rule_of
from api.scalars import decimal
from api.wire.offload import INLINE_MAX_STRICT_BYTES, maybe_in_thread
from log_tables.errors import InvalidArgument
from log_tables.spelling import meant

_UNKNOWN_MAX = 10
"""Fields that are not known and named one by one."""

_SHOWN_MAX = 10
"""Items of a list that an error may show."""

NOTHING_NAMED = (0, 0)
"""Names and items of a request that has no lists."""

Item = TypeVar("Item")


class _AtFirst(FailFast):
    """Pydantic's, which cannot stand in a union, as it has no hash."""

    __hash__ = object.__hash__


Listed = Annotated[list[Item], _AtFirst()]
"""A list of which the first item that is wrong is named."""


class StrictBody(BaseModel):
    """A body, or a part of one, that refuses a field which it does not know: it may be misspelt."""

    model_config = ConfigDict(extra="forbid")

    def counted_by(self) -> object:
        """The name that an item of a list is, for quotas: equal ones count once."""
        return id(self)

    def named(self) -> tuple[int, int]:
        """How many names and items the lists of a body have."""
        names, items = 0, 0
        for field in type(self).model_fields:
            listed = getattr(self, field)
            if isinstance(listed, list):
                names += len({each.counted_by() if isinstance(each, StrictBody) else each for each in listed})
                items += len(listed)
        return names, items

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown(cls, sent: Any) -> Any:
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields) + _UNKNOWN_MAX:
            raise ValueError(f"{len(sent)} fields are too many; known are {', '.join(cls.model_fields)}")
        return sent


class _DecodedRequest(Request):
    """A request whose body is checked already."""

    def __init__(self, request: Request, body: bytes, content: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._content, self._sent = content, body

    async def body(self) -> bytes:
        return self._sent

    async def json(self) -> Any:
        return self._content


async def with_content(request: Request, field: Any) -> tuple[Request, tuple[int, int]]:
    """`request`, with its body checked as the field of a route that it is, in a thread if it is long; and how
    many names and items that has.

    Raises RequestValidationError.
    """
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if not body or not kind.endswith("json"):
        return request, NOTHING_NAMED

    def check() -> tuple[Any, Any, tuple[int, int]]:
        content, errors = field.validate(json.loads(body), {}, loc=("body",))
        named = content.named() if isinstance(content, StrictBody) else NOTHING_NAMED
        return content, errors, named

    try:
        content, errors, named = await maybe_in_thread(len(body) > INLINE_MAX_STRICT_BYTES, check)
    except json.JSONDecodeError as error:  # said as FastAPI does, which would read all of it again
        problem = {
            "type": "json_invalid",
            "loc": ("body", error.pos),
            "msg": "JSON decode error",
            "input": {},
        }
        raise RequestValidationError([{**problem, "ctx": {"error": error.msg}}]) from None
    except ValueError:
        return request, NOTHING_NAMED  # it is no text, as will be said
    for each in errors:
        if isinstance(each.get("input"), list):
            each["input"] = each["input"][:_SHOWN_MAX]  # to show all of it takes long
    if errors:
        raise RequestValidationError(errors)
    return _DecodedRequest(request, body, content), named


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
    shown = name[:40]
    if not known:
        return InvalidArgument(f"the query parameter {shown!r} is not known; this route takes none")
    hint = f"{meant(name, known)} ".lstrip()
    return InvalidArgument(
        f"the query parameter {shown!r} is not known; {hint}this route takes {', '.join(sorted(known))}"
    )
