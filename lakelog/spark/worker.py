"""Our code in Spark's Python processes: its errors as Spark shows them, and the state between tasks.

Spark puts the whole traceback of a Python source before its message. The sentence of a LakelogError says what
was wrong and what to do; the frames inside the package would hide it.
"""

import gc
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, wraps
from types import FunctionType
from typing import Any, TypeVar

from lakelog.spark.options import RootLocation
from log_tables.errors import LakelogError
from log_tables.store.store import Store, open_store

C = TypeVar("C", bound=type)


def short_errors(cls: C) -> C:
    """Cut the traceback of each LakelogError that leaves a public method of `cls`, or an iterator from one.

    Other exceptions are bugs, and keep their frames.
    """
    for name, method in [*vars(cls).items()]:
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _cutting(method))
    return cls


def _cutting(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = method(*args, **kwargs)
        except LakelogError as error:
            raise error.with_traceback(None) from None
        return _items(answer) if isinstance(answer, Iterator) else answer

    return call


def _items(iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except LakelogError as error:
        raise error.with_traceback(None) from None


@lru_cache(maxsize=16)
def store_at(location: RootLocation) -> Store:
    """The store, opened once in a process and only read."""
    return open_store(location.root, dict(location.storage), create=False)


@cache
def freeze_gc() -> None:
    """Let the garbage collector skip all objects loaded so far: the modules stay loaded anyway.

    Spark's worker collects all garbage after every task. With the modules that PySpark loads, this takes
    longer than a small task.
    """
    gc.collect()
    gc.freeze()
