"""From ranges of offsets to what each task reads, and what is missing of them."""

from collections.abc import Iterable

from lakelog.spark.rows import CREATE_TIME, LOG_APPEND_TIME
from lakelog.spark.source.loss import report_loss
from lakelog.spark.source.options import Options
from lakelog.spark.source.ranges import Range, split
from lakelog.spark.source.slices import Slice
from lakelog.spark.source.subscription import Subscription
from log_tables.topic_partition import TopicPartition


def plan(subscription: Subscription, wanted: Iterable[Range], options: Options) -> list[Slice]:
    """The tasks that read the ranges `wanted`. Raises DataLost unless failOnDataLoss=false."""
    there = [_there(subscription, part, options.fail_on_data_loss) for part in wanted]
    parts = split(there, options.min_partitions, options.max_records_per_partition)
    return [_slice(subscription, part) for part in parts]


def _there(subscription: Subscription, part: Range, fail: bool) -> Range:
    """What the log has of a range."""
    name = TopicPartition(part.topic, part.partition)
    partition = subscription.partitions[name]
    low, high = partition.log_start, partition.high_watermark
    start, end = part.start, part.end
    if start > high or end > high:
        beyond = start if start > high else end
        report_loss(f"offset {beyond} of {name} is beyond its end, {high}", fail)
    if start < low and end > start:
        report_loss(
            f"offsets {start} to {min(low, end) - 1} of {name} are gone, its log starts at {low}", fail
        )
    start = min(max(start, low), high)
    return Range(part.topic, part.partition, start, max(start, min(end, high)))


def _slice(subscription: Subscription, part: Range) -> Slice:
    topic = subscription.topics[part.topic]
    partition = subscription.partitions[TopicPartition(part.topic, part.partition)]
    by_append = topic.config["message.timestamp.type"] == "LogAppendTime"
    return Slice(
        topic=part.topic,
        partition=part.partition,
        directory=partition.directory,
        start=part.start,
        end=part.end,
        segments=partition.log_from(part.start).between(part.start, part.end),
        timestamp_type=LOG_APPEND_TIME if by_append else CREATE_TIME,
        remote_root=subscription.remote_root,
    )
