"""An idempotent producer for programs on an event loop, and the dispatch that sends in tasks of it."""

import asyncio
import math
from collections.abc import Callable, Generator
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import httpx

from lakelog.client.async_client import AsyncClient
from lakelog.client.producer.accumulator import SENDERS_MAX, Accumulator, ProducerConfig
from lakelog.client.producer.common_producer import CommonProducer, warn_unclosed
from lakelog.client.producer.delivery import BatchResult, Handle, RecordMetadata
from lakelog.client.producer.outgoing import Headers, TopicMetadata
from lakelog.client.producer.partition_queue import PartitionQueue
from lakelog.client.producer.sender import Sender
from log_tables.clock import Clock
from log_tables.errors import LakelogError


def resolved(result: BatchResult) -> "asyncio.Future[None]":
    """A future that is done when `result` is known."""
    future = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    result.add_done_callback(tell)
    return future


class AsyncDelivery(Handle):
    """The future of one record: `await` it for where the record is, or for the error that kept it away.

    An `await` or a callback takes the future: `flush` and `close` of the producer no longer raise for this
    record.
    """

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._take()
        try:
            if not self.done():
                yield from resolved(self._result).__await__()
        finally:
            if not self.done():
                self._leave()
        return self._placed()

    def add_done_callback(self, callback: "Callable[[AsyncDelivery], None]") -> None:
        """Call `callback(self)` on the event loop when the result is known, or now if it is known."""
        self._take()
        self._result.add_done_callback(lambda: callback(self))


class AsyncDispatch:
    """Sends batches to a gateway, in tasks of the event loop: one request at a time for a partition.

    It knows nothing of the producer that hands it records, as `Dispatch`.
    """

    def __init__(self, client: AsyncClient, config: ProducerConfig, clock: Clock) -> None:
        self._client, self._config = client, config
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.Handle | None = None
        self._woken = False
        self._room = asyncio.Event()
        self.accumulator = Accumulator(config, clock, wake=self._wake, freed=self._room.set)
        self._add = self.accumulator.add
        self._sender = Sender(client.calls, self.accumulator, config, nullcontext(), clock)

    async def topic(self, name: str, partition: int | None) -> TopicMetadata:
        """A topic, as it is known, or as a gateway tells of it."""
        return await self._client.perform(self._sender.topic(name, partition))

    async def add(
        self,
        topic: TopicMetadata,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> AsyncDelivery:
        """Add a record; waits for room. Raises as `Accumulator.add`, and BufferFull."""
        placed = self._add(topic, value, key, headers, timestamp_ms, partition)
        while isinstance(placed, int):
            await self._wait_for_room(placed)
            placed = self._add(topic, value, key, headers, timestamp_ms, partition)
        if self._woken:
            self._woken = False
            await asyncio.sleep(0)  # a program that only sends lets its records go out, too
        return AsyncDelivery(*placed)

    async def flush(self) -> None:
        """Send what waits at once, and return when the result of all of it is known."""
        for batch in self.accumulator.seal():
            if not batch.result.done:
                await resolved(batch.result)

    async def end(self) -> None:
        """End the tasks and connections, after a flush."""
        await asyncio.gather(*self._tasks)
        await self._client.close()

    async def _wait_for_room(self, size: int) -> None:
        try:
            async with asyncio.timeout(self._config.max_block_s):
                while not self.accumulator.has_room(size):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self.accumulator.full(size) from None

    def _wake(self) -> None:
        """Look what is due, as soon as the event loop comes to it."""
        self._woken = True
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        """Send what is due, and look again when the next batch is."""
        self._look, due_s = None, math.inf
        while len(self._tasks) < SENDERS_MAX:
            found = self.accumulator.next()
            if not isinstance(found, PartitionQueue):
                due_s = found
                break
            task = asyncio.ensure_future(self._client.perform(self._sender.deliver(found)))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        if due_s < math.inf:
            self._look = asyncio.get_running_loop().call_later(due_s, self._start)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake()


class AsyncProducer(CommonProducer[httpx.AsyncBaseTransport]):
    """Sends records to the gateway at `url`, on one event loop. Close it, or use it with `async with`.

    Settings, promises and errors are those of `Producer`. Records go out while the event loop runs; `send`
    waits only for what it has to know of a topic, and for room.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except LakelogError as undelivered:  # it must not hide what ended the block
            error.add_note(f"lakelog.AsyncProducer: {undelivered}")

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> AsyncDelivery:
        """Hand over a record. Awaiting what it returns says where the record is, or raises why it is not
        there: `await (await producer.send(...))` is `send_and_wait`.

        Parameters and errors are those of `Producer.send`.
        """
        known = self._topics.get(topic)
        if known is None or known.is_old or (partition is not None and not known.has(partition)):
            self._check_target(topic, partition)
            known = await self._dispatch.topic(topic, partition)
        if self._serializes:
            value, key = self._serialized(value, key)
        return await self._dispatch.add(known, value, key, headers, timestamp_ms, partition)

    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Where the record is, once it is there. Raises as `send`, and why it is not there."""
        return await (await self.send(topic, value, key, headers, timestamp_ms, partition))

    async def flush(self) -> None:
        """Send what waits, at once, and return when all of it is acknowledged or given up.

        Raises as `Producer.flush`: for records that were not delivered and whose future nobody has taken.
        """
        await self._dispatch.flush()
        self._raise_undelivered()

    async def close(self) -> None:
        """Refuse more, flush, and end the connections. Raises as `flush` does, once it is closed."""
        self._accumulator.close()
        await self._dispatch.flush()
        await self._dispatch.end()
        self._unclosed.detach()
        self._raise_undelivered()

    def _raise_undelivered(self) -> None:
        error = self._accumulator.undelivered.pop()
        if error is not None:
            raise error

    def _connect(self, config: ProducerConfig, options: dict[str, Any]) -> Accumulator:
        client = AsyncClient(**options, clock=self._clock)
        self._dispatch = AsyncDispatch(client, config, self._clock)
        self._unclosed = finalize(self, _abandoned, self._dispatch.accumulator)
        return self._dispatch.accumulator


def _abandoned(accumulator: Accumulator) -> None:
    """Somebody has let go of a producer, or the process ends, before it was closed."""
    waiting = sum(batch.result.records for queue in accumulator.queues.values() for batch in queue.batches)
    warn_unclosed("AsyncProducer", "an async with block", waiting)
