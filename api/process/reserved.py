"""Connections beyond `max_connections`: some are let in, each for one request that has to get through.

An operator must be able to see that there are too many. Other gateways must reach the partitions that this
one leads: otherwise idle connections to one gateway would stop its partitions for all clients. A connection
that has not sent a request yet gives way to a new one.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access_log import AccessLog, principal_of
from api.errors import TooManyConnections, error_response, status_and_code
from api.requests.access import host_of
from api.requests.heads import TARGETED, TRACE, heads
from log_tables.limits import RESERVED_CONNECTIONS, RESERVED_PEER_CONNECTIONS

OPERATORS_PATHS = ("/health", "/ready", "/metrics")

_RESERVED = RESERVED_CONNECTIONS + RESERVED_PEER_CONNECTIONS
_FULL = "this gateway has as many connections as max_connections allows; close some, or raise max_connections"


class ReservedConnections:
    """The reserved connections of one gateway. `failed` receives the code of each error answered here."""

    def __init__(self, failed: Callable[[int], None], access_log: AccessLog | None = None) -> None:
        self._failed, self._access_log = failed, access_log
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
                await self._refuse(scope, receive, last)

        return answer

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application does not see this request, so it has its line in the access log from here."""
        error = TooManyConnections(_FULL)
        status, code = status_and_code(error)
        self._failed(code)
        answer = error_response(error)
        await answer(scope, receive, send)
        if self._access_log is not None:
            size, client = len(answer.body), host_of(scope)
            self._access_log.http(
                scope[TRACE], scope["method"], None, (status, size), 0.0, client, principal_of(None)
            )

    async def _of_peer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """A client that only pretends to be a gateway is refused by the peer middleware, before its body is
        read.
        """
        self._peers += 1
        try:
            await app(scope, receive, send)
        finally:
            self._peers -= 1
