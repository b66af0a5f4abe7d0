"""A member of a consumer group for programs on an event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from lakelog.client.async_client import AsyncClient
from lakelog.client.calls import Calls
from lakelog.client.consumer.common_consumer import CommonConsumer
from lakelog.client.consumer.consumer_record import ConsumerRecord
from lakelog.client.consumer.transaction import Transaction
from lakelog.client.request import Call
from log_tables.clock import timer
from log_tables.errors import InvalidArgument, LakelogError

GIVE_WAY_S = 0.1
"""How long records are given out without a turn for other tasks, its own heartbeats among them."""

LEAVE_S = 1.0
"""How long a task that is cancelled waits until its member has left. One that has not is given up after
`session_timeout_ms`."""

P = ParamSpec("P")
Result = TypeVar("Result")


def _performed(
    call: Callable[Concatenate["AsyncConsumer", P], Call[Result]],
) -> Callable[Concatenate["AsyncConsumer", P], Coroutine[Any, Any, Result]]:
    """A method that makes the call of that name."""

    @wraps(call)
    async def method(self: "AsyncConsumer", /, *args: P.args, **options: P.kwargs) -> Result:
        return await self._client.perform(call(self, *args, **options))

    method.__name__ = call.__name__.removeprefix("_")
    return method


class AsyncConsumer(CommonConsumer[httpx.AsyncBaseTransport]):
    """A consumer for one event loop, used in `async with`, which joins the group and leaves it.

    Settings, methods and promises are those of `Consumer`; methods are awaited, also `subscription`, and
    `async for` gives the records. Callbacks may be coroutine functions. One task uses it at a time, but for
    `stop`. A task of the event loop keeps the instance alive: a program that holds up the loop for longer
    than `session_timeout_ms` loses its partitions. Where a method is cancelled, the next one goes on as after
    an answer that was lost: nothing is skipped, and nothing that was handed out comes twice. A task that is
    cancelled in its block, or while it joins, waits for LEAVE_S at most until its member has left.
    """

    _heart: "asyncio.Task[None] | None" = None
    _waited = 0.0

    def _connect(self, url: str, options: dict[str, Any]) -> Calls:
        self._client = AsyncClient(url, **options)
        return self._client.calls

    async def __aenter__(self) -> Self:
        """Joins the group. Raises InvalidRequest, MemberExists, UnknownTopic, UnknownPartition, Retriable."""
        if self._closed or self._heart is not None:
            raise InvalidArgument("the consumer was used already; create another for each async with")
        try:
            await self._client.perform(self._join())
        except BaseException as error:
            self._closed = True
            with suppress(TimeoutError):
                async with self._client, _leaving(error):
                    await self._client.perform(self._quit())
            raise
        self._heart = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            async with _leaving(error):
                await self._close(in_order=False)
        except (LakelogError, TimeoutError) as failed:  # it must not hide what ended the block
            why = str(failed) or "the gateway has not answered in time"
            error.add_note(f"lakelog.AsyncConsumer: it did not leave its group in order: {why}")

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, as that of `Consumer`."""
        record = self._take()
        if record is None:
            record = await self._client.perform(self._next())
            self._waited = timer()
        elif timer() - self._waited > GIVE_WAY_S:
            await asyncio.sleep(0)  # a block that awaits nothing would keep the member from its heartbeats
            self._waited = timer()
        if record is None:
            raise StopAsyncIteration
        return record

    poll = _performed(CommonConsumer._poll)
    commit = _performed(CommonConsumer._commit)
    committed = _performed(CommonConsumer._committed)
    positions = _performed(CommonConsumer._positions)
    seek = _performed(CommonConsumer._seek)
    seek_to_time = _performed(CommonConsumer._seek_to_time)
    subscription = _performed(CommonConsumer._subscription)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A block whose records are appended, and all that was handed out is committed, as one: or neither.

            async with consumer.transaction() as transaction:
                transaction.send("sums", b"...")

        `Consumer.transaction` has the promises, and what is raised.
        """
        transaction = await self._client.perform(self._begin_transaction())
        try:
            yield transaction
        except BaseException:
            self._transactions.abandon(transaction)
            raise
        await self._client.perform(self._end_transaction(transaction))

    def _check_joined(self) -> None:
        if self._heart is None:
            raise InvalidArgument("the consumer has not joined its group; use it in async with")

    async def close(self) -> None:
        """Leave the group, as that of `Consumer`."""
        await self._close(in_order=True)

    async def _close(self, *, in_order: bool) -> None:
        if self._closed:
            return
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait([self._heart])  # awaited alone, it would hide that this task is cancelled
        try:
            await self._client.perform(self._leave(in_order=in_order))
        finally:
            self._closed = True
            await self._client.close()

    async def _beat(self) -> None:
        """Keep the member alive between its requests."""
        while True:
            await asyncio.sleep(self._beat_s)
            with suppress(LakelogError):  # the next poll meets the same error, and raises it
                await self._client.perform(self._member.heartbeat())


def _leaving(error: BaseException) -> asyncio.Timeout:
    """The time to leave a group in, after `error`. Raises TimeoutError at its end."""
    return asyncio.timeout(LEAVE_S if isinstance(error, asyncio.CancelledError) else None)
