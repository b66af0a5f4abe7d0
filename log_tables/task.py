"""A task of a job, in a worker of Spark or in a process of this machine: its errors are results, and what it
takes is bounded.
"""

import math
from collections.abc import Callable, Iterable, Iterator
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


def batches(
    items: Iterable[Item], size: Callable[[Item], int], most_bytes: int, most_items: float = math.inf
) -> Iterator[tuple[Item, ...]]:
    """`items` in order, in as few parts as possible: each of up to `most_items`, and of `most_bytes` unless
    one item alone has more.
    """
    part: list[Item] = []
    room = most_bytes
    for item in items:
        if part and (size(item) > room or len(part) == most_items):
            yield tuple(part)
            part, room = [], most_bytes
        part.append(item)
        room -= size(item)
    if part:
        yield tuple(part)
