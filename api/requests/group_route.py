"""Routes of a consumer group: every gateway forwards them to the group's coordinator.

A request is sent there as it came, and the answer is passed on to the client.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from api.errors import STATUS_AND_CODE
from api.gateway import Gateway
from api.requests.access import caller_of, check_again, encode_context
from api.requests.body import put_back, take_body
from api.requests.changes import note_offsets
from api.requests.route_gateway import gateway
from api.requests.strict import StrictRoute
from coordinator.brokers.peers import CALLER, TARGET
from ingest.pending_tasks import watched
from ingest.request_trace import REQUEST_ID
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import InvalidArgument, NotLeader, OutcomeUnknown, Unreachable

if TYPE_CHECKING:
    import aiohttp

STREAMED_BYTES = 1 << 20
"""A larger answer, or one of unknown size, is streamed."""

CLIENT_LOOK_S = 0.5
"""How often a gateway checks whether the client still waits, while another gateway answers."""

_FORWARDED_HEADERS = ("accept", "content-type", "idempotency-key")
"""The headers of a request that the routes of groups read."""

_DROPPED_HEADERS = frozenset(
    ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", TARGET, REQUEST_ID]
)
"""Headers of an answer that belong to one connection (RFC 9110), or that each server writes itself."""

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


def check_headers(request: Request) -> None:
    """Raise InvalidArgument for headers that two gateways might read differently."""
    for name in _FORWARDED_HEADERS:
        values = request.headers.getlist(name)
        if len(values) > 1 or not all(map(str.isascii, values)):
            raise InvalidArgument(f"the header {name} has the values {values[:2]!r}; send it once, in ASCII")


async def forward(here: Gateway, broker: BrokerRecord, request: Request, body: bytes) -> Response:
    """The answer of `broker` to `request`, whose body was taken. Raises NotLeader if `broker` says that,
    Unreachable, OutcomeUnknown.
    """
    answer = await _ask(here, broker, request, body)
    from aiohttp import ClientError  # loaded by now, and only where there is another gateway

    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED_HEADERS}
    length = answer.content_length
    if answer.status == 200 and (length is None or length > STREAMED_BYTES):
        return StreamingResponse(_stream(answer), answer.status, headers)
    try:
        content = await answer.read()
    except (ClientError, OSError):
        raise OutcomeUnknown(
            f"broker {broker.id} broke off its answer; check the result before you repeat the request"
        ) from None
    finally:
        answer.release()
    if answer.status == STATUS_AND_CODE[NotLeader][0]:
        _raise_not_leader(content)
    return Response(content, answer.status, headers)


async def _ask(
    here: Gateway, broker: BrokerRecord, request: Request, body: bytes
) -> "aiohttp.ClientResponse":
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
    headers[CALLER] = encode_context(caller_of(request.scope).context)

    async def check() -> None:
        # A poll may last for minutes. It ends early if its client is gone or may no longer ask, or if this
        # gateway stops.
        polling = request.method == "GET"
        if (polling and here.stopping.is_set()) or await request.is_disconnected():
            raise OutcomeUnknown("this gateway stopped waiting for the answer; repeat the request")
        if polling:
            await check_again(here, request.scope)

    asking = here.peers.forward(broker, request.method, f"{path}?{query}" if query else path, headers, body)
    return await watched(asking, CLIENT_LOOK_S, check)


def _raise_not_leader(content: bytes) -> None:
    with suppress(msgspec.MsgspecError, TypeError):
        body = msgspec.json.decode(content, type=dict[str, Any])
        if body.get("error_code") == STATUS_AND_CODE[NotLeader][1]:
            raise NotLeader(str(body.get("message")))


async def _stream(answer: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    try:
        async for part in answer.content.iter_any():
            yield part
    finally:
        answer.close()
