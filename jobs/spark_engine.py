"""The engine for large roots: tasks of Spark's executors, which import `log_tables` and nothing of `jobs`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from jobs.engine import JOB_BYTES, EngineGone, Failure
from jobs.spark_shuffle import shuffled
from log_tables.segments.key_shuffle import KeyGroup
from log_tables.table.snapshot import Segment
from log_tables.task import attempt

Item = TypeVar("Item")
Result = TypeVar("Result")

ITEMS_OF_A_CORE = 16
"""Tasks of a job for each core: enough to balance large items, and few enough for thousands of tiny ones."""


class SparkEngine:
    """One Spark job for each call. `session` starts the session when a job first needs it."""

    name = "spark"
    job_bytes = JOB_BYTES

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        def job(part: Sequence[Item]) -> list[Result | Failure]:
            context = self._session().sparkContext
            tasks = min(len(part), ITEMS_OF_A_CORE * context.defaultParallelism)
            found = context.parallelize(part, tasks).map(partial(attempt, function)).collect()
            return [Failure(result) if isinstance(result, str) else result[0] for result in found]

        return halving(job, items)

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        return halving(lambda some: shuffled(self._session().sparkContext, some), parts)

    def end_run(self) -> None:
        """The session stays: it costs more to start than to keep."""


def halving(
    job: Callable[[Sequence[Item]], list[Result | Failure]], items: Sequence[Item]
) -> list[Result | Failure]:
    """The results of `job`, a Spark job, for the items.

    When the job fails, because an item ends its worker, it is tried with each half of the items: in the end
    only items fail that fail alone. Raises EngineGone.
    """
    if not items:
        return []
    try:
        return job(items)
    except (Py4JNetworkError, ConnectionError) as error:
        raise EngineGone(
            "the Java process of Spark has ended; start this one again with more memory"
        ) from error
    except Py4JJavaError as error:
        if _is_stopped(error):
            raise EngineGone("the Spark session of this process was stopped; start it again") from error
        if len(items) == 1:
            return [Failure(f"the task failed in Spark: {_first_line(error)}")]
        half = len(items) // 2
        return halving(job, items[:half]) + halving(job, items[half:])


def _first_line(error: Py4JJavaError) -> str:
    return (str(error.java_exception.getMessage()).splitlines() or [""])[0]


def _is_stopped(error: Py4JJavaError) -> bool:
    return "stopped SparkContext" in str(error.java_exception.getMessage())
