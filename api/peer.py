"""The routes between gateways: append to a partition that this one leads, change a group that this one
coordinates, and become leader of a partition that another hands over.

No request is forwarded from here, so that none goes round in circles. This is an application of its own: the
layers of the public API would make every forwarded request slower.

Only gateways of this root that mean this process pass. A port may belong to another gateway by now, even of
another cluster, or to another service. So a gateway names the target of its request, by a secret that only
gateways know, and it trusts an answer only if that proves the same (coordinator/brokers/peer_secret.py). It
also names itself: a copy of the root has the same names, but a gateway of the copy is not registered in this
root, or shows no sign of life here.
"""

from collections.abc import Sequence

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access_log import CONTEXT
from api.errors import add_error_handlers, drop_frames, error_response
from api.gateway import Gateway
from api.media import Format
from api.requests.access import decode_context
from api.requests.body import WithBody, room_of, take_body
from api.requests.heads import ASKED_BY, CALLED_BY, TARGETED, heads
from api.requests.route_gateway import gateway
from api.scalars import decimal
from api.wire.offload import is_large, maybe_in_thread
from coordinator.access.access import UNCHECKED
from coordinator.brokers.peer_wire import decode_entries, encode_outcomes
from coordinator.brokers.peers import APPEND_PATH
from ingest.buffer import Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.route import SentRecords, check_sizes
from log_tables.cluster.topic import Topic, check_writable
from log_tables.errors import BufferFull, InvalidArgument, LakelogError, TopicDeleted
from log_tables.layout import AUDIT
from log_tables.limits import PART_BYTES
from log_tables.partition.partition import AppendRequest
from log_tables.topic_partition import TopicIdPartition

_STATUS = 421
_REFUSED = msgspec.json.encode(
    {
        "error_code": _STATUS,
        "message": "this request is for another gateway; use the public API, see /docs",
    }
)


class PeerMiddleware:
    """The ASGI middleware of a gateway, to whose application it adds the routes between gateways."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = WithBody(app, gateway), gateway
        self._peer_app = WithBody(create_peer_app(gateway), gateway, body_refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for_peers = scope["path"].startswith("/peer/")
        if TARGETED not in heads(scope) and not for_peers:
            await self._app(scope, receive, send)
            return
        brokers = self._gateway.brokers
        target = brokers.find_target(heads(scope).get(TARGETED, (b"",))[0].decode("latin-1"))
        asker = None if target is None else await brokers.admitted(_asker(scope), target)
        if target is None or asker is None:
            await _refuse(send)
            return

        if not (for_peers or self._gateway.access.is_open):
            called_by = heads(scope).get(CALLED_BY, (b"",))[0]
            scope[CONTEXT] = decode_context(called_by) if asker.secured else UNCHECKED

        async def send_with_target(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (TARGETED, target.proof.encode())]}
            await send(message)

        await (self._peer_app if for_peers else self._app)(scope, receive, send_with_target)


def _asker(scope: Scope) -> str:
    return heads(scope).get(ASKED_BY, (b"",))[0].decode("latin-1")


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_REFUSED)).encode())]
    await send({"type": "http.response.start", "status": _STATUS, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})


def create_peer_app(gateway: Gateway) -> Starlette:
    """The ASGI application under `/peer/`."""
    app = Starlette(
        routes=[
            Route(APPEND_PATH, append, methods=["POST"]),
            Route("/peer/group", group, methods=["POST"]),
            Route("/peer/producers", producers, methods=["POST"]),
            Route("/peer/lead", lead, methods=["POST"]),
            Route("/peer/ping", ping, methods=["GET"]),
        ]
    )
    app.state.gateway = gateway
    add_error_handlers(app)
    return app


async def ping(_: Request) -> Response:
    """This gateway is alive."""
    return Response(status_code=204)


async def append(request: Request) -> Response:
    """Append the entries of the body to one partition, in their order."""
    here, at = gateway(request), _named(request)
    acks = acks_named(request.query_params.get("acks", Acks.ALL.value))
    with room_of(here, request) as room:
        body = take_body(request)
        try:
            entries = await maybe_in_thread(
                is_large(body, Format.ARROW), lambda: decode_entries(body, room.grow)
            )
            room.grow(room.size_bytes + len(entries) * PART_BYTES)
        except BufferFull as error:
            return body_refused(error)
        return _answer(await append_entries(here, at, entries, acks, room))


def body_refused(error: LakelogError) -> Response:
    """The answer to a body that is refused."""
    drop_frames(error)
    # A full buffer is the answer for the client, and nothing was written.
    return _answer([error]) if isinstance(error, BufferFull) else error_response(error)


async def append_entries(
    here: Gateway, at: TopicIdPartition, entries: Sequence[AppendRequest], acks: Acks, room: Room
) -> list[AppendOutcome]:
    """The outcome of each request; an error is an outcome."""
    try:
        check_named(at.topic)
        topic = await _find(here, at)
        check_entries(topic, entries)
        return await here.router.append_forwarded(topic, at.partition, entries, acks, room)
    except LakelogError as error:
        return [error] * len(entries)


def check_named(topic: str) -> None:
    """Raise InvalidTopicName for a topic to which no gateway appends for another."""
    if topic != AUDIT:  # to which gateways append for themselves
        check_writable(topic)


def check_entries(topic: Topic, entries: Sequence[AppendRequest]) -> None:
    """Raise what refuses entries that another gateway has sent for `topic`."""
    for entry in entries:
        # Records of a committed transaction were checked when they arrived, and must be appended.
        checked_before = entry.producer is not None and entry.producer.kept
        if entry.count and not checked_before:
            check_sizes(SentRecords(entry.records), topic)


async def group(request: Request) -> Response:
    """An event of a group that this gateway coordinates. The other gateway has checked who asks."""
    answer = await gateway(request).classic.answer(take_body(request))
    return Response(answer, media_type="application/msgpack")


async def producers(request: Request) -> Response:
    """A request about transactional ids that this gateway coordinates. The other one has checked who asks."""
    answer = await gateway(request).producers.answer(take_body(request))
    return Response(answer, media_type="application/msgpack")


async def lead(request: Request) -> Response:
    """Lead a partition that its leader has just given up."""
    here, at = gateway(request), _named(request)
    outcome: AppendOutcome = Appended(at.partition, None, 0)
    try:
        await here.leadership.take_over(await _find(here, at), at.partition)
    except LakelogError as error:
        outcome = error
    return _answer([outcome])


def _named(request: Request) -> TopicIdPartition:
    """Raises InvalidArgument."""
    query = request.query_params
    partition = query.get("partition", "")
    number = decimal(partition)
    if number is None or abs(number) >= 2**31:
        raise InvalidArgument(f"partition={partition[:40]!r} is not a number; use the public API")
    return TopicIdPartition(query.get("topic", ""), query.get("topic_id", ""), number)


def acks_named(named: str) -> Acks:
    """Raises InvalidArgument."""
    try:
        return Acks(named)
    except ValueError:
        raise InvalidArgument(f"acks={named[:40]!r} is not known; use the public API") from None


async def _find(here: Gateway, at: TopicIdPartition) -> Topic:
    """The topic, of this incarnation. Raises TopicDeleted: who asks looks which there is, and goes on."""
    found = here.cluster.cached_topic(at.topic)
    if found is None or found.topic_id != at.topic_id:
        await run_in_threadpool(here.cluster.refresh)
        found = here.cluster.cached_topic(at.topic)
    if found is None or found.topic_id != at.topic_id:
        raise TopicDeleted(
            f"topic {at.topic!r} was deleted or re-created; refresh it, and repeat the request"
        )
    return found


def _answer(outcomes: list[AppendOutcome]) -> Response:
    return Response(encode_outcomes(outcomes), media_type="application/json")
