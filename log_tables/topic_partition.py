"""A partition of a topic by its name, and of one incarnation of the topic: Kafka's two types."""

from typing import NamedTuple


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
