"""Errors as Spark shows them: our sentence, without the frames behind it.

Spark puts the whole traceback of a Python source before its message. The sentence of a LakelogError says what
was wrong and what to do; the frames inside the package would hide it.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from log_tables.errors import LakelogError

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
