"""An idempotent producer for programs on an event loop. lakelog/client/async_dispatch.py sends."""

import logging
import warnings
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import httpx

from lakelog.client.accumulator import Accumulator, ProducerConfig
from lakelog.client.async_client import AsyncClient
from lakelog.client.async_delivery import AsyncDelivery
from lakelog.client.async_dispatch import AsyncDispatch
from lakelog.client.common_producer import CommonProducer
from lakelog.client.delivery import RecordMetadata
from lakelog.client.outgoing import Headers
from log_tables.counts import counted
from log_tables.errors import LakelogError

_log = logging.getLogger(__name__)


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
    warnings.warn(
        "a lakelog.AsyncProducer was not closed; use it in an async with block", ResourceWarning, stacklevel=2
    )
    if waiting:
        _log.error(
            "a producer was not closed, and %s in it may be lost; close it, or use it in an async with block",
            counted(waiting, "record"),
        )
