"""Stores whose requests and bytes are bounded, so that replication leaves room for others."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from log_tables.clock import Clock
from log_tables.store.objects import Data, Put, PutIfAbsent
from log_tables.store.store import Store
from log_tables.store.wrapper import StoreWrapper

T = TypeVar("T")


class Rate:
    """At most `most` of something a second, over all threads; without a bound if that is 0."""

    def __init__(self, clock: Clock, most: float) -> None:
        self._clock, self._most = clock, most
        self._lock = threading.Lock()
        self._free_s = clock.monotonic()

    @property
    def is_bounded(self) -> bool:
        return self._most > 0

    def take(self, amount: float) -> None:
        """Wait until all that was taken before is paid for, and take `amount`, of any size."""
        if not self.is_bounded:
            return
        with self._lock:
            now = self._clock.monotonic()
            begin_s = max(self._free_s, now)
            self._free_s = begin_s + amount / self._most
        if begin_s > now:
            self._clock.pause(begin_s - now)


class LimitedStore(StoreWrapper):
    """A store each of whose calls takes of `requests`, and what it reads and writes of `data`."""

    def __init__(self, inner: Store, requests: Rate, data: Rate) -> None:
        super().__init__(inner)
        self._requests, self._data = requests, data

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:  # noqa: ARG002
        self._requests.take(1)
        return perform()

    def get(self, path: str) -> bytes:
        data = super().get(path)
        self._data.take(len(data))
        return data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        data = super().get_range(path, start, length)
        self._data.take(len(data))
        return data

    def put(self, path: str, data: Data) -> None:
        self._data.take(memoryview(data).nbytes)
        super().put(path, data)

    def put_if_absent(self, path: str, data: Data) -> None:
        self._data.take(memoryview(data).nbytes)
        super().put_if_absent(path, data)

    def put_new(self, path: str, data: Data) -> None:
        self._data.take(memoryview(data).nbytes)
        super().put_new(path, data)

    def put_together(self, puts: Sequence[Put]) -> Collection[str]:
        data = [each for put in puts for each in (put.data, *(data for _, data in put.new))]
        self._requests.take(len(data))
        self._data.take(sum(memoryview(each).nbytes for each in data))
        return self.inner.put_together(puts)

    @contextmanager
    def put_new_before(self, path: str, data: Data) -> Iterator[PutIfAbsent]:
        self._requests.take(2)
        self._data.take(memoryview(data).nbytes)
        with self.inner.put_new_before(path, data) as put:

            def counted(path: str, data: Data) -> None:
                self._data.take(memoryview(data).nbytes)
                put(path, data)

            yield counted
