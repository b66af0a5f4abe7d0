"""HTTP as uvicorn reads it, within bounds: what one connection may send, hold and wait for.

A head is parsed in pieces, so that an endless one is refused before it is large. Later requests of a
connection wait unread for their turn. A client that is too slow, or does not send HTTP, gets an answer in our
form of errors, and its connection is closed. `look` is called now and then for the deadlines.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.access_log import AccessLog, principal_of
from api.errors import (
    HeadTooLarge,
    MalformedBody,
    RequestTimeout,
    TooManyConnections,
    UrlTooLong,
    error_response,
    status_and_code,
)
from api.process.reserved import ReservedConnections
from api.process.tls import Handshake, HandshakeQueue
from api.requests.access import SUBJECT
from api.requests.heads import ARRIVED, REFUSED, TRACE, heads
from api.write_buffer import WriteBuffer
from coordinator.access.authentication.certificate import subject
from coordinator.access.host import network_of
from ingest.request_trace import REQUEST_ID, RequestIds, RequestTrace, trace_of
from log_tables.errors import LakelogError
from log_tables.limits import (
    CHUNK_MEAN_MIN_BYTES,
    HEAD_MAX_BYTES,
    HEADER_LINES_MAX,
    LINGER_S,
    PIPELINED_MAX,
    SMALL_CHUNKS_MAX,
    UNSENT_MAX_BYTES,
)

_SMALLEST = b"GET / HTTP/1.1\r\n\r\n"

_HEAD_PIECE_BYTES = PIPELINED_MAX * len(_SMALLEST)
"""Of a head at once: no more requests than PIPELINED_MAX are met before the first one counts."""

_REQUEST_ID = REQUEST_ID.encode()
_HEAD, _INTERIM = b"HTTP/1.1 ", b"HTTP/1.1 1"
_JOINED_MAX_BYTES = 65_536
"""A larger body is not copied to be sent with its head."""

_BODY_PIECE_BYTES = 65_536
_BODY_HEADERS = (b"content-length", b"transfer-encoding")
_FULL_OF_ONE = "this address has as many connections as max_connections_per_ip allows; close some of them"
_NOT_HTTP = "the request is not HTTP/1.1: check the method, the headers and the chunks, and escape the URL"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a connection. `failed` receives the code of each error that is answered here."""

    max_connections: int
    per_ip: int
    idle_s: float
    receive_s: float
    send_s: float
    failed: Callable[[int], None]
    request_ids: RequestIds
    access_log: AccessLog | None = None
    others: Callable[[], int] = lambda: 0
    """How many connections there are at other doors, which count, too."""

    by_ip: Counter[str] = field(default_factory=Counter)
    """The connections of each address, at all doors."""


def bounded(bounds: Bounds) -> "type[Protocol]":
    """The protocol within `bounds`, for uvicorn, which makes one for each connection."""
    return type(
        "BoundedProtocol",
        (Protocol,),
        {
            "bounds": bounds,
            "reserved": ReservedConnections(bounds.failed, bounds.access_log),
            "by_ip": bounds.by_ip,
        },
    )


class Protocol(HttpToolsProtocol):
    """One connection."""

    bounds: ClassVar[Bounds]
    reserved: ClassVar[ReservedConnections]
    by_ip: ClassVar[Counter[str]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self._answers = _Answers(transport, self)
        super().connection_made(self._answers)  # type: ignore[arg-type]
        self.flow = self._flow = _Flow(self.transport)
        self.url = b""
        self._in_body = self._moved = self._ending = False
        self._fed = 0
        self._waiting = b""
        self._wrong: LakelogError | None = None
        self._head_since: float | None = None
        self._idle_since = self.loop.time()
        self._write_buffer = WriteBuffer(transport, self._idle_since)
        self._subject = _subject_of(transport)
        over = len(self.connections) + self.bounds.others() - self.bounds.max_connections
        if over > 0:
            self.app = self.reserved.application(self.app, self)
            self.reserved.let_in(self, over)
        self._ip = network_of(self.client[0]) if self.client else ""
        self.by_ip[self._ip] += 1
        if 0 < self.bounds.per_ip < self.by_ip[self._ip]:
            self.refuse(TooManyConnections(_FULL_OF_ONE))

    # Input.

    def data_received(self, data: bytes) -> None:
        if len(data) <= _HEAD_PIECE_BYTES and not (self._waiting or self._flow.held or self.ending):
            self._feed(data)
            return
        left = memoryview(self._waiting + data)
        self._waiting = b""
        while left and not self.ending:
            if self._flow.held:
                self._waiting = bytes(left)
                return
            piece = bytes(left[: self._piece_bytes(left)])
            left = left[len(piece) :]
            self._feed(piece)

    def _piece_bytes(self, left: memoryview) -> int:
        """How many bytes of `left` to parse next. Heads may follow the end of a body."""
        if not self._in_body:
            return _HEAD_PIECE_BYTES
        heads = bytes(left[:_BODY_PIECE_BYTES]).count(b"\r\n\r\n")
        return _BODY_PIECE_BYTES if heads < PIPELINED_MAX else _HEAD_PIECE_BYTES

    def _feed(self, piece: bytes) -> None:
        self._moved = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._upgraded()
        except httptools.HttpParserError:
            self._blame(MalformedBody(_NOT_HTTP))
        self._fed = 0 if self._moved else self._fed + len(piece)
        if self._fed > HEAD_MAX_BYTES:
            self._blame(self._head_too_large())
        if self._wrong is not None:
            if self._answering() and (self.pipeline or not self._in_body):
                self._flow.hold()  # earlier requests are answered first
            else:
                self.refuse(self._wrong)

    def _blame(self, error: LakelogError | None) -> None:
        """Remember the first error, because the parser's callbacks cannot raise it."""
        if self._wrong is None:
            self._wrong = error

    def _upgraded(self) -> None:
        """A request that may become another protocol is answered as HTTP, and is the last one."""
        if self._wrong is None:
            self.cycle.keep_alive = False
            self._flow.hold()

    def _head_too_large(self) -> LakelogError:
        if not self._in_body and len(self.url) > HEAD_MAX_BYTES // 2:
            return UrlTooLong(f"the URL has {len(self.url)} bytes or more; send what is long in the body")
        return HeadTooLarge(
            f"the headers have more than {HEAD_MAX_BYTES} bytes or {HEADER_LINES_MAX} lines; send fewer"
        )

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._subject is not None:
            self.scope[SUBJECT] = self._subject  # type: ignore[literal-required]
        self._head_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if self._in_body and len(self.headers) > HEADER_LINES_MAX:
            self._blame(self._head_too_large())  # trailers: those of a head are counted when it is there

    def on_headers_complete(self) -> None:
        self._moved = True
        if len(self.headers) > HEADER_LINES_MAX:
            self._blame(self._head_too_large())
        if self.parser.should_upgrade() and any(name in _BODY_HEADERS for name, _ in self.headers):
            self._blame(MalformedBody("connections are not upgraded here; send the request without Upgrade"))
        if self._wrong is None:
            self._in_body, self._chunks, self._body_bytes = True, 0, 0
            self._head_since = None
            super().on_headers_complete()
            scope: Any = self.scope
            trace = scope[TRACE] = trace_of(heads(scope), self.bounds.request_ids)
            # In the head of every answer, by the layers of the application or by uvicorn.
            named = (_REQUEST_ID, trace.id.encode())
            self.cycle.default_headers = [*self.cycle.default_headers, named]
            self.headers = []  # of trailers, which nobody asked for
            if self.pipeline:
                self._flow.hold()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > SMALL_CHUNKS_MAX and self._body_bytes < self._chunks * CHUNK_MEAN_MIN_BYTES:
            mean = self._body_bytes / self._chunks
            self._blame(MalformedBody(f"the body comes in chunks of {mean:.1f} bytes; send larger ones"))

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._body_bytes += len(body)
        if self._wrong is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        if self._wrong is None:  # else the answer is to this request, whose end came with what is wrong
            self._in_body = False
            self.scope[ARRIVED] = True  # type: ignore[literal-required]
            super().on_message_complete()

    # Output.

    def on_response_complete(self) -> None:
        self._answers.flush()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()  # what a refused request has sent stays else until the next one
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if self.transport.is_closing():
            return
        if self._wrong is not None and len(self.pipeline) == self._in_body:
            self.pipeline.clear()  # what is left is the one whose body is wrong
            self.refuse(self._wrong)
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        if not self.pipeline:
            self._flow.held = False
            if self._waiting:
                waiting, self._waiting = self._waiting, b""
                self.data_received(waiting)  # at once: what comes next comes behind it
            self._flow.resume_reading()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's
        self.refuse(MalformedBody(_NOT_HTTP))

    def refuse(self, error: LakelogError) -> None:
        """Answer `error`, unless an earlier request is still unanswered, and close."""
        self._wrong = error
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_complete:
            cycle = None
        own = cycle is not None and self._in_body and not cycle.response_started
        if not self.pipeline and (cycle is None or own):
            self._answer(error, cycle)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self._in_body = True  # all further bytes belong to the refused request
        self.end()

    def _answer(self, error: LakelogError, cycle: RequestResponseCycle | None) -> None:
        """The last answer, to the request of `cycle`, or to what is none."""
        status, code = status_and_code(error)
        if cycle is None:
            trace = RequestTrace(self.bounds.request_ids.next())
            if self.bounds.access_log is not None:
                client = self.client[0] if self.client else ""
                self.bounds.access_log.http(trace, "-", None, (status, 0), 0.0, client, principal_of(None))
        else:
            scope: Any = cycle.scope
            trace, scope[REFUSED] = scope[TRACE], status
        self._raw.write(_as_http(error, trace.id))
        self.bounds.failed(code)

    def end(self) -> None:
        """Close when all is sent. A client that still sends has time to read the answer."""
        if self._ending or self._raw.is_closing():
            return
        self._answers.flush()
        if not (self._in_body or self._flow.held):
            self._raw.close()
            return
        # At once, the close would lose the answer where bytes are unread (RFC 9112, 9.6).
        self._ending, self._waiting = True, b""
        self._flow.let_go()
        if self._raw.can_write_eof():  # not over TLS: there the length of the answer says where it ends
            self._raw.write_eof()
        self.loop.call_later(LINGER_S, self._raw.abort)

    @property
    def ending(self) -> bool:
        """Whether the connection reads nothing more and starts no request."""
        return self._ending or self._raw.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending, self._waiting = True, b""
        self.reserved.leave(self)
        self.by_ip[self._ip] -= 1
        if self.by_ip[self._ip] <= 0:
            del self.by_ip[self._ip]
        super().connection_lost(exc)

    # Deadlines.

    def look(self, now: float) -> None:
        """Close the connection if it is idle, or too slow, by the time of the event loop."""
        if self.unsent_bytes(now) and now - self._write_buffer.since > self.bounds.send_s:
            self._raw.abort()
        elif self.ending:
            return
        elif self._answering():
            return  # being answered; its body has a deadline of its own
        elif self._head_since is not None:
            if now - self._head_since > self.bounds.receive_s:
                late = f"the head did not come within {self.bounds.receive_s:g} s; send it at once"
                self.refuse(RequestTimeout(late))
        elif now - self._idle_since > (self.bounds.receive_s if self._in_body else self.bounds.idle_s):
            self._raw.close()  # in a body: its request was answered, and the rest is ignored

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def unsent_bytes(self, now: float) -> int:
        """The bytes that the client has not taken yet."""
        return self._write_buffer.size_bytes(now)

    def drop(self) -> None:
        """Close the connection now; unsent bytes are lost."""
        self._raw.abort()


def after_handshake(protocol: type[Protocol], queue: HandshakeQueue) -> Callable[..., Handshake]:
    """Uvicorn makes this for each connection instead of `protocol`, which follows after the TLS handshake."""

    def made(**given: Any) -> Handshake:
        return Handshake(queue, partial(protocol, **given))

    return made


def check_connections(connections: Iterable[Any], now: float) -> None:
    """Check the deadlines of every connection. If clients leave too many bytes untaken, drop those with
    most.
    """
    waiting = []
    for connection in list(connections):
        try:
            connection.look(now)
            waiting.append((connection.unsent_bytes(now), connection))
        except Exception:  # noqa: BLE001 -- the others go on
            _log.exception("a connection could not be looked at, and is closed")
            connection.drop()
    unsent = sum(size for size, _ in waiting)
    if unsent > UNSENT_MAX_BYTES:
        for size, connection in sorted(waiting, key=lambda each: -each[0]):
            if unsent <= UNSENT_MAX_BYTES:
                break
            connection.drop()
            unsent -= size


class _Flow(FlowControl):
    """Reading can be held, even if other code resumes it."""

    held = False

    def hold(self) -> None:
        self.held = True
        self.pause_reading()

    def let_go(self) -> None:
        self.held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _Answers:
    """A transport for answers: the head of one is sent with the first of its body, in one packet. Its `close`
    is the protocol's to do.
    """

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            if len(data) <= _JOINED_MAX_BYTES:
                data = self._head + data
                self._head = b""
            else:
                self.flush()
        elif data.startswith(_HEAD) and not data.startswith(_INTERIM):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head that has no body, or whose body does not come."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self._protocol.end()

    def is_closing(self) -> bool:
        return self._protocol.ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _subject_of(transport: asyncio.Transport) -> str | None:
    """The subject of the certificate that the client has shown, which the handshake has verified."""
    connection = transport.get_extra_info("ssl_object")
    shown = None if connection is None else connection.getpeercert(binary_form=True)
    return None if shown is None else subject(shown)


def _as_http(error: LakelogError, request_id: str) -> bytes:
    """The last answer of a connection."""
    answer = error_response(error)
    lines = [*answer.raw_headers, (_REQUEST_ID, request_id.encode()), (b"connection", b"close")]
    head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
    return STATUS_LINE[answer.status_code] + head + b"\r\n" + bytes(answer.body)
