"""The tail of a topic behind the table over it: tasks of a view read that from the logs of the partitions.

A view is planned by Spark, which knows nothing of our logs. These tasks run after that, in every query again,
so whatever was acknowledged before the query is in the table that was planned, or it is found here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from lakelog.spark.boundary import short_errors
from lakelog.spark.options import RootLocation, storage_options
from lakelog.spark.rows import PARTITION, TOPIC
from lakelog.spark.source.options import Options, parse
from lakelog.spark.source.plan import plan
from lakelog.spark.source.ranges import OffsetRange
from lakelog.spark.source.slices import read
from lakelog.spark.source.subscription import Subscription
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.record import RECORD_SCHEMA

COLUMNS = (TOPIC, PARTITION, *RECORD_SCHEMA.names)
"""The columns of a view, but for those that repeat others as text."""


@short_errors
@dataclass(frozen=True)
class TopicTail:
    """The tail of one topic, of the incarnation `topic_id`, behind the table over it with the id `table_id`.

    `ends` are the offsets up to which that table had each partition when the view was registered. It has no
    less since. `declared` are columns of the view, after COLUMNS.
    """

    location: RootLocation
    topic: str
    topic_id: str
    table_id: str
    ends: tuple[int, ...]
    declared: tuple[str, ...] = ()

    def log_starts(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the log starts of all partitions, in order. `batches` say nothing.

        Raises InvalidArgument when the view has to be registered again, and as `Subscription`.
        """
        for _ in batches:
            pass
        logs = self._followed().partitions.values()
        starts = pa.array([[log.log_start for log in logs]], pa.list_(pa.int64()))
        yield pa.record_batch([starts], names=["log_starts"])

    def records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records behind the ends of the table that is scanned, with COLUMNS and `declared`.

        `batches` have rows of a partition and the end of what the table has beyond `ends`, if it has any.
        Raises as `log_starts`, DataLost for records that were deleted while they were read, CorruptSegment.
        """
        known = dict(enumerate(self.ends))
        for batch in batches:
            known.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        followed, options = self._followed(), _options(self.location, self.topic, self.declared)
        wanted = [
            OffsetRange(at, max(known.get(at.partition, 0), log.log_start), log.high_watermark)
            for at, log in followed.partitions.items()
        ]
        for part in plan(followed, wanted, options):
            yield from read(part, options)

    def _followed(self) -> Subscription:
        try:
            followed = _subscription(self.location, self.topic)
            followed.refresh()
            self._check(followed)
        except LakelogError:
            _subscription.cache_clear()  # the next query opens the root as it is then
            raise
        return followed

    def _check(self, followed: Subscription) -> None:
        """Raise InvalidArgument if the table that the view scans has not all records below `ends`."""
        for error in followed.missing.values():
            raise error
        topic = followed.topics[self.topic]
        if topic.topic_id != self.topic_id:
            raise self._outdated("was deleted and created again")
        if any(log.snapshot.tiered > log.log_start for log in followed.partitions.values()):
            raise self._outdated("has records in the remote root")
        if topic.table().refresh(wait=True).metadata.id != self.table_id:
            raise self._outdated("has a new table")

    def _outdated(self, change: str) -> InvalidArgument:
        return InvalidArgument(
            f"topic {self.topic} {change} since its view was registered; call topics(spark, root) again"
        )


@lru_cache(maxsize=16)
def _options(location: RootLocation, topic: str, declared: tuple[str, ...] = ()) -> Options:
    given = {"path": location.root, "subscribe": topic, "columns": ",".join((*COLUMNS, *declared))}
    return parse({**storage_options(dict(location.storage)), **given}, streaming=False)


@lru_cache(maxsize=16)
def _subscription(location: RootLocation, topic: str) -> Subscription:
    """The logs of the topic, which a Python process of Spark follows from query to query."""
    return Subscription(_options(location, topic))
