"""A gateway's HTTP interface for Python programs: topics, offsets, reading by offset, groups."""

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from lakelog.client import DEFAULT_URL
from lakelog.client.calls import READ_BYTES, Calls, Fetched, Lag, Offsets, OffsetsOf
from lakelog.client.request import (
    ARROW,
    Asked,
    Call,
    Request,
    checked_url,
    failure,
    http_options,
    quoted,
    refusal,
)
from lakelog.client.security_config import Credential
from log_tables.clock import Clock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from log_tables.record import Record

__all__ = ["ARROW", "READ_BYTES", "Client", "Fetched", "Lag", "Offsets", "OffsetsOf", "quoted"]

P = ParamSpec("P")
Result = TypeVar("Result")


def _performed(
    call: Callable[Concatenate[Calls, P], Call[Result]],
) -> Callable[Concatenate["Client", P], Result]:
    """A method that makes the call of that name."""

    @wraps(call)
    def method(self: "Client", /, *args: P.args, **options: P.kwargs) -> Result:
        return self.perform(call(self.calls, *args, **options))

    return method


class Client:
    """A gateway at `url`. Thread-safe; close it, or use it as a context manager.

    Methods raise the errors of log_tables.errors that the gateway names, Unreachable when none answers, and
    OutcomeUnknown when a request that changes something was sent and its answer did not come. A request that
    the gateway asks to repeat is repeated for up to 30 s.

    `credential` says who the program is, and `ssl_context` whom it trusts at an https URL. `transport`
    replaces the network, as httpx has it.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        credential: Credential | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._clock = clock or SystemClock()
        self.timeout_s = timeout_s
        self.calls = Calls(timeout_s, self._clock)
        self._http = httpx.Client(transport=transport, **http_options(self.url, credential, ssl_context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    wait = _performed(Calls.wait)
    topics = _performed(Calls.topics)
    topic = _performed(Calls.topic)
    topic_configs = _performed(Calls.topic_configs)
    create_topic = _performed(Calls.create_topic)
    alter_topic = _performed(Calls.alter_topic)
    add_partitions = _performed(Calls.add_partitions)
    delete_topic = _performed(Calls.delete_topic)
    deletion = _performed(Calls.deletion)
    deleted_topics = _performed(Calls.deleted_topics)
    undelete_topic = _performed(Calls.undelete_topic)
    purge_topic = _performed(Calls.purge_topic)
    restore_topic = _performed(Calls.restore_topic)
    cluster = _performed(Calls.cluster)
    brokers = _performed(Calls.brokers)
    schema = _performed(Calls.schema)
    topic_schema = _performed(Calls.topic_schema)
    partition_count = _performed(Calls.partition_count)
    offsets = _performed(Calls.offsets)
    delete_records = _performed(Calls.delete_records)
    fetch = _performed(Calls.fetch)
    groups = _performed(Calls.groups)
    group = _performed(Calls.group)
    owned = _performed(Calls.owned)
    lags = _performed(Calls.lags)
    group_offsets = _performed(Calls.group_offsets)
    set_offsets = _performed(Calls.set_offsets)
    delete_group = _performed(Calls.delete_group)
    undo_group = _performed(Calls.undo_group)
    topic_history = _performed(Calls.topic_history)
    revert_topic = _performed(Calls.revert_topic)
    access_history = _performed(Calls.access_history)
    revert_acls = _performed(Calls.revert_acls)
    acls = _performed(Calls.acls)
    create_acls = _performed(Calls.create_acls)
    delete_acls = _performed(Calls.delete_acls)
    sql = _performed(Calls.sql)
    request = _performed(Calls.request)
    post = _performed(Calls.post)

    def read(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "Iterator[Record]":
        """Every record from `offset` on, in order, up to the end.

        With `follow` for ever: it waits for more, and for a gateway that is away for up to 30 s. If the
        topic is deleted and re-created, it goes on at the same offset. Raises as `fetch` does:
        OffsetOutOfRange where that topic is shorter.
        """
        from log_tables.record import to_records

        for records in self.read_tables(topic, partition, offset, follow=follow):
            yield from to_records(records)

    def read_tables(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "Iterator[pa.Table]":
        """Read a partition as tables of RECORD_SCHEMA of about READ_BYTES. The next one comes meanwhile."""

        def read_on(at: int | str) -> Fetched:
            return self.perform(self.calls.read_on(topic, partition, at, follow=follow))

        got = read_on(offset)
        while True:
            more = got.next_offset < got.high_watermark
            ahead = _started(partial(read_on, got.next_offset)) if more else None
            if got.records.num_rows:
                yield got.records
            if ahead is None and not follow:
                return
            got = read_on(got.next_offset) if ahead is None else ahead.result()

    def perform(self, call: Call[Result]) -> Result:
        """Make a call: send its requests, let its pauses pass. Returns its result."""
        try:
            with closing(call):
                asked = next(call)
                while True:
                    answer = self._answer(asked)
                    asked = call.throw(answer) if isinstance(answer, BaseException) else call.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _answer(self, asked: Asked) -> Any:
        """The answer that a call is sent, or thrown if it is an error."""
        if isinstance(asked, float):
            return self._clock.pause(asked)
        if isinstance(asked, Request):
            return self._response(asked)
        return asked.result() if isinstance(asked, Future) else _called(asked)

    def _response(self, request: Request) -> httpx.Response | Exception:
        # An error is returned, not raised: with httpx's as its context it would keep the body as long as it
        # lives.
        try:
            answer = self._http.request(
                request.method, request.path, timeout=request.timeout, **request.options
            )
        except Exception as error:  # noqa: BLE001 -- the call hears of whatever it is
            return failure(self.url, request.method, error)
        return answer if answer.is_success else refusal(answer)


def _called(function: Callable[[], object]) -> BaseException | None:
    """The error of a function of the program, whatever it is: the call ends in order, and raises it."""
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    return None


def _started(work: Callable[[], Result]) -> "Future[Result]":
    """The result of `work`, which a thread of its own does. The process does not wait for it at its end."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 -- it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="lakelog-read", daemon=True).start()
    return future
