"""The files of a topic as of now: what a query may read, before it is known what it needs."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.layout import CLUSTER_METADATA
from log_tables.partition.reader import PartitionReader
from log_tables.table.snapshot import Segment

_OPENED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The records of a partition, log_start ≤ offset < end, and the segments that hold them, in order.

    Those below the border of its tiers are remote (`Segment.remote`). `reader` reads them, also where they
    were replaced since.
    """

    partition: int
    log_start: int
    end: int
    segments: Sequence[Segment]
    reader: PartitionReader


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """The files of the topic `name`, partition by partition."""

    name: str
    partitions: Sequence[PartitionFiles]


def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics as last refreshed, internal ones too."""
    return [CLUSTER_METADATA, *(topic.name for topic in cluster.topics(include_internal=True))]


def topic_files(cluster: Cluster, name: str) -> TopicFiles:
    """The files of the topic, from the logs of its partitions: every acknowledged record is in them.

    Partitions are opened and refreshed side by side. Raises UnknownTopic, TopicDeleted, CorruptLog,
    ForeignCommit, StoreUnavailable.
    """
    if name == CLUSTER_METADATA:
        return TopicFiles(name, [_files(0, cluster.metadata_log.partition)])
    return TopicFiles(name, cluster.with_current_topic(name, _partitions))


def _partitions(topic: Topic) -> list[PartitionFiles]:
    def found(partition: int) -> PartitionFiles:
        known, reader = topic.is_open(partition), topic.partition(partition)
        if known:  # one that was just opened is as new as it gets
            reader.refresh()
        return _files(partition, reader)

    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="lakelog-sql") as pool:
        return [*pool.map(found, range(topic.partition_count))]


def _files(partition: int, reader: PartitionReader) -> PartitionFiles:
    here = reader.log_from(reader.log_start)
    start, end = here.log_start, here.high_watermark
    return PartitionFiles(partition, start, end, here.between(start, end), reader)
