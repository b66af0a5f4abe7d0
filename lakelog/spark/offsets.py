"""The place of a streaming query in its topics, as Spark keeps it in the checkpoint."""

from collections.abc import Mapping
from typing import Any, NamedTuple

TOPIC_ID = "id"
"""The key that stands among a topic's partitions and tells which incarnation of the topic they belong to."""


class At(NamedTuple):
    """A partition of one incarnation of a topic: one deleted and made again is another."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def encode(offsets: Mapping[At, int]) -> dict[str, Any]:
    """`{"orders": {"id": …, "0": 23}}`: the form of Spark's Kafka source, and the topic's id.

    Always in the same order: Spark takes two places for the same when their texts are.
    """
    topics: dict[str, Any] = {}
    for at, offset in sorted(offsets.items()):
        topics.setdefault(at.topic, {TOPIC_ID: at.topic_id})[str(at.partition)] = offset
    return topics


def decode(topics: Mapping[str, Mapping[str, Any]]) -> dict[At, int]:
    """What `encode` was given."""
    return {
        At(topic, entries[TOPIC_ID], int(partition)): offset
        for topic, entries in topics.items()
        for partition, offset in entries.items()
        if partition != TOPIC_ID
    }
