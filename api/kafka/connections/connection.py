"""One connection of a Kafka client: frames in, answers out in their order, within bounds.

A large frame takes room in the buffer before it is read. Where there is none, reading waits: Kafka's clients
know no "too many requests". A client that is beyond its quota is answered at once, and hears for how long it
is not read any further.
"""

import asyncio
from typing import cast

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.read_ahead import ReadAhead
from api.kafka.connections.answer_writer import REVOKED, AnswerWriter
from api.kafka.connections.connections import Connections
from api.kafka.connections.frame_reader import FrameReader, Throttle
from api.kafka.connections.request_line import RequestLine
from api.kafka.protocol.apis import PRODUCE
from api.kafka.protocol.codec import Malformed
from coordinator.access.quota_manager import QuotaKind
from log_tables.errors import BufferFull
from log_tables.limits import HANDSHAKE_S, KAFKA_PLAIN_FRAME_MAX_BYTES

FRAME_MIN_BYTES = 8
"""Of a frame without its length: API key, version and correlation id."""

LOGIN_FRAME_MAX_BYTES = 16_384
"""Of a frame of a client that is not authenticated yet."""

STALL_S = 10.0
"""How long a client may send nothing of a large request of which a part is there: it holds room."""


class Connection(asyncio.Protocol):
    """Used on the event loop."""

    def __init__(self, door: Door, connections: Connections) -> None:
        self._door, self._connections = door, connections
        self._loop = asyncio.get_running_loop()
        self._left = b""
        self._held = self._awaits_room = self._is_finishing = False
        self._throttle = Throttle(self._hold, self._go_on)
        self._made_at = self._idle_since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        host = peer[0] if isinstance(peer, tuple) else ""
        share = f"Kafka's client at {peer}"
        here = self._door.here
        answers = self._door.answers
        ahead = ReadAhead(answers, str(peer), self._door.records)
        certificate = _certificate(self._transport)
        login = here.access.certified(certificate)
        self._client = Client(here.access, host, answers.room(str(peer)), ahead, login=login)
        self._reader = FrameReader(here.buffer, share, self._made_at)
        self._writer = AnswerWriter(self._transport, share, self._client.room, self._made_at)
        self._requests = RequestLine(
            self._door, self._client, self._writer, self._throttle, self._go_on, self._authenticated
        )
        if not self._connections.add(self, host):
            self._transport.abort()
        elif here.settings.ssl_client_auth == "required" and certificate is None:
            self._writer.refuse("this gateway wants a certificate of its clients")

    @property
    def is_authenticated(self) -> bool:
        """Whether it is known whose requests these are."""
        return self._client.context is not None

    def _authenticated(self) -> None:
        self._connections.authenticated(self)

    # Input.

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._left += data
        else:
            self._feed(memoryview(data))

    def _feed(self, data: memoryview) -> None:
        while data and not self._writer.is_closing:
            if self._is_too_large():
                self._writer.refuse(f"a request without records of {self._reader.size_bytes} bytes")
                return
            quota = self._large_request_quota()
            if quota is not None and self._client.is_in_debt(quota):
                self._hold(data)
                self._throttle.begin(self._client.debt_s(quota))
                return
            try:
                data, frame = self._reader.take(data, self._sizes, self._loop.time())
            except BufferFull:
                self._hold(data)
                self._awaits_room = True
                self._connections.wait_for_room(self)
                return
            except Malformed as error:
                self._writer.refuse(str(error))
                return
            if frame is not None:
                self._requests.put(frame)
            if self._requests.is_full or not self._throttle.is_over:
                self._hold(data)
                return

    @property
    def _sizes(self) -> range:
        session = self._client.sasl
        least = 1 if session is not None and session.raw else FRAME_MIN_BYTES
        if not self.is_authenticated:
            return range(least, LOGIN_FRAME_MAX_BYTES + 1)
        return range(least, int(self._door.here.settings.max_request_bytes) + 1)

    def _is_too_large(self) -> bool:
        """Whether a request begins that is larger than any is that brings no records."""
        reader = self._reader
        return (
            reader.needs_room
            and reader.api_key != PRODUCE
            and reader.size_bytes > KAFKA_PLAIN_FRAME_MAX_BYTES
        )

    def _large_request_quota(self) -> QuotaKind | None:
        """The quota of a large request that begins: it waits unread where its client has used that up for
        long. None where none begins.
        """
        if not self._reader.needs_room:
            return None
        return QuotaKind.PRODUCER_BYTES if self._reader.api_key == PRODUCE else QuotaKind.REQUESTS

    def _hold(self, left: memoryview | None = None) -> None:
        """Read no further for now; `left` is what came already."""
        if left is not None:
            self._left = bytes(left)
        self._held = True
        self._transport.pause_reading()

    def try_again(self) -> None:
        """There may be room now."""
        self._awaits_room = False
        self._read_on()

    def _go_on(self) -> None:
        """Something is worked at, or a throttle is over."""
        self._idle_since = self._loop.time()
        self._read_on()

    def _read_on(self) -> None:
        """Read further, if nothing speaks against it."""
        if not self._held or self._awaits_room or self._requests.is_full or not self._throttle.is_over:
            return
        if self._writer.is_closing or self._is_finishing:
            return
        self._held = False
        self._reader.go_on(self._loop.time())
        left, self._left = memoryview(self._left), b""
        self._feed(left)
        if not (self._held or self._writer.is_closing):
            self._transport.resume_reading()

    # Answers.

    def pause_writing(self) -> None:
        self._writer.pause(self._loop.time())

    def resume_writing(self) -> None:
        self._writer.resume()

    # The end.

    def look(self, now: float) -> None:
        """Close the connection if it is idle, or too slow, by the time of the event loop; or if its client is
        let in no longer.
        """
        settings = self._door.here.settings
        self._client.ahead.expire(now)
        why = self._writer.late(now, settings.send_timeout_ms / 1_000, self._door.answers) or self._late(now)
        if self._door.here.access.is_shut or not self._client.is_let_in:
            why = REVOKED
        if why:
            self._writer.refuse(why)
        elif (now - self._idle_since) * 1_000 > settings.kafka_connections_max_idle_ms and self._is_idle:
            self.close()

    @property
    def _is_idle(self) -> bool:
        return not (self.busy or self._held or self._reader.since is not None)

    def _late(self, now: float) -> str:
        """Why the client takes too long to ask; nothing if it does not."""
        reader, receive_s = self._reader, self._door.here.settings.receive_timeout_ms / 1_000
        if not self.is_authenticated and now - self._made_at > min(HANDSHAKE_S, receive_s):
            return "nobody was authenticated in time"
        if reader.since is not None and not self._held:
            if now - reader.since > receive_s:
                return "a request did not come whole within receive_timeout_ms"
            if reader.holds_room and now - reader.moved > STALL_S:
                return "the rest of a large request does not come"
        return ""

    def finish(self) -> None:
        """Read nothing more; requests that came are still answered."""
        if not self._held:
            self._hold()
        self._is_finishing = True
        self._throttle.shut()

    @property
    def busy(self) -> bool:
        """Whether requests that came are not answered yet."""
        return self._requests.busy

    def close(self) -> None:
        """Close when all is sent."""
        self._writer.close()

    def drop(self) -> None:
        """Close now."""
        self._writer.refuse("another connection takes its place")

    def connection_lost(self, _: Exception | None) -> None:
        self._writer.lose()
        self._connections.remove(self)
        self._reader.close()
        self._throttle.shut()
        self._requests.lose()
        self._client.ahead.close()
        self._connections.leave(self)


def _certificate(transport: asyncio.Transport) -> bytes | None:
    """The certificate (DER) that the client has shown, which the handshake has verified; None without one."""
    connection = transport.get_extra_info("ssl_object")
    found: bytes | None = None if connection is None else connection.getpeercert(binary_form=True)
    return found
