"""The gate to what gateways ask of one another: only who knows this very process is let in, and told so.

A port may be another gateway's by now, of another cluster even, or another service's. So a gateway names the
one that it means, by the id of the cluster and the incarnation that only the metadata log knows, and believes
an answer only if that says the same again.
"""

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.gateway import Gateway
from api.peer import create_peer_app
from coordinator.peers import TARGET

_TARGET = TARGET.encode()
_STATUS = 421
_REFUSED = msgspec.json.encode(
    {
        "error_code": _STATUS,
        "message": "this is for another gateway, or none; use the public API, see /docs",
    }
)


class PeerGate:
    """An ASGI application around that of a gateway."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._peer_app, self._gateway = app, create_peer_app(gateway), gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = next((value for name, value in scope["headers"] if name == _TARGET), None)
        for_peers = scope["path"].startswith("/peer/")
        if asked is None and not for_peers:
            await self._app(scope, receive, send)
            return
        own = self._gateway.brokers.target.encode()
        if not own or asked != own:
            await _refuse(send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (_TARGET, own)]}
            await send(message)

        await (self._peer_app if for_peers else self._app)(scope, receive, told)


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_REFUSED)).encode())]
    await send({"type": "http.response.start", "status": _STATUS, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
