"""Bodies that know their fields: what is misspelt is refused, and in few words however much of it there is.

Each problem that a validation finds takes a kilobyte, so that a million of them are not collected.
"""

import json
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, FailFast, model_validator
from starlette.requests import Request

from api.wire.offload import INLINE_MAX_STRICT_BYTES, maybe_in_thread

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
