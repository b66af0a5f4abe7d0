"""How a route gets the gateway that serves its request."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from api.gateway import Gateway


def gateway(request: Request) -> Gateway:
    """The gateway that serves `request`: `app.state.gateway`."""
    found: Gateway = request.app.state.gateway
    return found


async def _here(request: Request) -> Gateway:
    # Async although it never waits: FastAPI would call a plain function in a thread, every time.
    return gateway(request)


Here = Annotated[Gateway, Depends(_here)]
"""A route's parameter that takes the gateway."""
