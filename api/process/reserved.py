"""Connections beyond `max_connections`: some are let in, each for one request that has to get through.

An operator must be able to see that there are too many. Other gateways must reach the partitions that this
one leads: otherwise idle connections to one gateway would stop its partitions for all clients. A connection
that has not sent a request yet gives way to a new one.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import TooManyConnections, error_response, status_and_code
from api.requests.heads import TARGETED, heads
from log_tables.limits import RESERVED_CONNECTIONS, RESERVED_PEER_CONNECTIONS

OPERATORS_PATHS = ("/health", "/ready", "/metrics")

_RESERVED = RESERVED_CONNECTIONS + RESERVED_PEER_CONNECTIONS
_FULL = "this gateway has as many connections as max_connections allows; close some, or raise max_connections"


class ReservedConnections:
    """Those of one gateway. `failed` receives the code of each error that is answered here."""

    def __init__(self, failed: Callable[[int], None]) -> None:
        self._failed = failed
        self._silent: dict[Any, None] = {}
        self._peers = 0

    def let_in(self, connection: Any, over: int) -> None:
        """Admit a new connection, although there are `over` too many. The longest silent one may be
        closed.
        """
        self._silent[connection] = None
        if over <= _RESERVED:
            return
        longest = next(iter(self._silent))
        self.leave(longest)
        if over > 2 * _RESERVED:
            longest.drop()  # too many even for an answer to each
        else:
            longest.refuse(TooManyConnections(_FULL))

    def leave(self, connection: Any) -> None:
        """A connection has sent a request, or is over."""
        self._silent.pop(connection, None)

    def application(self, app: ASGIApp, connection: Any) -> ASGIApp:
        """`app` for a reserved connection: one request, of an operator or of another gateway."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def last(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
                await send(message)

            self.leave(connection)
            if scope["path"] in OPERATORS_PATHS:
                await app(scope, receive, last)
            elif self._peers < RESERVED_PEER_CONNECTIONS and TARGETED in heads(scope):
                await self._of_peer(app, scope, receive, last)
            else:
                error = TooManyConnections(_FULL)
                self._failed(status_and_code(error)[1])
                await error_response(error)(scope, receive, last)

        return answer

    async def _of_peer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """A client that only pretends to be a gateway is refused by the peer middleware, before its body is
        read.
        """
        self._peers += 1
        try:
            await app(scope, receive, send)
        finally:
            self._peers -= 1
