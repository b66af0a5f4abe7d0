"""The engine for large roots: tasks of Spark's executors, which import `log_tables` and nothing of `jobs`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.engine import JOB_BYTES, EngineGone, Failure, whole
from log_tables.segments.key_shuffle import KeyGroup, compact_group, newest_here, newest_of_bucket
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


def shuffled(
    context: SparkContext, parts: Sequence[Sequence[KeyGroup]]
) -> list[tuple[Segment, ...] | Failure]:
    """Write the new segments of each partition of `parts` by one shuffle of Spark; nothing is committed. Its
    functions are local ones, so they go to executors by value.

    A partition of which a group fails has that Failure.
    """
    tasks = [group for part in parts for group in part]
    buckets = sum(part[0].buckets for part in parts)

    def newest_of_group(group: KeyGroup) -> Iterator[tuple[int, object]]:
        try:
            yield from newest_here(group)
        except Exception as error:  # noqa: BLE001 -- it is the partition's failure
            for bucket in range(group.buckets):
                yield group.first_bucket + bucket, (group.borders, str(error))

    def newest_of_gathered(gathered: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, object]]:
        found = [*gathered[1]]
        failed = next((part for part in found if isinstance(part, tuple)), None)
        if failed is None:
            yield from newest_of_bucket(found)
            return
        borders, reason = failed
        for index in range(len(borders.begins)):
            yield borders.first_group + index, reason

    def compact_with_newest(
        gathered: tuple[int, tuple[Iterable[KeyGroup], Iterable[Any]]],
    ) -> tuple[int, Segment | None, str]:
        number, ((group,), newest) = gathered
        found = [*newest]
        try:
            reason = next((part for part in found if isinstance(part, str)), "")
            return number, None if reason else compact_group(group, found), reason
        except Exception as error:  # noqa: BLE001 -- it is the partition's failure
            return number, None, str(error)

    groups_of_keys = context.parallelize(tasks, len(tasks)).flatMap(newest_of_group).groupByKey(buckets, int)
    pairs = context.parallelize([(group.number, group) for group in tasks], len(tasks))
    offsets = groups_of_keys.flatMap(newest_of_gathered)
    results = {
        number: Failure(reason) if reason else segment
        for number, segment, reason in pairs.cogroup(offsets, len(tasks)).map(compact_with_newest).collect()
    }
    made = (whole([results[group.number] for group in part]) for part in parts)
    return [part if isinstance(part, Failure) else tuple(filter(None, part)) for part in made]
