"""Routes of a consumer group: every gateway forwards them to the group's coordinator."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from api.errors import STATUS_AND_CODE
from api.gateway import Gateway, gateway
from api.requests.body import put_back, take_body
from api.requests.strict import StrictRoute
from coordinator.brokers.peers import TARGET
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import InvalidArgument, NotLeader, OutcomeUnknown, Unreachable

STREAMED_BYTES = 1 << 20
"""A larger answer, or one of unknown size, is streamed."""

CLIENT_LOOK_S = 0.5
"""How often a gateway checks whether the client still waits, while another gateway answers."""

_FORWARDED_HEADERS = ("accept", "content-type", "idempotency-key")
"""The headers of a request that these routes read."""

_DROPPED_HEADERS = frozenset(
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", TARGET]
)
"""Headers of an answer that belong to one connection (RFC 9110), or that each server writes itself."""

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GroupRoute(StrictRoute):
    """A route whose path has a `group`. Its handler runs at the coordinator of that group."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def routed(request: Request) -> Response:
            here = gateway(request)
            _check_headers(request)
            return await _at_coordinator(here, request, take_body(request), handle)

        return routed


def _check_headers(request: Request) -> None:
    """Raise InvalidArgument for headers that two gateways might read differently."""
    for name in _FORWARDED_HEADERS:
        values = request.headers.getlist(name)
        if len(values) > 1 or not all(map(str.isascii, values)):
            raise InvalidArgument(f"the header {name} has the values {values[:2]!r}; send it once, in ASCII")


async def _at_coordinator(here: Gateway, request: Request, body: bytes, handle: _Handler) -> Response:
    if request.method == "GET" and not await here.shard_manager.has_groups():
        return await handle(
            _with_body(request, body)
        )  # answers that there is no such group, and creates nothing
    topic, partition = await here.shard_manager.partition_for(request.path_params["group"])
    if TARGET in request.headers:  # another gateway has forwarded it: it goes no further
        await here.leadership.become_leader(topic, partition, forwarded=True)
        return await handle(_with_body(request, body))

    async def answer() -> Response:
        return await handle(_with_body(request, body))

    async def ask(broker: BrokerRecord) -> Response:
        return await _forward(here, broker, request, body)

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


async def _forward(here: Gateway, broker: BrokerRecord, request: Request, body: bytes) -> Response:
    """The answer of `broker`. Raises NotLeader if it does not coordinate the group, Unreachable,
    OutcomeUnknown.
    """
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
    asking = asyncio.ensure_future(
        here.peers.forward(broker, request.method, f"{path}?{query}" if query else path, headers, body)
    )
    try:
        while not (await asyncio.wait((asking,), timeout=CLIENT_LOOK_S))[0]:
            # A poll may last for minutes. It ends early if its client is gone, or if this gateway stops.
            polling = request.method == "GET" and here.stopping.is_set()
            if polling or await request.is_disconnected():
                raise OutcomeUnknown("this gateway stopped waiting for the answer; repeat the request")
    finally:
        if not asking.done():
            asking.cancel()
    answer = asking.result()
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED_HEADERS}
    length = answer.content_length
    if answer.status == 200 and (length is None or length > STREAMED_BYTES):
        return StreamingResponse(_stream(answer), answer.status, headers)
    try:
        content = await answer.read()
    except (aiohttp.ClientError, OSError):
        raise OutcomeUnknown(
            f"broker {broker.id} broke off its answer; check the result before you repeat the request"
        ) from None
    finally:
        answer.release()
    if answer.status == STATUS_AND_CODE[NotLeader][0]:
        _raise_not_leader(content)
    return Response(content, answer.status, headers)


def _raise_not_leader(content: bytes) -> None:
    with suppress(msgspec.MsgspecError, TypeError):
        body = msgspec.json.decode(content, type=dict[str, Any])
        if body.get("error_code") == STATUS_AND_CODE[NotLeader][1]:
            raise NotLeader(str(body.get("message")))


async def _stream(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for part in answer.content.iter_any():
            yield part
    finally:
        answer.close()
