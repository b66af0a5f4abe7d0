"""Routes of a consumer group: answered by the gateway that coordinates it, whichever was asked."""

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
"""An answer that is larger, or does not say how large it is, is passed on as it comes."""

CLIENT_LOOK_S = 0.5
"""How often it is asked, while another gateway answers, whether the client still waits."""

_ASKED = ("accept", "content-type", "idempotency-key")
"""The headers of a request that these routes go by."""

_NOT_TOLD = frozenset(
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", TARGET]
)
"""Headers of an answer that belong to one connection (RFC 9110), or that each server writes itself."""

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GroupRoute(StrictRoute):
    """A route whose path has a `group`: its handler runs where that group is coordinated."""

    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()

        async def routed(request: Request) -> Response:
            here = gateway(request)
            _check_headers(request)
            return await _at_home(here, request, take_body(request), handle)

        return routed


def _check_headers(request: Request) -> None:
    """Raise InvalidArgument for what one gateway would read otherwise than the next one."""
    for name in _ASKED:
        values = request.headers.getlist(name)
        if len(values) > 1 or not all(map(str.isascii, values)):
            raise InvalidArgument(f"the header {name} is given {values[:2]!r}; send it once, in ASCII")


async def _at_home(here: Gateway, request: Request, body: bytes, handle: _Handler) -> Response:
    if request.method == "GET" and not await here.shard_manager.has_groups():
        return await handle(_again(request, body))  # which says that there is none, and makes nothing
    topic, index = await here.shard_manager.partition_for(request.path_params["group"])
    if TARGET in request.headers:  # another gateway has passed it on: it goes no further
        await here.leadership.become_leader(topic, index, forwarded=True)
        return await handle(_again(request, body))

    async def answer() -> Response:
        return await handle(_again(request, body))

    async def ask(broker: BrokerRecord) -> Response:
        return await _passed_on(here, broker, request, body)

    return await here.router.at_leader(
        topic, index, answer, ask, lambda error: isinstance(error, NotLeader | Unreachable)
    )


def _again(request: Request, body: bytes) -> Request:
    """`request`, whose body has been taken: it is there again, and comes again."""
    put_back(request, body)
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await request.receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


async def _passed_on(here: Gateway, broker: BrokerRecord, request: Request, body: bytes) -> Response:
    """The answer of `broker`. Raises NotLeader when it does not coordinate the group, Unreachable,
    OutcomeUnknown.
    """
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
    asking = asyncio.ensure_future(
        here.peers.forward(broker, request.method, f"{path}?{query}" if query else path, headers, body)
    )
    try:
        while not (await asyncio.wait((asking,), timeout=CLIENT_LOOK_S))[0]:
            # A poll may last for minutes: not for a client that is gone, nor beyond the end of this gateway.
            polling = request.method == "GET" and here.stopping.is_set()
            if polling or await request.is_disconnected():
                raise OutcomeUnknown("nobody waits for the answer here any more; ask again")
    finally:
        if not asking.done():
            asking.cancel()
    answer = asking.result()
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_TOLD}
    length = answer.content_length
    if answer.status == 200 and (length is None or length > STREAMED_BYTES):
        return StreamingResponse(_stream(answer), answer.status, headers)
    try:
        content = await answer.read()
    except (aiohttp.ClientError, OSError):
        raise OutcomeUnknown(f"broker {broker.id} did not answer to the end; look before repeating") from None
    finally:
        answer.release()
    if answer.status == STATUS_AND_CODE[NotLeader][0]:
        _raise_not_leader(content)
    return Response(content, answer.status, headers)


def _raise_not_leader(content: bytes) -> None:
    with suppress(msgspec.MsgspecError, TypeError):
        said = msgspec.json.decode(content, type=dict[str, Any])
        if said.get("error_code") == STATUS_AND_CODE[NotLeader][1]:
            raise NotLeader(str(said.get("message")))


async def _stream(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for part in answer.content.iter_any():
            yield part
    finally:
        answer.close()
