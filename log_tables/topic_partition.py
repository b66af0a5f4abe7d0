"""A partition of a topic by its name, and of one incarnation of the topic: Kafka's two types.

And the partition of a key.
"""

from typing import NamedTuple

import mmh3


class TopicPartition(NamedTuple):
    """A partition of the topic of that name. A plain pair is equal to it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of one incarnation of a topic: a topic that is re-created has another id."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partition_for_key(key: bytes, count: int) -> int:
    """The partition of `key` among `count`: murmur3 (32 bit, sign bit masked) modulo the count."""
    return (mmh3.hash(key) & 0x7FFFFFFF) % count
