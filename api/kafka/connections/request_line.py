"""The requests of a connection that are read: they are worked at one after the other, as Kafka does it.

Only a Produce does not wait for the one before it: it is sequenced as soon as that is, so that all of them
share a commit.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.answer_line import AnswerLine, RequestEntry
from api.kafka.connections.answer_writer import REVOKED, AnswerWriter
from api.kafka.connections.frame_reader import LENGTH_BYTES, SMALL_FRAME_BYTES, Frame, Throttle
from api.kafka.handlers import HANDLERS, RULES, Rule
from api.kafka.logs.produce import produce
from api.kafka.protocol.apis import API_VERSIONS, APIS, FETCH, PRODUCE, SASL_AUTHENTICATE
from api.kafka.protocol.codec import (
    Malformed,
    RequestHeader,
    TooMany,
    decode_request,
    decode_request_header,
)
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.kafka.protocol.messages.produce import ProduceRequest
from api.kafka.protocol.notation import Message, names_in
from coordinator.access.pending_requests import PendingCount, requests_of
from coordinator.access.quota_manager import QuotaKind
from ingest.buffer import Room
from ingest.request_trace import CURRENT, RequestTrace
from log_tables.errors import LakelogError
from log_tables.limits import KAFKA_INLINE_ELEMENTS

FRAMES_MAX = 100
"""Requests of a connection that are read and not answered."""

SMALL_FRAMES_MAX_BYTES = 64 * 1024
"""Bytes of frames without room that wait for their turn at one connection."""

_QUOTAS = {PRODUCE: QuotaKind.PRODUCER_BYTES, FETCH: QuotaKind.CONSUMER_BYTES}

_log = logging.getLogger(__name__)


class RequestLine:
    """The requests of one connection, in order. Used on the event loop."""

    def __init__(
        self,
        door: Door,
        client: Client,
        writer: AnswerWriter,
        throttle: Throttle,
        worked: Callable[[], None],
        authenticated: Callable[[], None],
    ) -> None:
        """`worked` is called when a request is worked at, or answered late; `authenticated` after a login."""
        self._door, self._client, self._writer, self._throttle = door, client, writer, throttle
        self._worked, self._authenticated = worked, authenticated
        here = door.here
        self._answers = AnswerLine(
            client, writer, throttle, here.metrics, here.access_log, here.loop_share, worked
        )
        self._loop = asyncio.get_running_loop()
        self._frames: deque[Frame] = deque()
        self._small_bytes = 0
        self._worker: asyncio.Task[None] | None = None
        self._is_producing = False

    def put(self, frame: Frame) -> None:
        """Work at this one after those before it."""
        self._frames.append(frame)
        self._small_bytes += _small(frame)
        if self._worker is None:
            self._worker = self._loop.create_task(self._work())

    @property
    def is_full(self) -> bool:
        """Whether enough is read that is not answered."""
        waiting = len(self._frames) + len(self._answers)
        return waiting >= FRAMES_MAX or self._small_bytes >= SMALL_FRAMES_MAX_BYTES

    @property
    def busy(self) -> bool:
        """Whether requests that came are not answered yet."""
        return bool(self._worker or self._answers)

    def lose(self) -> None:
        """The connection is gone. A client may leave after its last batches with acks=0: as in Kafka, they
        are appended.
        """
        is_left = self._writer.is_left
        if not is_left:
            self._drop()
        if self._worker is not None and not (is_left and self._is_producing):
            self._worker.cancel()

    def _drop(self) -> None:
        """Give back the room of what is not worked at."""
        for frame in self._frames:
            frame.room.settle(0)
        self._frames.clear()

    async def _work(self) -> None:
        try:
            while self._frames and self._goes_on:
                while not (self._writer.is_writable and self._throttle.is_over):
                    await self._writer.wait()
                    await self._throttle.wait()
                frame = self._frames.popleft()
                self._small_bytes -= _small(frame)
                with frame.room:
                    await self._handle(memoryview(frame.data).toreadonly(), frame.room)
                self._worked()
        except Malformed as error:
            self._writer.refuse(str(error))
        except asyncio.CancelledError:
            raise
        except LakelogError as error:
            self._writer.refuse(error.message)
        except Exception:  # noqa: BLE001 -- it is logged, and others go on
            _log.exception("a request of %s failed, and its connection is closed", self._writer.share)
            self._writer.refuse("an internal error")
        finally:
            self._worker = None
            if self._writer.is_left and self._frames:
                self._leave()

    @property
    def _goes_on(self) -> bool:
        """Whether requests are worked at: with acks=0 also those of a client that has left."""
        writer = self._writer
        return not writer.is_closing or (writer.is_left and not writer.is_refused)

    def _leave(self) -> None:
        if self._writer.is_refused:
            self._drop()
        else:
            self._worker = self._loop.create_task(self._work())

    async def _handle(self, frame: memoryview, room: Room) -> None:
        if self._client.sasl is not None and self._client.sasl.raw:
            await self._authenticate(bytes(frame))
            return
        header = decode_request_header(frame)
        if self._writer.is_left and header.api_key != PRODUCE:
            return
        rule = self._admitted(header)
        api = APIS.get(header.api_key)
        if rule is None or api is None or not api.min_version <= header.api_version <= api.max_version:
            await self._refuse(header, len(frame))
            return
        self._client.id = header.client_id or ""
        began = self._loop.time()
        request, elements = await self._decoded(api.request, header.api_version, frame[header.body_at :])
        count = _counts_as(request, elements)
        if not rule.is_public:
            self._client.charge(QuotaKind.REQUESTS, count)
        self._is_producing = isinstance(request, ProduceRequest)
        entered = await self._client.enter(count) if rule.is_counted else None
        asked = self._entry(header, len(frame), began, entered)
        try:
            if isinstance(request, ProduceRequest):
                await self._produce(asked, request, room)
            else:
                await self._answer(asked, request)
        except BaseException as error:
            if asked.span is not None:
                asked.span.end(failed=type(error).__name__)
            raise

    def _admitted(self, header: RequestHeader) -> Rule | None:
        """The rule of a request, None if its API is not offered. Raises Malformed for one that the client may
        not send now.
        """
        rule = RULES.get(header.api_key)
        if self._client.context is None and (rule is None or not rule.is_public):
            raise Malformed(f"API {header.api_key} came before a login")
        if self._door.here.access.is_shut or not self._client.is_let_in:
            raise Malformed(REVOKED)
        return rule

    async def _decoded(self, kind: type[Message], version: int, body: memoryview) -> tuple[Message, int]:
        """The request, and how many elements it has. A wide one is decoded in a thread, and waits for its
        turn. Raises Malformed.
        """
        try:
            return decode_request(kind, version, body, KAFKA_INLINE_ELEMENTS)
        except TooMany:
            share = self._door.here.loop_share
            found = await share.in_thread(lambda: decode_request(kind, version, body))
            await share.give_way()
            return found

    def _entry(
        self, header: RequestHeader, size: int, began: float, entered: PendingCount | None
    ) -> RequestEntry:
        """A request that is worked at from now on; what is done next is for it."""
        here = self._door.here
        trace, span = RequestTrace(here.request_ids.next()), None
        if here.tracer is not None:
            name = APIS[header.api_key].name
            attributes = {"rpc.system": "kafka", "rpc.method": name, "client.address": self._client.host}
            span = here.tracer.begin(f"kafka {name}", "server", trace, attributes)
            trace = span.trace
        CURRENT.set(trace)
        return RequestEntry(header, size, began, entered, trace, span)

    async def _produce(self, asked: RequestEntry, request: ProduceRequest, room: Room) -> None:
        try:
            coming = await produce(self._door, self._client, request, asked.header.api_version, room)
        except BaseException:
            self._client.leave(asked.entered)
            raise
        finally:
            self._is_producing = False
        coming.add_done_callback(lambda _: self._client.leave(asked.entered))
        self._answers.put(asked, coming)
        self._charge(PRODUCE, asked.size_bytes)

    async def _answer(self, asked: RequestEntry, request: object) -> None:
        header = asked.header
        try:
            await self._answers.all_answered()
            answer = await HANDLERS[header.api_key](self._door, self._client, request, header.api_version)
            if not self._writer.is_closing:
                self._charge(header.api_key, 0)
                self._answers.write(asked, await self._answers.encoded(asked, answer))
                if header.api_key == SASL_AUTHENTICATE:
                    self._note_login()
        finally:
            self._client.leave(asked.entered)
        if self._client.is_ending:
            self._writer.close()

    async def _authenticate(self, message: bytes) -> None:
        """Answer a message of SASL that is a frame of its own. Raises AuthenticationFailed, and as
        `Client.authenticate`: there is no answer to what is refused.
        """
        assert self._client.sasl is not None
        answer = await self._client.authenticate(self._client.sasl, message)
        if not self._writer.is_closing:
            self._note_login()
            self._writer.write([len(answer).to_bytes(LENGTH_BYTES, "big"), answer])

    def _note_login(self) -> None:
        if self._client.context is not None:
            self._authenticated()

    def _charge(self, api_key: int, size_bytes: int) -> None:
        """Count what came with a request. A client beyond a quota has to be silent for a while."""
        kinds = [QuotaKind.REQUESTS]
        if RULES[api_key].is_public:
            return
        if size_bytes:
            self._client.charge(QuotaKind.PRODUCER_BYTES, size_bytes)
        if api_key in _QUOTAS:
            kinds.append(_QUOTAS[api_key])
        if not self._writer.is_closing:
            self._throttle.begin(self._client.debt_s(*kinds))

    async def _refuse(self, header: RequestHeader, size: int) -> None:
        """A client that asks for an unknown version of ApiVersions learns of those that there are (KIP-511).

        Nothing else that is not offered has an answer that its client could read. As in Kafka the connection
        ends; here after the answers to what came before.
        """
        await self._answers.all_answered()
        if header.api_key != API_VERSIONS:
            api = APIS.get(header.api_key)
            name = f"API {header.api_key}" if api is None else api.name
            self._door.warn(self._client, f"{name} in version {header.api_version}", header.client_id or "")
            self._writer.close()
            return
        answer = await HANDLERS[header.api_key](self._door, self._client, ApiVersionsRequest(), 0)
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        self._answers.send(self._entry(header, size, self._loop.time(), None), answer, 0)


def _counts_as(request: Message, elements: int) -> int:
    """As how many requests it counts."""
    return requests_of(sum(len(getattr(request, name) or ()) for name in names_in(type(request))), elements)


def _small(frame: Frame) -> int:
    """The bytes of a frame that hold no room."""
    return len(frame.data) if len(frame.data) <= SMALL_FRAME_BYTES else 0
