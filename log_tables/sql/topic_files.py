"""The files of a topic as of now: what a query may read, before it is known what it needs."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.columns.declaration import NOTHING, Declaration
from log_tables.errors import Damaged
from log_tables.layout import CLUSTER_METADATA, PARTITION
from log_tables.partition.reader import PartitionReader
from log_tables.record import RECORD_SCHEMA
from log_tables.schemas.decoded import JSON, Encoding
from log_tables.schemas.schema import NO_SCHEMAS, Schemas
from log_tables.table.snapshot import Segment

TOPIC = "topic"

SCAN_SCHEMA = pa.schema(
    [
        pa.field(TOPIC, pa.string(), nullable=False),
        pa.field(PARTITION, pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The columns that every topic has."""

OnScan = Callable[[str, int, int], None]

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
    """The files of the topic `name`, partition by partition, and why others cannot be read, by number.

    `declared` are all columns that were ever declared, `encoding` and `schemas` say what the values are.
    `on_scan` is told of each scan: the topic, how many of its files are read, and how many it has.
    """

    name: str
    partitions: Sequence[PartitionFiles]
    damaged: Mapping[int, Damaged] = field(default_factory=dict)
    declared: Declaration = NOTHING
    encoding: Encoding = JSON
    schemas: Schemas = NO_SCHEMAS
    on_scan: OnScan = lambda *_: None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read from the files, or known of them: SCAN_SCHEMA and declared ones."""
        return pa.schema([*SCAN_SCHEMA, *self.declared.schema])


def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics as last refreshed, internal ones too."""
    return [CLUSTER_METADATA, *(topic.name for topic in cluster.topics(include_internal=True))]


def topic_files(cluster: Cluster, name: str) -> TopicFiles:
    """The files of the topic, from the logs of its partitions: every acknowledged record is in them.

    Partitions are opened and refreshed side by side. The damage of one is noted, for queries that want it.
    Raises UnknownTopic, TopicDeleted, CorruptLog (of the root), StoreUnavailable.
    """
    if name == CLUSTER_METADATA:
        return TopicFiles(name, [_files(0, cluster.metadata_log.partition)])
    return cluster.with_current_topic(name, _of_topic)


def _of_topic(topic: Topic) -> TopicFiles:
    def found(partition: int) -> PartitionFiles | Damaged:
        try:
            known, reader = topic.is_open(partition), topic.partition(partition)
            if known:  # one that was just opened is as new as it gets
                reader.refresh()
            return _files(partition, reader)
        except Damaged as damage:
            return damage

    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="lakelog-sql") as pool:
        every = [*pool.map(found, range(topic.partition_count))]
    whole = [one for one in every if isinstance(one, PartitionFiles)]
    declared = NOTHING
    for one in whole:
        declared = declared.joined(one.reader.snapshot.declared)
    damaged = {number: one for number, one in enumerate(every) if isinstance(one, Damaged)}
    config = topic.config
    return TopicFiles(
        topic.name, whole, damaged, declared.joined(config.columns), config.encoding, topic.schemas
    )


def _files(partition: int, reader: PartitionReader) -> PartitionFiles:
    here = reader.log_from(reader.log_start)
    start, end = here.log_start, here.high_watermark
    return PartitionFiles(partition, start, end, here.between(start, end), reader)
