"""Where a streaming query is in its topics, as Spark keeps it in the checkpoint."""

from collections.abc import Mapping
from typing import Any

from log_tables.errors import InvalidArgument
from log_tables.topic_partition import TopicIdPartition

StreamOffset = dict[str, Any]
"""`{"orders": {"id": …, "0": 23}}`: the JSON of Spark's Kafka source, and the topic's id."""

TOPIC_ID = "id"
"""The key among a topic's partitions that says which incarnation of the topic they belong to."""

BEGIN = "~begin"
"""The key under which the end of the first micro-batch holds where that begins. No topic can have this name.

Spark keeps the ends of micro-batches. When it has to repeat the first one, it asks again where that begins.
"""

UNDECIDED: StreamOffset = {BEGIN: "undecided"}
"""The offset of a new query before its first micro-batch is planned. One without topics is another."""


def encode(
    ends: Mapping[TopicIdPartition, int], begins: Mapping[TopicIdPartition, int] | None = None
) -> StreamOffset:
    """The end of a micro-batch; for the first one, `begins` is where it begins.

    The order is always the same: Spark compares offsets by their text.
    """
    stream_offset: StreamOffset = {}
    for partition, offset in sorted(ends.items()):
        of_topic = stream_offset.setdefault(partition.topic, {TOPIC_ID: partition.topic_id})
        of_topic[str(partition.partition)] = offset
    return stream_offset if begins is None else {**stream_offset, BEGIN: encode(begins)}


def decode(stream_offset: StreamOffset) -> dict[TopicIdPartition, int]:
    """The offset of each partition. Raises InvalidArgument if another source wrote `stream_offset`."""
    try:
        return {
            TopicIdPartition(topic, entries[TOPIC_ID], int(partition)): offset
            for topic, entries in stream_offset.items()
            if topic != BEGIN
            for partition, offset in entries.items()
            if partition != TOPIC_ID
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"the checkpoint holds {stream_offset!r}, which another source wrote; start a new query with "
            "another checkpointLocation"
        ) from None


def decode_begin(start: StreamOffset, end: StreamOffset) -> dict[TopicIdPartition, int]:
    """The offset of each partition at which the micro-batch from `start` to `end` begins."""
    return decode(end[BEGIN] if BEGIN in end and start != end else start)
