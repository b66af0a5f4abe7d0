"""Requests to other gateways: appending where they lead, handing over, forwarding.

They are HTTP, by aiohttp, which is loaded for the first of them: a gateway that is alone starts sooner. A
gateway of the same machine that listens at a Unix socket gets small appends there
(coordinator/brokers/peer_link.py).
"""

import asyncio
import hmac
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from yarl import URL

from coordinator.brokers.brokers import Brokers
from coordinator.brokers.peer_link import (
    INLINE_MAX_BYTES,
    INLINE_MAX_ENTRIES,
    WATCH_S,
    Part,
    PeerLink,
    PeerLinks,
    is_small,
    name_of,
)
from coordinator.brokers.peer_secret import Target
from coordinator.brokers.peer_wire import decode_outcomes, encode_entries
from ingest.pending_tasks import watched
from ingest.request_trace import CURRENT, RequestTrace, Tracer
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, OutcomeUnknown, Unreachable
from log_tables.limits import PEER_KEPT_S
from log_tables.partition.partition import AppendRequest

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 1.0
"""How long another gateway may take to accept a connection."""

PING_S = 1.0
"""How long another gateway may take to answer a ping."""

HEARD_S = 5
"""How long another machine may not acknowledge what its kernel acknowledges at once, however busy its gateway
is: after that the network between the two counts as cut.
"""

TARGET = "lakelog-target"
"""The header that names the process that a request is for, and the one that answers
(api/peer.py).
"""

ASKER = "lakelog-asker"
"""The header that names the sender: a gateway refuses one that it does not find in its own root."""

CALLER = "lakelog-caller"
"""The header by which a gateway says whose request it forwards."""

PING_PATH = "/peer/ping"
APPEND_PATH = "/peer/append"


ARROW = "application/vnd.apache.arrow.stream"

Answer = TypeVar("Answer")

_KEEPALIVE = {
    "TCP_KEEPIDLE": 1,  # seconds
    "TCP_KEEPINTVL": 1,  # seconds
    "TCP_KEEPCNT": HEARD_S,
    "TCP_USER_TIMEOUT": 1_000 * HEARD_S,  # milliseconds
}
"""A probe each second on an idle connection, and a bound on how long sent bytes stay unacknowledged."""


class Peers:
    """Requests to other gateways. Used on the event loop, up to `close`.

    All raise Unreachable when nothing was sent, or another gateway was met, which does nothing of it;
    OutcomeUnknown when no answer came before the other gateway fell silent, and for an answer of something
    between the two, which may have handed the request on.
    """

    def __init__(
        self,
        brokers: Brokers,
        ssl_context: ssl.SSLContext | None,
        server_name: str = "",
        tracer: Tracer | None = None,
        sockets: Path | None = None,
        session: "aiohttp.ClientSession | None" = None,
    ) -> None:
        """At an https URL the certificate is one that `ssl_context` trusts (None: the system's authorities,
        which aiohttp has read), for `server_name` if it is given, else for the host of the URL. `sockets` is
        the directory of the Unix sockets of this machine's gateways, if they have any. Requests are sent by
        `session`, or by one that is made for the first.
        """
        self._tracer = tracer
        self._links = PeerLinks(brokers, sockets, self._check_alive)
        self._brokers, self._ssl_context, self._server_name = brokers, ssl_context, server_name or None
        self._session = session
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self._links.close()
        if self._session is not None:
            await self._session.close()

    async def append(
        self, broker: BrokerRecord, topic: Topic, partition: int, entries: Sequence[AppendRequest], acks: Acks
    ) -> list[AppendOutcome]:
        """Append entries to one partition, in their order, where `broker` leads it.

        An error of the other gateway is an outcome, NotLeader too.
        """
        part = (partition, entries)
        link = self._links.find(broker) if is_small([part]) else None
        if link is None:
            return await self._post_entries(broker, topic, part, acks)
        [outcomes] = await self._ask(link, broker, topic, [part], acks)
        return outcomes

    def begin_append(
        self, broker: BrokerRecord, topic: Topic, parts: Sequence[Part], acks: Acks
    ) -> "asyncio.Future[list[list[AppendOutcome]]]":
        """Append the entries of each of `parts` to its partition, beginning now: the outcomes of each, later.

        Every error is an outcome.
        """
        try:
            link = self._links.find(broker) if is_small(parts) else None
        except LakelogError as error:
            found: asyncio.Future[list[list[AppendOutcome]]] = asyncio.get_running_loop().create_future()
            found.set_result([[error] * len(entries) for _, entries in parts])
            return found
        if link is None:
            return asyncio.gather(*(self._append_alone(broker, topic, part, acks) for part in parts))
        return self._ask(link, broker, topic, parts, acks)

    async def _append_alone(
        self, broker: BrokerRecord, topic: Topic, part: Part, acks: Acks
    ) -> list[AppendOutcome]:
        try:
            return await self._post_entries(broker, topic, part, acks)
        except LakelogError as error:
            return [error] * len(part[1])

    def _ask(
        self, link: PeerLink, broker: BrokerRecord, topic: Topic, parts: Sequence[Part], acks: Acks
    ) -> "asyncio.Future[list[list[AppendOutcome]]]":
        trace = CURRENT.get()
        if self._tracer is None or trace is None:
            return link.ask(topic, parts, acks, trace)
        span = self._tracer.begin(f"forward {APPEND_PATH}", "client", trace, {"lakelog.broker": broker.id})
        asked = link.ask(topic, parts, acks, span.trace)
        asked.add_done_callback(lambda done: span.end(failed=_failure(done)))
        return asked

    async def _post_entries(
        self, broker: BrokerRecord, topic: Topic, part: Part, acks: Acks
    ) -> list[AppendOutcome]:
        partition, entries = part
        query = {**_query(topic, partition), "acks": acks.value}
        body = (
            await asyncio.to_thread(encode_entries, entries) if _large(entries) else encode_entries(entries)
        )
        headers = {"Content-Type": ARROW}

        async def sent() -> bytes:
            async with self._request(broker, "POST", APPEND_PATH, query, headers, body) as answer:
                return await answer.read()

        return _outcomes(broker, await self._while_alive(broker, sent()), partition, len(entries))

    async def request_takeover(self, broker: BrokerRecord, topic: Topic, partition: int) -> None:
        """Ask `broker` to lead a partition that this gateway has just resigned. Raises NotLeader."""

        async def sent() -> bytes:
            async with self._request(broker, "POST", "/peer/lead", _query(topic, partition)) as answer:
                return await answer.read()

        outcome = _outcomes(broker, await self._while_alive(broker, sent()), partition, 1)[0]
        if isinstance(outcome, LakelogError):
            raise outcome

    async def ask_group(self, broker: BrokerRecord, body: bytes) -> bytes:
        """The result of an event of a group that `broker` coordinates, as bytes; it may take minutes."""
        return await self._post(broker, "/peer/group", body)

    async def ask_producers(self, broker: BrokerRecord, body: bytes) -> bytes:
        """The answer to a request about transactional ids that `broker` coordinates, as bytes."""
        return await self._post(broker, "/peer/producers", body)

    async def _post(self, broker: BrokerRecord, path: str, body: bytes) -> bytes:
        async def sent() -> bytes:
            async with self._request(broker, "POST", path, body=body) as answer:
                return await answer.read()

        return await self._while_alive(broker, sent())

    async def ping(self, broker: BrokerRecord) -> bool:
        """Whether `broker` answers at all."""
        try:
            await self._opened()  # outside of the time that the answer may take
            async with asyncio.timeout(PING_S), self._request(broker, "GET", PING_PATH):
                return True
        except (TimeoutError, LakelogError):
            return False

    async def forward(
        self, broker: BrokerRecord, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> "aiohttp.ClientResponse":
        """Send a request as it came, its path escaped and with its query; the answer's body is read later.

        The caller closes the answer.
        """

        async def sent() -> "aiohttp.ClientResponse":
            session = await self._opened()
            url = URL(broker.url.rstrip("/") + path, encoded=True)
            target = self._brokers.target_of(broker)
            with self._traced("forward", broker) as trace:
                async with _translated(broker):
                    answer = await session.request(
                        method,
                        url,
                        headers=self._headers(target, headers, trace),
                        data=body,
                        allow_redirects=False,
                        server_hostname=self._server_name,
                    )
                try:
                    _check_sender(broker, target, answer)
                except LakelogError:
                    answer.close()
                    raise
                return answer

        return await self._while_alive(broker, sent())

    @asynccontextmanager
    async def _request(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        session = await self._opened()
        url, target = broker.url.rstrip("/") + path, self._brokers.target_of(broker)
        with self._traced(f"forward {path}", broker) as trace:
            async with (
                _translated(broker),
                session.request(
                    method,
                    url,
                    params=query,
                    headers=self._headers(target, headers, trace),
                    data=body,
                    allow_redirects=False,
                    server_hostname=self._server_name,
                ) as answer,
            ):
                _check_sender(broker, target, answer)
                yield answer

    def _headers(
        self, target: Target, headers: Mapping[str, str] | None, trace: RequestTrace | None
    ) -> dict[str, str]:
        of_trace = {} if trace is None else trace.headers()
        return {**(headers or {}), **of_trace, TARGET: target.name, ASKER: self._brokers.asker(target)}

    @contextmanager
    def _traced(self, name: str, broker: BrokerRecord) -> Iterator[RequestTrace | None]:
        """The trace that `broker` is told, within a span where traces are kept. A ping has no span, nor has
        anything that no request needs.
        """
        trace = CURRENT.get()
        if self._tracer is None or trace is None or name.endswith(PING_PATH):
            yield trace
            return
        span = self._tracer.begin(name, "client", trace, {"lakelog.broker": broker.id})
        try:
            yield span.trace
        except BaseException as error:
            span.end(failed=type(error).__name__)
            raise
        span.end()

    async def _while_alive(self, broker: BrokerRecord, sending: Coroutine[Any, Any, Answer]) -> Answer:
        """The result of `sending`, which is cancelled when the other gateway has ended, or is silent."""
        return await watched(sending, WATCH_S, lambda: self._check_alive(broker))

    async def _check_alive(self, broker: BrokerRecord) -> None:
        """Raise OutcomeUnknown when `broker` has ended, or is silent."""
        if self._brokers.is_over(broker) or await self.is_lost(broker):
            raise OutcomeUnknown(
                f"{name_of(broker)} fell silent before it answered; an idempotent producer repeats the "
                "request, others read first"
            )

    async def is_lost(self, broker: BrokerRecord) -> bool:
        """Whether `broker` gives no sign of life and cannot be reached either."""
        return self._brokers.is_silent(broker.id) and not await self.ping(broker)

    async def _opened(self) -> "aiohttp.ClientSession":
        """The connections; those of all requests, made for the first. Raises Unreachable after `close`."""
        if self._session is None:
            await asyncio.to_thread(import_module, "aiohttp")
            if self._closed:
                raise Unreachable("this gateway stops, and asks no other one any more; repeat the request")
            if self._session is None:  # another request may have been quicker
                self._session = self._connected()
        return self._session

    def _connected(self) -> "aiohttp.ClientSession":
        import aiohttp

        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=PEER_KEPT_S, socket_factory=_socket, ssl=self._ssl_context or True
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        return aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )


def _socket(address: "aiohttp.AddrInfoType") -> socket.socket:
    """A socket that closes when the network is cut: TCP alone would wait for a quarter of an hour."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS lacks some
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


@asynccontextmanager
async def _translated(broker: BrokerRecord) -> AsyncIterator[None]:
    """Translate errors of the connection into Unreachable and OutcomeUnknown."""
    import aiohttp

    not_sent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
    try:
        yield
    except not_sent as error:
        raise Unreachable(
            f"{name_of(broker)} cannot be reached ({type(error).__name__}); repeat the request"
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise OutcomeUnknown(
            f"{name_of(broker)} did not answer ({type(error).__name__}); an idempotent producer repeats the "
            "request, others read first"
        ) from None


def _check_sender(broker: BrokerRecord, target: Target, answer: "aiohttp.ClientResponse") -> None:
    """Raise Unreachable for the refusal of another gateway, or of one that does not find this gateway in its
    own root: nothing was done. Raise OutcomeUnknown for any other answer that `broker` has not proved to be
    its own: a proxy may have handed the request on.

    `target` is what was asked: the gateway may be trusted no longer by now, and has done it all the same.
    """
    shown = answer.headers.get(TARGET, "").encode(errors="replace")
    if hmac.compare_digest(shown, target.proof.encode()):
        return
    if answer.status == HTTPStatus.MISDIRECTED_REQUEST:
        raise Unreachable(
            f"another gateway, or one of another root, answers at the URL of {name_of(broker)}; repeat the "
            "request"
        )
    raise OutcomeUnknown(
        f"something that is not {name_of(broker)} has answered {answer.status} at its URL, and may have "
        "handed the request on; an idempotent producer repeats it, others read first"
    )


def _outcomes(broker: BrokerRecord, said: bytes, partition: int, count: int) -> list[AppendOutcome]:
    """The outcomes of `count` entries; one error may stand for all. Raises OutcomeUnknown."""
    try:
        outcomes = decode_outcomes(said, partition)
    except ValueError:
        outcomes = []
    if len(outcomes) == 1 and isinstance(outcomes[0], LakelogError):
        return outcomes * count
    if len(outcomes) != count:
        raise OutcomeUnknown(
            f"{name_of(broker)} did not answer as a gateway does; check what runs at its peer_url"
        )
    return outcomes


def _failure(asked: "asyncio.Future[list[list[AppendOutcome]]]") -> str:
    """Why a call was not answered, or nothing."""
    if asked.cancelled():
        return asyncio.CancelledError.__name__
    outcomes = chain.from_iterable(asked.result())
    return next(
        (type(each).__name__ for each in outcomes if isinstance(each, OutcomeUnknown | Unreachable)), ""
    )


def _large(entries: Sequence[AppendRequest]) -> bool:
    """Whether encoding them would hold up the event loop."""
    size = sum(entry.size_bytes for entry in entries)
    return size > INLINE_MAX_BYTES or len(entries) > INLINE_MAX_ENTRIES


def _query(topic: Topic, partition: int) -> dict[str, str]:
    return {"topic": topic.name, "topic_id": topic.topic_id, "partition": str(partition)}
