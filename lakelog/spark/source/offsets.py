"""Where a streaming query is in its topics, as Spark keeps it in the checkpoint."""

from collections.abc import Mapping
from typing import Any

from log_tables.errors import InvalidArgument
from log_tables.topic_partition import TopicIdPartition

Place = dict[str, Any]
"""`{"orders": {"id": …, "0": 23}}`: the form of Spark's Kafka source, and the topic's id."""

TOPIC_ID = "id"
"""The key that stands among a topic's partitions and tells which incarnation of the topic they belong to."""

BEGIN = "~begin"
"""The key, which no topic can have, of the place where the first micro-batch begins, in that where it ends.

Spark keeps the ends of micro-batches, and asks anew where the first one begins when it has to repeat it.
"""

UNDECIDED: Place = {BEGIN: "undecided"}
"""The place of a new query before its first micro-batch is planned. A place without topics is another."""


def encode(
    ends: Mapping[TopicIdPartition, int], begins: Mapping[TopicIdPartition, int] | None = None
) -> Place:
    """The place where a micro-batch ends; for the first one with that where it begins.

    Always in the same order: Spark takes two places for the same when their texts are.
    """
    place: Place = {}
    for at, offset in sorted(ends.items()):
        place.setdefault(at.topic, {TOPIC_ID: at.topic_id})[str(at.partition)] = offset
    return place if begins is None else {**place, BEGIN: encode(begins)}


def decode(place: Place) -> dict[TopicIdPartition, int]:
    """The offsets of a place. Raises InvalidArgument for one that another source made."""
    try:
        return {
            TopicIdPartition(topic, entries[TOPIC_ID], int(partition)): offset
            for topic, entries in place.items()
            if topic != BEGIN
            for partition, offset in entries.items()
            if partition != TOPIC_ID
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"the checkpoint holds {place!r}, which another source wrote; begin a new query, with another "
            "checkpoint"
        ) from None


def decode_begin(start: Place, end: Place) -> dict[TopicIdPartition, int]:
    """The offsets at which the micro-batch between two places begins."""
    return decode(end[BEGIN] if BEGIN in end and start != end else start)
