"""The ASGI middleware for requests between gateways: only gateways of this root that mean this process pass.

A port may belong to another gateway by now, even of another cluster, or to another service. So a gateway
names the target of its request, by a secret that only gateways know, and it trusts an answer only if that
proves the same (coordinator/brokers/peer_secret.py). It also names itself: a copy of the root has the same
names, but a gateway of the copy is not registered in this root, or shows no sign of life here.
"""

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.caller import CONTEXT
from api.gateway import Gateway
from api.peer.routes import body_refused, create_peer_app
from api.requests.access import decode_context
from api.requests.body import WithBody
from api.requests.heads import ASKED_BY, CALLED_BY, TARGETED, heads
from coordinator.access.access import UNCHECKED

_STATUS = 421
_REFUSED = msgspec.json.encode(
    {
        "error_code": _STATUS,
        "message": "this request is for another gateway; use the public API, see /docs",
    }
)


class PeerMiddleware:
    """Around the application of a gateway, to which it adds the routes between gateways."""

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
