"""Functions of log_tables over many items, spread over Spark's executors as one job.

Executors import `log_tables` and nothing of `jobs`, so tasks refer to functions of `log_tables` alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from log_tables.errors import LakelogError
from log_tables.limits import MIB

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_OF_A_CORE = 16
"""Tasks of a job for each core: enough to balance large items, and few enough for thousands of tiny ones."""

JOB_BYTES = 64 * 1024 * MIB
"""Bytes that one Spark job rewrites: they are committed in time, and not lost when the next job is killed."""

SparkProvider = Callable[[], SparkSession]
"""Gives the session, which is started when a job first needs it."""


class SparkGone(RuntimeError):
    """The Java process of the session is gone, and this process cannot have another."""


class Failure(str):
    """Why an item could not be done."""

    __slots__ = ()


def spread(
    spark: SparkProvider, function: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result | Failure]:
    """`function` of each item, in order, as one Spark job.

    An item that raises has a Failure as its result.
    """
    said = f"{function.__module__}.{function.__qualname__}"

    def attempt(item: Item) -> tuple[Result] | str:
        try:
            return (function(item),)
        except LakelogError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 -- it is the item's failure
            return f"{said}: {type(error).__name__}: {error}"

    def job(part: Sequence[Item]) -> list[Result | Failure]:
        context = spark().sparkContext
        tasks = min(len(part), ITEMS_OF_A_CORE * context.defaultParallelism)
        found = context.parallelize(part, tasks).map(attempt).collect()
        return [Failure(result) if isinstance(result, str) else result[0] for result in found]

    return halving(job, items)


def batches(items: Sequence[Item], size: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    """`items` in order, in as few parts as possible of up to JOB_BYTES each."""
    part: list[Item] = []
    room = JOB_BYTES
    for item in items:
        if part and size(item) > room:
            yield part
            part, room = [], JOB_BYTES
        part.append(item)
        room -= size(item)
    if part:
        yield part


def halving(
    job: Callable[[Sequence[Item]], list[Result | Failure]], items: Sequence[Item]
) -> list[Result | Failure]:
    """The results of `job`, a Spark job, for the items.

    When the job fails, because an item ends its worker, it is tried with each half of the items: in the end
    only items fail that fail alone. Raises SparkGone.
    """
    if not items:
        return []
    try:
        return job(items)
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkGone(
            "the Java process of Spark has ended; start this one again with more memory"
        ) from error
    except Py4JJavaError as error:
        if _is_stopped(error):
            raise SparkGone("the Spark session of this process was stopped; start it again") from error
        if len(items) == 1:
            return [Failure(f"the task failed in Spark: {_first_line(error)}")]
        half = len(items) // 2
        return halving(job, items[:half]) + halving(job, items[half:])


def _first_line(error: Py4JJavaError) -> str:
    return (str(error.java_exception.getMessage()).splitlines() or [""])[0]


def _is_stopped(error: Py4JJavaError) -> bool:
    return "stopped SparkContext" in str(error.java_exception.getMessage())
