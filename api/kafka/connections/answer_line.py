"""The answers of a connection: each waits for those before it."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from api.access_log import AccessLog, principal_of
from api.kafka.clients.client import Client
from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.answer_writer import REVOKED, AnswerWriter
from api.kafka.connections.frame_reader import Throttle
from api.kafka.protocol.apis import APIS
from api.kafka.protocol.codec import Chunk, RequestHeader, encode_response
from api.kafka.protocol.notation import Message, Struct, fields_of, has_more
from api.metrics import Metrics
from coordinator.access.pending_requests import PendingCount
from ingest.loop_share import LoopShare
from ingest.request_trace import RequestTrace, Span
from log_tables.limits import KAFKA_INLINE_ELEMENTS

_log = logging.getLogger(__name__)


class RequestEntry(NamedTuple):
    """A request of so many bytes that is worked at: when that began, what `PendingRequests.leave` takes, and
    its span where traces are kept.
    """

    header: RequestHeader
    size_bytes: int
    began: float
    entered: PendingCount | None
    trace: RequestTrace
    span: Span | None = None


class EncodedAnswer(NamedTuple):
    """An answer as it is sent, and how often it has which errors."""

    chunks: list[Chunk]
    errors: Mapping[str, int]


_NOTHING = EncodedAnswer([], {})


class AnswerLine:
    """The answers of one connection, in order. Used on the event loop."""

    def __init__(
        self,
        client: Client,
        writer: AnswerWriter,
        throttle: Throttle,
        metrics: Metrics,
        access_log: AccessLog | None,
        loop_share: LoopShare,
        sent: Callable[[], None],
    ) -> None:
        """`sent` is called after some that came late were sent."""
        self._share = loop_share
        self._client, self._writer, self._throttle, self._metrics = client, writer, throttle, metrics
        self._access_log, self._sent = access_log, sent
        self._loop = asyncio.get_running_loop()
        self._coming: deque[tuple[RequestEntry, asyncio.Future[Any]]] = deque()
        self._answered = asyncio.Event()

    def __len__(self) -> int:
        """How many are not there yet, or wait for one that is not."""
        return len(self._coming)

    def put(self, asked: RequestEntry, coming: "asyncio.Future[Any]") -> None:
        """Send an answer when it is there and those before it are sent; None is none."""
        self._coming.append((asked, coming))
        coming.add_done_callback(self._send_first)

    def _send_first(self, _: "asyncio.Future[Any]") -> None:
        """Send the answers that are there, up to the first that is not."""
        while self._coming and self._coming[0][1].done():
            asked, coming = self._coming[0]
            if self._is_wide(coming):
                encoding = self._coming[0] = (
                    asked,
                    asyncio.ensure_future(self.encoded(asked, coming.result())),
                )
                encoding[1].add_done_callback(self._send_first)
                return
            self._coming.popleft()
            if coming.cancelled() or coming.exception() is not None:
                share = self._writer.share
                _log.error("a Produce request of %s failed", share, exc_info=coming.exception())
                self._writer.refuse("an internal error")
                if asked.span is not None:
                    asked.span.end(failed="an internal error")
                break
            if coming.result() is None:
                self._measure(asked, _NOTHING)
            elif isinstance(coming.result(), EncodedAnswer):
                self.write(asked, coming.result())
            else:
                self.send(asked, coming.result())
        if not self._coming:
            self._answered.set()
        self._sent()

    @staticmethod
    def _is_wide(coming: "asyncio.Future[Any]") -> bool:
        """Whether the answer takes long to encode."""
        if coming.cancelled() or coming.exception() is not None:
            return False
        return isinstance(coming.result(), Message) and has_more(coming.result(), KAFKA_INLINE_ELEMENTS)

    async def all_answered(self) -> None:
        """Wait until none is coming."""
        while self._coming:
            self._answered.clear()
            await self._answered.wait()

    async def encoded(self, asked: RequestEntry, answer: Message) -> EncodedAnswer:
        """An answer that `write` takes. A wide one is encoded in a thread."""
        if has_more(answer, KAFKA_INLINE_ELEMENTS):
            self._throttled(answer)
            return await self._share.in_thread(lambda: _encoded(asked.header, answer))
        return self._encoded_now(asked, answer)

    def send(self, asked: RequestEntry, answer: Message, version: int | None = None) -> None:
        """Send an answer now, in the version of the request, or this one."""
        self.write(asked, self._encoded_now(asked, answer, version))

    def _encoded_now(self, asked: RequestEntry, answer: Message, version: int | None = None) -> EncodedAnswer:
        self._throttled(answer)
        return _encoded(asked.header, answer, version)

    def write(self, asked: RequestEntry, encoded: EncodedAnswer) -> None:
        """Send an answer now."""
        if self._writer.is_closing or not self._client.is_let_in:
            if not self._writer.is_closing:
                self._writer.refuse(REVOKED)
            if asked.span is not None:
                asked.span.end(failed="the connection was closed before the answer")
            return
        self._measure(asked, encoded)
        self._writer.write(encoded.chunks)

    def _throttled(self, answer: Message) -> None:
        """Let `answer` say for how long its client is not read."""
        left_s = self._throttle.left_s
        if left_s and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = max(answer.throttle_time_ms, _ms(left_s))

    def _measure(self, asked: RequestEntry, encoded: EncodedAnswer) -> None:
        """`asked` is answered, or done if it has no answer."""
        name, seconds = APIS[asked.header.api_key].name, self._loop.time() - asked.began
        self._metrics.kafka_answered(name, seconds)
        errors = sorted(encoded.errors)
        for error in errors:
            self._metrics.kafka_failed(error, encoded.errors[error])
        if asked.span is not None:
            asked.span.end({"lakelog.errors": errors}, ", ".join(errors))
        if self._access_log is not None:
            self._access_log.kafka(
                asked.trace,
                (name, asked.header.api_version),
                errors,
                (asked.size_bytes, sum(map(len, encoded.chunks))),
                seconds,
                (self._client.host, asked.header.client_id or ""),
                principal_of(self._client.context),
            )


def _encoded(header: RequestHeader, answer: Message, version: int | None = None) -> EncodedAnswer:
    shown = header.api_version if version is None else version
    return EncodedAnswer(encode_response(header.correlation_id, answer, shown), Counter(errors_in(answer)))


def _ms(seconds: float) -> int:
    return min(max(1, round(seconds * 1_000)), 2**31 - 1)


_ERROR_FIELDS = frozenset(("error_code", "partition_error_code"))


def errors_in(answer: Struct) -> Iterator[str]:
    """Kafka's name of each error in `answer`, or the number of one that this door has no name for."""
    own, parts = _places(type(answer))
    if own is not None and (code := getattr(answer, own)):
        yield _error_name(code)
    for name in parts:
        found = getattr(answer, name)
        for part in found if isinstance(found, list) else [] if found is None else [found]:
            yield from errors_in(part)


@cache
def _places(struct: type[Struct]) -> tuple[str | None, tuple[str, ...]]:
    """The field of `struct` that is an error of its own, and those that have parts with errors."""
    own, parts = None, []
    for field in fields_of(struct):
        if field.name in _ERROR_FIELDS:
            own = field.name
        if not isinstance(field.element, str) and any(_places(field.element)):
            parts.append(field.name)
    return own, tuple(parts)


@cache
def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
