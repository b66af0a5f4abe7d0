"""Writes committed offsets to `__consumer_offsets` as a coordinator does, without a coordinator."""

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Key, OffsetKey, OffsetValue, Value, encode
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest
from log_tables.record import input_batch


def say(cluster: Cluster, *records: tuple[Key, Value | None], index: int = 0) -> None:
    """Append to partition `index`, of two."""
    if cluster.cached_topic(CONSUMER_OFFSETS) is None:
        create_topic(cluster, CONSUMER_OFFSETS, 2, internal=True)
    log = cluster.claim(cluster.topic(CONSUMER_OFFSETS), index)
    log.append([AppendRequest(input_batch([encode(key, value) for key, value in records], 0))])


def commit(cluster: Cluster, group: str, topic: str, partition: int, offset: int, index: int = 0) -> None:
    """Let `group` go on at `offset`; partition `index` is where the group is kept."""
    committed = OffsetValue(offset, cluster.topic(topic).topic_id, committed_ms=cluster.clock.now_ms())
    say(cluster, (OffsetKey(group, topic, partition), committed), index=index)


def any_topic(_: str) -> bool:
    """Every topic may be read."""
    return True
