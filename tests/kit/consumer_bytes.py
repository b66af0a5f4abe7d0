"""The subscriptions of consumers as they send them in JoinGroup, with what they hold (version 1)."""

import struct
from collections.abc import Iterable

from coordinator.groups.classic.consumer_protocol import encode_assignment
from log_tables.topic_partition import TopicPartition


def subscription(topics: Iterable[str], held: Iterable[TopicPartition]) -> bytes:
    """A `ConsumerProtocolSubscription` of version 1."""
    names = [struct.pack(">h", len(name)) + name.encode() for name in sorted(topics)]
    head = struct.pack(">hi", 1, len(names)) + b"".join(names) + struct.pack(">i", -1)
    own = encode_assignment(held)  # version, topics, user data
    return head + own[2:-4]
