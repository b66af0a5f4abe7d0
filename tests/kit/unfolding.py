"""All writes to a root, in order, and a root that goes on while it is read."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from log_tables.clock import ManualClock, SystemClock
from log_tables.store.objects import Data
from log_tables.store.store import Store
from log_tables.store.wrapper import StoreWrapper

T = TypeVar("T")


class QuickClock(SystemClock):
    """A clock by which pauses between looks are twenty times as short."""

    def monotonic(self) -> float:
        return super().monotonic() * 20


class Written(NamedTuple):
    """A write of a store that was done: the name of its method, its path and its data."""

    operation: str
    path: str
    data: bytes = b""

    def repeat(self, store: Store) -> None:
        """Do it in `store`."""
        if self.operation == "delete":
            store.delete(self.path)
        else:
            getattr(store, self.operation)(self.path, self.data)


class RecordingStore(StoreWrapper):
    """`inner`, and all that is `written` to it, in order. Of one thread."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.written: list[Written] = []

    def put(self, path: str, data: Data) -> None:
        super().put(path, data)
        self.written.append(Written("put", path, bytes(data)))

    def put_if_absent(self, path: str, data: Data) -> None:
        super().put_if_absent(path, data)
        self.written.append(Written("put_if_absent", path, bytes(data)))

    def put_new(self, path: str, data: Data) -> None:
        super().put_new(path, data)
        self.written.append(Written("put_new", path, bytes(data)))

    def delete(self, path: str) -> None:
        super().delete(path)
        self.written.append(Written("delete", path))

    def delete_objects(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)


class UnfoldingStore(StoreWrapper):
    """`inner`, to which `coming` writes are done one by one before calls of a reader, as a seed draws: so a
    root goes on between any two looks at it. Thread-safe.
    """

    def __init__(self, inner: Store, coming: Sequence[Written], seed: int, pace: float = 0.4) -> None:
        super().__init__(inner)
        self._coming, self._next, self._pace = coming, 0, pace
        self._draws, self._lock = ManualClock(seed=seed), threading.Lock()

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._coming)

    def go_on(self) -> None:
        """Do a few writes, or none."""
        with self._lock:
            while not self.is_at_end and self._draws.random() < self._pace:
                self._coming[self._next].repeat(self.inner)
                self._next += 1

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:  # noqa: ARG002
        self.go_on()
        return perform()
