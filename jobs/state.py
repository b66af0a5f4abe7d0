"""What the jobs know when they plan: one value for each partition of the root."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from log_tables.cluster import Cluster
from log_tables.config import COMPACT, TopicConfig
from log_tables.errors import LakelogError, UnknownTopic
from log_tables.layout import CLUSTER_METADATA
from log_tables.partition import Partition
from log_tables.snapshot import Segment, Snapshot

_COMPACTED = TopicConfig.parse({"cleanup.policy": COMPACT})

OPENED_AT_ONCE = 16
"""Partitions that are opened, or changed without Spark, side by side: each waits for the store."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as it is when a run begins. `checkpointed` is the version of its newest checkpoint."""

    topic: str
    partition: int
    directory: str
    config: TopicConfig
    snapshot: Snapshot
    checkpointed: int = 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its segments, in order of offset."""
        return self.snapshot.segments

    @property
    def name(self) -> str:
        """`topic/partition`, for people."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition whose table cannot be opened, and why."""

    topic: str
    partition: int
    reason: str


def look(cluster: Cluster) -> tuple[list[PartitionState], list[Unreadable]]:
    """Every partition of the root as it is now, internal ones too, in order of their names.

    A partition that cannot be opened is told apart and stands in nobody's way. Raises what `Cluster.refresh`
    raises when the metadata log cannot be read.
    """
    cluster.metadata_log.refresh(wait=True)
    cluster.refresh()
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        found = [*pool.map(lambda at: _look(cluster, *at), _places(cluster))]
    states = [state for state in found if isinstance(state, PartitionState)]
    return states, [state for state in found if isinstance(state, Unreadable)]


def partition_of(cluster: Cluster, topic: str, index: int, directory: str) -> Partition:
    """The partition that a step was planned for. Raises UnknownTopic when its topic is no longer that one."""
    if topic == CLUSTER_METADATA:
        return cluster.metadata_log
    partition = cluster.topic(topic).partition(index)
    if partition.directory != directory:
        raise UnknownTopic(f"topic {topic!r} was deleted and made again meanwhile; the next run looks at it")
    return partition


def _places(cluster: Cluster) -> Iterator[tuple[str, int]]:
    yield CLUSTER_METADATA, 0
    for topic in cluster.topics(include_internal=True):
        for index in range(topic.partition_count):
            yield topic.name, index


def _look(cluster: Cluster, topic: str, index: int) -> PartitionState | Unreadable:
    try:
        if topic == CLUSTER_METADATA:
            partition, config = cluster.metadata_log, _COMPACTED
        else:
            found = cluster.topic(topic)
            partition, config = found.partition(index), found.config
        snapshot = partition.refresh(wait=True)
    except LakelogError as error:
        return Unreadable(topic, index, error.message)
    checkpointed = partition.table.checkpointed
    return PartitionState(topic, index, partition.directory, config, snapshot, checkpointed)
