"""The two faces of a client, a producer and a consumer, used in the same way: one test holds both.

The face of event loops is driven here by a loop in a thread; every call waits for its result.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Self, cast

import httpx

from lakelog import AsyncClient, AsyncConsumer, AsyncProducer, Client, Consumer, Producer
from lakelog.client.producer.async_producer import AsyncDelivery
from lakelog.client.producer.delivery import RecordMetadata

FACES = ["threads", "loop"]


class Loop:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Awaitable[Any], timeout_s: float | None = None) -> Any:
        """The result of `work`. Raises TimeoutError."""

        async def limited() -> Any:
            return await asyncio.wait_for(work, timeout_s)

        return asyncio.run_coroutine_threadsafe(limited(), self._loop).result()

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        """The items, one at a time."""
        try:
            while (item := self.run(anext(items, self))) is not self:
                yield item
        finally:
            self.run(cast("Any", items).aclose())


class _Driven:
    """An object of an event loop, with every coroutine waited for."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop, self._inner = loop, inner

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, *ended: Any) -> None:
        self._loop.run(self._inner.__aexit__(*ended))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def method(*args: Any, **options: Any) -> Any:
            given = found(*args, **options)
            if isinstance(given, AsyncIterator):
                return self._loop.iterate(given)
            result = self._loop.run(given)
            return DrivenDelivery(self._loop, result) if isinstance(result, AsyncDelivery) else result

        return method


class _DrivenConsumer(_Driven):
    """An AsyncConsumer with the methods of Consumer. It joins when it is made."""

    def __init__(self, loop: Loop, inner: AsyncConsumer) -> None:
        super().__init__(loop, inner)
        super().__enter__()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        record = self._loop.run(anext(self._inner, None))
        if record is None:
            raise StopIteration
        return record

    @property
    def subscription(self) -> Any:
        return self._loop.run(self._inner.subscription())

    def stop(self) -> None:
        self._inner.stop()

    def transaction(self) -> "_Driven":
        return _DrivenTransaction(self._loop, self._inner.transaction())


class _DrivenTransaction(_Driven):
    """The block of a transaction. It begins when it is made, as that of threads."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        super().__init__(loop, inner)
        self._transaction = loop.run(inner.__aenter__())

    def __enter__(self) -> Any:
        return self._transaction


class DrivenDelivery:
    """An AsyncDelivery with the methods of Delivery."""

    def __init__(self, loop: Loop, inner: AsyncDelivery) -> None:
        self._loop, self._inner = loop, inner

    def done(self) -> bool:
        return self._inner.done()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        found: RecordMetadata = self._loop.run(self._inner, timeout_s)
        return found

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        try:
            self.result(timeout_s)
        except Exception as error:  # noqa: BLE001 -- it is what is asked for
            return error
        return None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        async def add() -> None:
            self._inner.add_done_callback(lambda _: callback(self))

        self._loop.run(add())


class _Awaited(httpx.AsyncBaseTransport):
    """A transport of threads, for an event loop."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        plain = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=content,
            extensions=request.extensions,
        )

        def handle() -> httpx.Response:
            answer = self._inner.handle_request(plain)
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.read())

        return await asyncio.to_thread(handle)


class Face:
    """Makes clients and producers of one face. `transport` is httpx's for threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = None if name == "threads" else Loop()

    def client(self, url: str, **options: Any) -> Client:
        return cast("Client", self._made(Client, AsyncClient, url, options))

    def producer(self, url: str, **options: Any) -> Producer:
        return cast("Producer", self._made(Producer, AsyncProducer, url, options))

    def consumer(self, url: str, *args: Any, **options: Any) -> Consumer:
        if self._loop is None:
            return Consumer(url, *args, **options)
        for callback in {"on_assigned", "on_revoked", "on_lost"} & options.keys():
            options[callback] = partial(asyncio.to_thread, options[callback])  # it may wait for the loop
        if options.get("transport") is not None:
            options["transport"] = _Awaited(options["transport"])
        return cast("Consumer", _DrivenConsumer(self._loop, AsyncConsumer(url, *args, **options)))

    def _made(self, threads: Any, driven: Any, url: str, options: dict[str, Any]) -> Any:
        if self._loop is None:
            return threads(url, **options)
        if options.get("transport") is not None:
            options["transport"] = _Awaited(options["transport"])
        return _Driven(self._loop, driven(url, **options))
