"""A batch query: one look at the logs, then one task for each slice."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.spark.boundary import short_errors
from lakelog.spark.source.options import parse
from lakelog.spark.source.plan import plan
from lakelog.spark.source.positions import EARLIEST
from lakelog.spark.source.ranges import OffsetRange
from lakelog.spark.source.slices import read
from lakelog.spark.source.subscription import OffsetsByPartition, Subscription
from log_tables.errors import InvalidArgument


@short_errors
class BatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets, as they are when the query is planned."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises InvalidArgument."""
        self._options = parse(given, streaming=False)

    def partitions(self) -> list[InputPartition]:
        """Raises InvalidArgument, UnknownTopic, UnknownPartition, DataLost, StoreUnavailable."""
        with closing(Subscription(self._options)) as subscription:
            subscription.refresh()
            for error in subscription.missing.values():
                raise error
            starts = subscription.resolve(self._options.starting, self._options.without_match)
            ends = subscription.resolve(self._options.ending, "latest")
            self._check_order(subscription, starts, ends)
            wanted = [
                OffsetRange(partition, start, ends[partition]) for partition, start in sorted(starts.items())
            ]
            return [*plan(subscription, wanted, self._options)]

    def _check_order(
        self, subscription: Subscription, starts: OffsetsByPartition, ends: OffsetsByPartition
    ) -> None:
        """Raise InvalidArgument for an end before the start that was asked for.

        `earliest` is never refused: a log may be empty, or its start may have moved beyond the end. A start
        beyond the end of the log is reported as lost data.
        """
        latest = subscription.latest()
        for partition, start in starts.items():
            end = ends[partition]
            if self._options.starting.named(partition) != EARLIEST and end < min(start, latest[partition]):
                raise InvalidArgument(
                    f"{partition} ends before it begins: from {start} to {end}; name a later end"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options)
