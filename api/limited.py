"""Routes that refuse a large body before it is held in memory: those whose bodies are a few settings."""

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from api.errors import RequestTooLarge
from api.strict import StrictRoute
from log_tables.limits import MIB

BODY_MAX_BYTES = 1 * MIB
"""A topic with every setting is a few hundred bytes."""

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LimitedRoute(StrictRoute):
    """A route whose request body has at most BODY_MAX_BYTES; a larger one answers 413."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            return await handle(await _within_limit(request))

        return limited


async def read_limited(request: Request) -> bytes:
    """The body of `request`. Raises RequestTooLarge."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX_BYTES:
            raise RequestTooLarge(f"the body has more than {BODY_MAX_BYTES} bytes; send less")
    return bytes(body)


async def _within_limit(request: Request) -> Request:
    """`request`, whose body has been read. Raises RequestTooLarge."""
    body = await read_limited(request)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)
