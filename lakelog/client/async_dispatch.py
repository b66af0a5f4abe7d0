"""Batches on their way to a gateway, as tasks of an event loop: one request at a time for a partition.

It knows nothing of the producer that hands it records, as `Dispatch`.
"""

import asyncio
import math
from contextlib import nullcontext

from lakelog.client.accumulator import SENDERS_MAX, Accumulator, ProducerConfig
from lakelog.client.async_client import AsyncClient
from lakelog.client.async_delivery import AsyncDelivery, resolved
from lakelog.client.outgoing import Headers, TopicMetadata
from lakelog.client.partition_queue import PartitionQueue
from lakelog.client.sender import Sender
from log_tables.clock import Clock


class AsyncDispatch:
    """Sends records to a gateway while the event loop runs."""

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
