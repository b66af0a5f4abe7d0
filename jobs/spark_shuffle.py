"""Compaction by key as one shuffle of Spark. Its functions are local ones, so they go to executors by
value.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark import SparkContext

from jobs.engine import Failure, whole
from log_tables.segments.key_shuffle import KeyGroup, compact_group, newest_here, newest_of_bucket
from log_tables.table.snapshot import Segment


def shuffled(
    context: SparkContext, parts: Sequence[Sequence[KeyGroup]]
) -> list[tuple[Segment, ...] | Failure]:
    """Write the new segments of each partition of `parts`; nothing is committed.

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
