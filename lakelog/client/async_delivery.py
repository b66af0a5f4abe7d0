"""The result of a record or a batch, awaited on an event loop."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from lakelog.client.delivery import BatchResult, Handle, RecordMetadata


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
