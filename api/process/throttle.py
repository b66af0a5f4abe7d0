"""Quotas at the door: a request is counted, delayed or refused before its body is read.

Bytes are counted as they come and go, so a client that is beyond its quota pays with its next request.
"""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from api.caller import CONTEXT
from api.requests.body import brings_records
from coordinator.access.access import Access
from coordinator.access.principal import Principal, RequestContext
from coordinator.access.quota_manager import QuotaKind, QuotaManager

THROTTLED = b"throttle-time-ms"
"""The header of an answer that says for how long its request was delayed, as Kafka's throttle_time_ms."""


async def throttle(access: Access, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Wait until the quotas of its principal let a request go on; `receive` and `send` for its answer then.

    A request that another gateway forwards was counted there. Raises QuotaReached.
    """
    context: RequestContext | None = scope.get(CONTEXT)
    if context is None or not access.quotas.exist:
        return receive, send
    request = _ThrottledRequest(access.quotas, context.principal, scope, receive, send)
    await request.wait()
    return request.receive, request.send


def is_fetch(path: str) -> bool:
    """Whether a GET of `path` answers records: a fetch, a poll, or a page or an export of the console."""
    return path.endswith("/records") or (
        path.startswith("/console/topics/") and path.endswith(("/messages", "/value", "/export"))
    )


def _is_query(path: str) -> bool:
    """Whether `path` answers queries, which are sent in two ways."""
    return path == "/console/sql"


class _ThrottledRequest:
    """One request, and what it uses."""

    def __init__(
        self, quotas: QuotaManager, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._quotas, self._principal, self._receive, self._send = quotas, principal, receive, send
        self._brings = brings_records(scope)
        path = scope["path"]
        self._fetches = _is_query(path) or (scope["method"] == "GET" and is_fetch(path))
        self._delay_ms = 0

    async def wait(self) -> None:
        """Raises QuotaReached."""
        kinds = [QuotaKind.REQUESTS]
        kinds += [QuotaKind.PRODUCER_BYTES] if self._brings else []
        kinds += [QuotaKind.CONSUMER_BYTES] if self._fetches else []
        delay_s = max(self._quotas.delay_s(self._principal, kind) for kind in kinds)
        self._quotas.charge(self._principal, QuotaKind.REQUESTS, 1)
        if delay_s > 0:
            self._delay_ms = max(1, round(delay_s * 1_000))
            await asyncio.sleep(delay_s)

    async def receive(self) -> Message:
        message = await self._receive()
        if self._brings and message["type"] == "http.request":
            self._quotas.charge(self._principal, QuotaKind.PRODUCER_BYTES, len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._delay_ms:
            headers = [*message["headers"], (THROTTLED, b"%d" % self._delay_ms)]
            message = {**message, "headers": headers}
        elif self._fetches and message["type"] == "http.response.body":
            self._quotas.charge(self._principal, QuotaKind.CONSUMER_BYTES, len(message.get("body", b"")))
        await self._send(message)
