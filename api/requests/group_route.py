"""Routes of a consumer group: every gateway forwards them to the group's coordinator."""

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from api.gateway import Gateway
from api.requests.body import put_back, take_body
from api.requests.changes import note_offsets
from api.requests.forward import check_headers, forward
from api.requests.route_gateway import gateway
from api.requests.strict import StrictRoute
from coordinator.brokers.peers import TARGET
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import NotLeader, Unreachable

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GroupRoute(StrictRoute):
    """A route whose path has a `group`. Its handler runs at the coordinator of that group."""

    def inner_handler(self) -> _Handler:
        handle = super().inner_handler()

        async def routed(request: Request) -> Response:
            check_headers(request)
            body = take_body(request)
            note_offsets(request.scope, body)
            return await _at_coordinator(gateway(request), request, body, handle)

        return routed


async def _at_coordinator(here: Gateway, request: Request, body: bytes, handle: _Handler) -> Response:
    async def answer() -> Response:
        return await handle(_with_body(request, body))

    async def ask(broker: BrokerRecord) -> Response:
        return await forward(here, broker, request, body)

    if request.method == "GET" and not await here.shard_manager.has_groups():
        return await answer()  # that there is no such group; nothing is created
    topic, partition = await here.shard_manager.partition_for(request.path_params["group"])
    if TARGET in request.headers:  # another gateway has forwarded it: it goes no further
        await here.leadership.become_leader(topic, partition, forwarded=True)
        return await answer()
    return await here.router.at_leader(
        topic, partition, answer, ask, lambda error: isinstance(error, NotLeader | Unreachable)
    )


def _with_body(request: Request, body: bytes) -> Request:
    """`request` with its body, which was taken from it."""
    put_back(request, body)
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await request.receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)
