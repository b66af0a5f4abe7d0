"""How far behind consumer groups are, for Prometheus: by group, topic and partition."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import NamedTuple
from weakref import WeakKeyDictionary

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.process.looks import LookLimits, Looks
from api.samples import LagSum
from coordinator.groups.shard_manager import ShardManager
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import UnknownTopic
from log_tables.partition.partition import Partition
from log_tables.sql.lag import Lag, lag

LAG_SERIES_MAX = 10_000
"""Partitions of groups with a series of their own in each metric; the others are summed up."""

GROUP_LABELS_MAX = 1_000
"""Groups with series of their own; the others are summed up, too."""

OTHER_GROUPS = "(other)"

_NO_LAG = Lag()

LOOK_MIN_S = 5.0
"""The pause after the first look at a partition that found nothing."""

LOOK_MAX_S = 60.0
"""The longest pause between two looks at a partition that another process writes, while nothing comes."""

LOOKS_PER_S = 10.0
"""Looks at all such partitions together: of more than 600 each is looked at less often."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in a partition."""

    group: str
    topic: str
    partition: int
    lag: Lag


class LagMetrics(Collector):
    """Collects `lags`, which is asked whenever the metrics are read."""

    def __init__(self, lags: Callable[[], Iterable[GroupLag]]) -> None:
        self._lags = lags

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return _families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = _families()
        rest = Lag()
        groups: set[str] = set()
        for number, found in enumerate(self._lags()):
            if len(groups) < GROUP_LABELS_MAX:
                groups.add(found.group)
            if number >= LAG_SERIES_MAX or found.group not in groups:
                rest = Lag(
                    rest.records + found.lag.records,
                    max(rest.seconds, found.lag.seconds),
                    rest.size_bytes + found.lag.size_bytes,
                )
                continue
            _add(families, [found.group, found.topic, str(found.partition)], found.lag)
        if rest.records:
            _add(families, [OTHER_GROUPS, "", ""], rest)
        yield from families


def _add(families: tuple[GaugeMetricFamily, ...], labels: list[str], behind: Lag) -> None:
    for family, value in zip(families, (behind.records, behind.seconds, behind.size_bytes), strict=True):
        family.add_metric(labels, value)


def _families() -> tuple[GaugeMetricFamily, ...]:
    labels = ["group", "topic", "partition"]
    return (
        GaugeMetricFamily("lakelog_consumer_lag_records", "Records not yet committed.", labels=labels),
        GaugeMetricFamily("lakelog_consumer_lag_seconds", "Age of the oldest of them.", labels=labels),
        GaugeMetricFamily("lakelog_consumer_lag_bytes", "Size of these records in storage.", labels=labels),
    )


def group_lags(shards: ShardManager, cluster: Cluster, clock: Clock) -> Iterator[GroupLag]:
    """The lags of the groups that this gateway coordinates, as far as is known in memory."""
    now_ms = clock.now_ms()
    for group, topic, index, offset, partition in _committed(shards, cluster):
        known = partition.snapshot
        if offset >= known.high_watermark:
            yield GroupLag(group, topic, index, _NO_LAG)
            continue
        known = partition.log_from(offset) if partition.reaches(offset) else known
        yield GroupLag(group, topic, index, lag(known, offset, now_ms))


def lag_sums(shards: ShardManager, cluster: Cluster, clock: Clock) -> Iterator[LagSum]:
    """The lags of the groups that this gateway coordinates, each in all its partitions together."""
    for group, found in groupby(group_lags(shards, cluster, clock), key=lambda each: each.group):
        records, seconds, size = 0, 0.0, 0
        for each in found:
            behind = each.lag
            records, seconds = records + behind.records, max(seconds, behind.seconds)
            size += behind.size_bytes
        yield LagSum(group, records, seconds, size)


class LagFollower:
    """Looks for the ends of partitions that groups read and other processes write: ever less often where
    nothing comes, as each look is a request to the store.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks = Looks(LookLimits(LOOK_MIN_S, LOOK_MAX_S, LOOKS_PER_S), clock)
        self._last: WeakKeyDictionary[Partition, _Look] = WeakKeyDictionary()

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Look at those that are due. Raises StoreUnavailable, Damaged."""
        led_elsewhere = [*dict.fromkeys(each for each in partitions if not each.leading)]  # in their order
        self._looks.begin(len(led_elsewhere))
        now = self._clock.monotonic()
        for partition in led_elsewhere:
            last = self._last.setdefault(partition, _Look())
            # Readers and the fold look, too.
            pause_s = 0.0 if partition.snapshot.version != last.version else last.pause_s
            if now < last.looked_s + pause_s or not self._looks.has_turn(pause_s):
                continue
            with suppress(UnknownTopic):  # it was deleted just now, and its groups will hear of it
                moved = partition.refresh().version != last.version
                pause_s = self._looks.pause_s(last.pause_s, moved=moved)
                self._last[partition] = _Look(partition.snapshot.version, now, pause_s)


class _Look(NamedTuple):
    """The version that was seen, when (`monotonic`), and the pause until the next look."""

    version: int = -1
    looked_s: float = -inf
    pause_s: float = 0.0


def committed_partitions(shards: ShardManager, cluster: Cluster) -> Iterator[Partition]:
    """The partitions in which groups have committed that this gateway coordinates; some more than once."""
    return (found[-1] for found in _committed(shards, cluster))


def _committed(shards: ShardManager, cluster: Cluster) -> Iterator[tuple[str, str, int, int, Partition]]:
    """Group, topic, partition, committed offset, and the partition itself."""
    for group in shards.coordinated_groups():
        for at in sorted(group.offsets):
            committed, topic = group.committed(at), cluster.cached_topic(at.topic)
            if committed is not None and topic is not None and topic.topic_id == committed.topic_id:
                yield group.id, at.topic, at.partition, committed.offset, topic.partition(at.partition)
