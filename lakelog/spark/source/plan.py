"""From ranges of offsets to the slice of each task, and the offsets that are missing; for a batch query, from
one look at the logs.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.spark.decoding import AS_TEXT
from lakelog.spark.rows import CREATE_TIME, DECODED, LOG_APPEND_TIME
from lakelog.spark.source.offsets import EARLIEST, OffsetRange, split
from lakelog.spark.source.options import Options, parse
from lakelog.spark.source.slices import Slice, read, report_loss
from lakelog.spark.source.subscription import OffsetsByPartition, Subscription
from lakelog.spark.worker import short_errors
from log_tables.columns.column_type import without_case
from log_tables.errors import InvalidArgument
from log_tables.topic_partition import TopicPartition


def plan(subscription: Subscription, wanted: Iterable[OffsetRange], options: Options) -> list[Slice]:
    """The tasks that read the ranges `wanted`.

    Raises DataLost unless failOnDataLoss=false, InvalidArgument for a topic whose columns have other types
    than those of the query.
    """
    wanted = [*wanted]
    for offsets in wanted:
        _check_types(subscription, offsets.partition, options.declared)
    stored = [_stored(subscription, offsets, options.fail_on_data_loss) for offsets in wanted]
    ranges = split(stored, options.min_partitions, options.max_records_per_partition)
    decodes = not {*options.columns}.isdisjoint(DECODED)
    return [_slice(subscription, offsets, decodes) for offsets in ranges]


def _check_types(subscription: Subscription, partition: TopicPartition, declared: pa.Schema) -> None:
    """A topic may have come, or have been created again, since the query began."""
    if not declared.names:
        return
    has = subscription.partitions[partition].snapshot.declared.schema
    known = {without_case(column.name): column for column in has}
    for column in declared:
        found = known.get(without_case(column.name), column)
        if (found.name, found.type) != (column.name, column.type):
            what = "type" if found.name == column.name else "case"
            raise InvalidArgument(
                f"topic {partition.topic} has declared the column {column.name} with another {what} than the "
                "query has; start a new query, which reads this topic by itself, or leaves out the column"
            )


def _stored(subscription: Subscription, wanted: OffsetRange, fail: bool) -> OffsetRange:
    """The part of a range that the log has."""
    log = subscription.partitions[wanted.partition]
    low, high = log.log_start, log.high_watermark
    start, end = wanted.start, wanted.end
    if start > high or end > high:
        beyond = start if start > high else end
        report_loss(f"offset {beyond} of {wanted.partition} is beyond its end, {high}", fail)
    if start < low and end > start:
        gone = f"offsets {start} to {min(low, end) - 1} of {wanted.partition} are gone"
        report_loss(f"{gone}, its log starts at {low}", fail)
    start = min(max(start, low), high)
    return OffsetRange(wanted.partition, start, max(start, min(end, high)))


def _slice(subscription: Subscription, offsets: OffsetRange, decodes: bool) -> Slice:
    topic_name, number = offsets.partition
    log = subscription.partitions[offsets.partition]
    by_append = subscription.topics[topic_name].config["message.timestamp.type"] == "LogAppendTime"
    return Slice(
        topic=topic_name,
        partition=number,
        directory=log.directory,
        start=offsets.start,
        end=offsets.end,
        segments=log.log_from(offsets.start).between(offsets.start, offsets.end),
        timestamp_type=LOG_APPEND_TIME if by_append else CREATE_TIME,
        remote_root=subscription.remote_root,
        decoder=subscription.decoder(topic_name) if decodes else AS_TEXT,
    )


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
