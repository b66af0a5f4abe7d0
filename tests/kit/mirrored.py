"""A topic that is a mirror's copy of another cluster's: with gaps in, between and behind its commits."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirroredFrom, MirrorRecord, TopicRecord
from log_tables.cluster.topic import Topic
from log_tables.record import Record, input_batch, with_offsets

MIRROR = "kafka"
COMMITS = (((7, 8, 9), 10), ((13, 15), 18), ((), 20))
"""The offsets of each commit, and how far the source was read then."""

OFFSETS = (7, 8, 9, 13, 15)
END = 20
AT_US = 1_700_000_000_000_000
"""The time of offset 0; each offset is a second later."""


def value_of(offset: int) -> bytes:
    return b'{"n":%d}' % offset


def key_of(offset: int) -> bytes:
    """Two offsets after one another have different keys, of three; it is JSON, as the value is."""
    return b'"k%d"' % (offset % 3)


def at_us(offset: int) -> int:
    return AT_US + offset * 1_000_000


def source(offset: int) -> Record:
    """The record that the other cluster has at `offset`."""
    return Record(value_of(offset), key_of(offset), timestamp_us=at_us(offset))


def mirrored_topic(
    cluster: Cluster,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    commits: Sequence[tuple[Sequence[int], int]] = COMMITS,
) -> Topic:
    """A new topic that MIRROR makes, with `commits` in each partition."""
    if MIRROR not in cluster.metadata_log.mirrors:
        cluster.metadata_log.change_mirror(MIRROR, lambda _: MirrorRecord(MIRROR, "127.0.0.1:1", ("^.*",)))
    topic = create_topic(cluster, name, partitions, configs, mirrored=MirroredFrom(MIRROR, name))
    for partition in range(partitions):
        for offsets, end in commits:
            copy(cluster, topic, partition, offsets, end)
    return topic


def copy(
    cluster: Cluster,
    topic: Topic,
    partition: int,
    offsets: Sequence[int],
    end: int,
    at: Callable[[int], Record] = source,
) -> None:
    """Copy `offsets` of the source, which was read up to `end`, as the process of `cluster`. The record `at`
    each is that of `source`.
    """
    log = topic.partition(partition)
    if not log.leading:
        cluster.claim(topic, partition, mirror=MIRROR)
    batch = input_batch([at(offset) for offset in offsets], 0)
    log.mirror(with_offsets([batch], np.array(offsets, np.int64)), end)


def promote(cluster: Cluster, name: str) -> Topic:
    """Let the topic be no copy any longer."""

    def record(known: TopicRecord | None) -> TopicRecord:
        assert known is not None
        return replace(known, mirrored=None)

    cluster.metadata_log.change_topic(name, record)
    return cluster.topic(name)


def state_of(cluster: Cluster, name: str) -> tuple[object, ...]:
    """A topic as it is now: its record, where the log of its first partition begins and ends, and
    its leader epoch.
    """
    cluster.refresh()
    record = cluster.metadata_log.topic(name)
    if record is None or not record.live:
        return (record,)
    snapshot = cluster.topic(name).partition(0).refresh()
    return record, snapshot.log_start, snapshot.high_watermark, snapshot.leader_epoch
