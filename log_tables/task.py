"""A task of a job, in a worker of Spark or in a process of this machine: its errors are results."""

from collections.abc import Callable
from typing import TypeVar

from log_tables.errors import LakelogError

Item = TypeVar("Item")
Result = TypeVar("Result")


def attempt(function: Callable[[Item], Result], item: Item) -> tuple[Result] | str:
    """(`function` of `item`,), or why it has none."""
    try:
        return (function(item),)
    except LakelogError as error:
        return error.message
    except Exception as error:  # noqa: BLE001 -- it is the item's failure
        return f"{function.__module__}.{function.__qualname__}: {type(error).__name__}: {error}"
