"""`AsyncClient`: what `Client` does, for programs on an event loop."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import closing
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from lakelog.client import DEFAULT_URL
from lakelog.client.calls import Calls
from lakelog.client.request import Asked, Call, Request, checked_url, failure, http_options, refusal
from lakelog.client.security_config import Credential
from log_tables.clock import Clock, ManualClock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from log_tables.record import Record

P = ParamSpec("P")
Result = TypeVar("Result")


def _performed(
    call: Callable[Concatenate[Calls, P], Call[Result]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, Result]]:
    """A method that makes the call of that name."""

    @wraps(call)
    async def method(self: "AsyncClient", /, *args: P.args, **options: P.kwargs) -> Result:
        return await self.perform(call(self.calls, *args, **options))

    return method


class AsyncClient:
    """A gateway at `url`, for one event loop. Close it, or use it with `async with`.

    Its methods are those of `Client`, to be awaited, and raise the same. `transport` replaces the network, as
    httpx has it.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        credential: Credential | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._clock = clock or SystemClock()
        self.timeout_s = timeout_s
        self.calls = Calls(timeout_s, self._clock)
        self._http = httpx.AsyncClient(transport=transport, **http_options(self.url, credential, ssl_context))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

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

    async def read(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "AsyncGenerator[Record]":
        """Every record from `offset` on, as `Client.read` gives them."""
        from log_tables.record import to_records

        async for records in self.read_tables(topic, partition, offset, follow=follow):
            for record in to_records(records):
                yield record

    async def read_tables(
        self, topic: str, partition: int, offset: int | str = "earliest", *, follow: bool = False
    ) -> "AsyncGenerator[pa.Table]":
        """Read a partition as tables of RECORD_SCHEMA of about READ_BYTES. The next one comes meanwhile."""
        ahead = None
        try:
            got = await self.perform(self.calls.read_on(topic, partition, offset, follow=follow))
            while True:
                more = got.next_offset < got.high_watermark
                following = self.calls.read_on(topic, partition, got.next_offset, follow=follow)
                ahead = _started(self.perform(following)) if more else None
                if got.records.num_rows:
                    yield got.records
                if ahead is None and not follow:
                    return
                got = await (self.perform(following) if ahead is None else ahead)
        finally:
            if ahead is not None:
                ahead.cancel()

    async def perform(self, call: Call[Result]) -> Result:
        """Make a call: send its requests, let its pauses pass. Returns its result."""
        try:
            with closing(call):
                asked = next(call)
                while True:
                    answer = await self._answer(asked)
                    asked = call.throw(answer) if isinstance(answer, BaseException) else call.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _answer(self, asked: Asked) -> Any:
        """The answer that a call is sent, or thrown if it is an error."""
        if isinstance(asked, float):
            return await self._pause(asked)
        if isinstance(asked, Future):
            return await asyncio.shield(asyncio.wrap_future(asked))  # others wait for it, too
        return await (self._response(asked) if isinstance(asked, Request) else _called(asked))

    async def _pause(self, seconds: float) -> None:
        """Let `seconds` pass, in which the event loop goes on."""
        if isinstance(self._clock, ManualClock):
            self._clock.pause(seconds)
        else:
            await asyncio.sleep(seconds)

    async def _response(self, request: Request) -> httpx.Response | Exception:
        try:
            answer = await self._http.request(
                request.method, request.path, timeout=request.timeout, **request.options
            )
        except Exception as error:  # noqa: BLE001 -- the call hears of whatever it is
            return failure(self.url, request.method, error)
        return answer if answer.is_success else refusal(answer)


async def _called(function: Callable[[], object]) -> BaseException | None:
    """The error of a function of the program, or of its coroutine: the call ends in order, and raises it."""
    try:
        result = function()
        if isinstance(result, Awaitable):
            await result
    except BaseException as error:  # noqa: BLE001
        return error
    return None


def _started(work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
    """A task that does `work`. Its error is raised where it is awaited, and nowhere if nobody reads on."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
