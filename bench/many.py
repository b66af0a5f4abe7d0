"""A root of many things, none of which does anything: topics, groups with a member, ids of producers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    GroupKey,
    GroupValue,
    Key,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Value,
    encode,
)
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import COMPACT
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest
from log_tables.partition.sequencer import ProducerStamp, client_producer_id
from log_tables.record import input_batch
from log_tables.rows import Rows
from log_tables.store.store import open_store

PARTITIONS, SHARDS = 8, 50
"""Partitions of each topic, and of the log of groups: as many as Kafka's own has by default."""

_AT_ONCE = 8
_SILENT_MS = 1_800_000
"""How long a member may be silent: none is given up while it is measured."""


class Sizes(NamedTuple):
    """How many of each thing there are."""

    topics: int
    groups: int
    producers: int
    connections: int

    def part(self, share: float) -> "Sizes":
        return Sizes(*(max(1, round(each * share)) for each in self))


FULL = Sizes(2_000, 5_000, 100_000, 10_000)


def topic_name(number: int) -> str:
    return f"topic-{number}"


def group_name(number: int) -> str:
    return f"group-{number}"


def shard_of(group: str) -> int:
    """The partition of the log of groups that holds `group`."""
    return partition_for_key(group.encode(), SHARDS, MURMUR3)


def build(root: Path, sizes: Sizes) -> None:
    """Write such a root straight to its tables. Each partition has a record of each of its producers, each
    group has committed in all partitions of one topic and has one member, which owns them.
    """
    clock = SystemClock()
    cluster = Cluster.open(open_store(str(root)), clock)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        make = partial(_make_topic, cluster, sizes)
        for _ in pool.map(make, range(sizes.topics)):
            pass
    create_topic(cluster, CONSUMER_OFFSETS, SHARDS, {"cleanup.policy": COMPACT}, internal=True)
    shards: list[list[tuple[Key, Value | None]]] = [[] for _ in range(SHARDS)]
    for number in range(sizes.groups):
        topic = cluster.topic(topic_name(number % sizes.topics))
        shards[shard_of(group_name(number))] += _group(group_name(number), topic, clock.now_ms())
    for index, found in enumerate(shards):
        if not found:
            continue
        batch = input_batch([encode(*each) for each in found], clock.now_us())
        cluster.claim(cluster.topic(CONSUMER_OFFSETS), index).append([AppendRequest(batch)])


def _make_topic(cluster: Cluster, sizes: Sizes, number: int) -> None:
    topic = create_topic(cluster, topic_name(number), PARTITIONS)
    least, more = divmod(sizes.producers, sizes.topics * PARTITIONS)
    for index in range(PARTITIONS):
        count = least + (number * PARTITIONS + index < more)
        appends = [*_appends(cluster, max(1, count))]
        cluster.claim(topic, index).append(appends)


def _appends(cluster: Cluster, producers: int) -> Iterator[AppendRequest]:
    for _ in range(producers):
        rows = Rows([b'"idle"'], cluster.clock.now_us())
        stamp = ProducerStamp(client_producer_id(cluster.clock), 0, 0)
        yield AppendRequest(rows, stamp, count=1, size_bytes=6)


def _group(name: str, topic: Topic, now_ms: int) -> Iterator[tuple[Key, Value]]:
    yield GroupKey(name), GroupValue(1)
    owned = {topic.name: [*range(PARTITIONS)]}
    config = MemberConfig("json", "earliest", session_timeout_ms=_SILENT_MS, max_poll_interval_ms=_SILENT_MS)
    ids = {topic.name: topic.topic_id}
    yield MemberKey(name, "reader"), MemberValue(config, [topic.name], owned=owned, epoch=1, topic_ids=ids)
    for index in range(PARTITIONS):
        yield OffsetKey(name, topic.name, index), OffsetValue(1, topic.topic_id, committed_ms=now_ms)
