"""The bytes that consumers put into JoinGroup and SyncGroup: their topics, and their partitions.

They are Kafka's `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`. Every version begins with
the same fields, and nothing after them is needed here. The bytes come from clients, so anything may be in
them.
"""

import struct
from collections.abc import Iterable

from log_tables.topic_partition import TopicPartition

CONSUMER = "consumer"
"""The protocol type of consumers. Other clients, such as those of Connect, put other bytes there."""

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class _Malformed(Exception):
    pass


class _Reader:
    """Takes values from bytes, and never counts beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: struct.Struct) -> int:
        end = self._at + form.size
        if end > len(self._data):
            raise _Malformed
        (value,) = form.unpack_from(self._data, self._at)
        self._at = end
        return int(value)

    def text(self) -> str:
        size = self.take(_SHORT)
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _Malformed
        raw, self._at = self._data[self._at : end], end
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise _Malformed from None

    def skip_bytes(self) -> None:
        """Skip bytes with their length before them; −1 is null."""
        size = self.take(_INT)
        self._at += max(size, 0)

    def count(self, least_bytes: int) -> int:
        """The length of an array whose elements have `least_bytes` or more."""
        count = self.take(_INT)
        if not 0 <= count <= (len(self._data) - self._at) // least_bytes:
            raise _Malformed
        return count


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in the metadata of a consumer; None where they cannot be read."""
    reader = _Reader(metadata)
    try:
        reader.take(_SHORT)
        return frozenset([reader.text() for _ in range(reader.count(_SHORT.size))])
    except _Malformed:
        return None


def held_partitions(metadata: bytes) -> frozenset[TopicPartition]:
    """The partitions that a consumer says it holds while it joins; none where it cannot say so (version 0),
    or they cannot be read.
    """
    reader, found = _Reader(metadata), set[TopicPartition]()
    try:
        if reader.take(_SHORT) < 1:
            return frozenset()
        for _ in range(reader.count(_SHORT.size)):
            reader.text()
        reader.skip_bytes()
        for _ in range(reader.count(_SHORT.size + _INT.size)):
            topic = reader.text()
            found.update(TopicPartition(topic, reader.take(_INT)) for _ in range(reader.count(_INT.size)))
    except _Malformed:
        return frozenset()
    return frozenset(found)


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition] | None:
    """The partitions in the assignment of a consumer, which may be empty; None where they cannot be read."""
    if not assignment:
        return frozenset()
    reader, found = _Reader(assignment), set()
    try:
        reader.take(_SHORT)
        for _ in range(reader.count(_SHORT.size + _INT.size)):
            topic = reader.text()
            for _ in range(reader.count(_INT.size)):
                found.add(TopicPartition(topic, reader.take(_INT)))
    except _Malformed:
        return None
    return frozenset(found) if all(at.partition >= 0 for at in found) else None


def encode_subscription(topics: Iterable[str]) -> bytes:
    """The metadata of a consumer of `topics`, version 0."""
    names = sorted(topics)
    parts = [_SHORT.pack(0), _INT.pack(len(names)), *map(_text, names), _INT.pack(-1)]
    return b"".join(parts)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The assignment of a consumer of `partitions`, version 0."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_SHORT.pack(0), _INT.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += [_text(topic), _INT.pack(len(indexes)), *map(_INT.pack, indexes)]
    return b"".join([*parts, _INT.pack(-1)])


def _text(text: str) -> bytes:
    raw = text.encode()
    return _SHORT.pack(len(raw)) + raw
