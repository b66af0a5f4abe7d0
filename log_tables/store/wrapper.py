"""A store around another one, for what looks at each of its calls."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from log_tables.store.store import Data, ObjectInfo, Put, PutIfAbsent, Store

T = TypeVar("T")


class StoreWrapper:
    """A store that hands every call to an inner store; `_call` sees each."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url, self.options = inner.url, inner.options

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:  # noqa: ARG002
        return perform()

    def get(self, path: str) -> bytes:
        return self._call("get", path, lambda: self.inner.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._call("get_range", path, lambda: self.inner.get_range(path, start, length))

    def head(self, path: str) -> ObjectInfo:
        return self._call("head", path, lambda: self.inner.head(path))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from self._call("list", prefix, lambda: [*self.inner.list(prefix, start_after)])

    def list_dirs(self, prefix: str) -> Sequence[str]:
        return self._call("list_dirs", prefix, lambda: self.inner.list_dirs(prefix))

    def put(self, path: str, data: Data) -> None:
        self._call("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: Data) -> None:
        self._call("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def put_new(self, path: str, data: Data) -> None:
        self._call("put_new", path, lambda: self.inner.put_new(path, data))

    @contextmanager
    def put_new_before(self, path: str, data: Data) -> Iterator[PutIfAbsent]:
        self.put_new(path, data)
        yield self.put_if_absent

    def put_together(self, puts: Sequence[Put]) -> Collection[str]:  # noqa: ARG002
        return ()  # each is a call to look at

    def make_durable(self, directory: str) -> None:
        self._call("make_durable", directory, lambda: self.inner.make_durable(directory))

    def check_room(self, data: Data) -> None:
        self._call("check_room", "", lambda: self.inner.check_room(data))

    def delete(self, path: str) -> None:
        self._call("delete", path, lambda: self.inner.delete(path))

    def delete_objects(self, paths: Sequence[str]) -> None:
        for path in paths:  # each is a place to fail at
            self.delete(path)

    def remove_temporaries(self, older_than_ms: int) -> int:
        return self._call("remove_temporaries", "", lambda: self.inner.remove_temporaries(older_than_ms))

    def now_ms(self) -> int:
        return self._call("now_ms", "", self.inner.now_ms)

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:
        return self._call("identity", path, lambda: self.inner.identity(path, directories))

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        return self.inner.delta_location(path)
