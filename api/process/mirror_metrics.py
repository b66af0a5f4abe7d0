"""Mirrors, for Prometheus: how far behind their copies are, what has stopped, which processes live.

Of the gateways that live one has the series of a mirror. It knows the ends of the source by the reports of
processes that live, and how far the copies are by their tables; at these it looks only while they lag.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.mirror_reports import MirrorReports
from log_tables.cluster.admin.mirror_admin import copies_of
from log_tables.cluster.admin.mirror_progress import Progress, SourceRange, progress_at, reported
from log_tables.cluster.admin.mirror_view import MirrorLag, state_of, total
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.errors import UnknownTopic
from log_tables.partition.partition import Partition
from log_tables.topic_partition import TopicPartition

MIRROR_SERIES_MAX = 10_000
"""Partitions with a series of their own in each metric; the others of a mirror are summed up."""

LOOKS_MAX = 200
"""Partitions that are looked at in a round: of more that lag, each is looked at less often."""

_STATES = ("active", "paused", "stopped")


@dataclass(frozen=True, slots=True)
class MirrorFigures:
    """A mirror, as the metrics have it. `lagging` has the partitions of which the source's end is known."""

    name: str
    states: Sequence[str]
    processes: Sequence[MirrorReport]
    lagging: Sequence[Progress]


class MirrorMetrics(Collector):
    """Collects `figures`, which is asked whenever the metrics are read."""

    def __init__(self, figures: Callable[[], Iterable[MirrorFigures]]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return (*_lags(), *_wholes())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        lags, wholes, series = _lags(), _wholes(), 0
        for each in self._figures():
            own = each.lagging[: MIRROR_SERIES_MAX - series]
            series += len(own)
            for at in own:
                _add(lags, [each.name, at.topic, str(at.partition)], total([at]))
            _add(lags, [each.name, "", ""], total(each.lagging[len(own) :]))
            topics, processes, troubled, offsets = wholes
            for state in _STATES:
                topics.add_metric([each.name, state], each.states.count(state))
            processes.add_metric([each.name], len(each.processes))
            troubled.add_metric([each.name], sum(bool(one.trouble) for one in each.processes))
            offsets.add_metric([each.name], sum(one.offsets_behind for one in each.processes))
        yield from (*lags, *wholes)


def _add(families: Sequence[GaugeMetricFamily], labels: list[str], lag: MirrorLag | None) -> None:
    if lag is not None:
        for family, value in zip(families, lag, strict=True):
            if value is not None:
                family.add_metric(labels, value)


def _lags() -> tuple[GaugeMetricFamily, ...]:
    labels = ["mirror", "topic", "partition"]
    return (
        GaugeMetricFamily(
            "lakelog_mirror_lag_records", "Offsets of the source not yet copied.", labels=labels
        ),
        GaugeMetricFamily(
            "lakelog_mirror_lag_seconds", "For how long the copy has lacked records.", labels=labels
        ),
        GaugeMetricFamily("lakelog_mirror_lag_bytes", "About what they will take in storage.", labels=labels),
    )


def _wholes() -> tuple[GaugeMetricFamily, ...]:
    return (
        GaugeMetricFamily(
            "lakelog_mirror_topics", "Topics that a mirror copies, by state.", labels=["mirror", "state"]
        ),
        GaugeMetricFamily("lakelog_mirror_processes", "Processes that live.", labels=["mirror"]),
        GaugeMetricFamily(
            "lakelog_mirror_troubled_processes", "Those that copy nothing now.", labels=["mirror"]
        ),
        GaugeMetricFamily(
            "lakelog_mirror_offsets_behind", "Offsets of groups not yet copied.", labels=["mirror"]
        ),
    )


class MirrorFollower:
    """Follows the reports of mirrors, and the tables of the copies of those that are `ours`: each partition
    that lags, as far as is known. `follow` is called from one thread, `figures` from any.
    """

    def __init__(self, cluster: Cluster, reports: MirrorReports, is_ours: Callable[[str], bool]) -> None:
        self._cluster, self._reports, self._is_ours = cluster, reports, is_ours
        self._next: TopicPartition | None = None

    def follow(self) -> None:
        """Look once. Raises StoreUnavailable, Damaged."""
        self._reports.follow()
        behind = sorted(place for name in self._ours() for place in self._lagging(name))
        later = [place for place in behind if self._next is not None and place >= self._next]
        turn = [*later, *behind[: len(behind) - len(later)]][: LOOKS_MAX + 1]
        self._next = turn[LOOKS_MAX] if len(turn) > LOOKS_MAX else None
        for topic, number in turn[:LOOKS_MAX]:
            with suppress(UnknownTopic):  # it was deleted just now
                self._cluster.topic(topic).partition(number).refresh()

    def figures(self) -> Iterator[MirrorFigures]:
        """The mirrors that are `ours`, as is known now in memory."""
        for name in self._ours():
            record = self._cluster.metadata_log.mirrors.get(name)
            if record is not None:
                copies = copies_of(self._cluster, name)
                states = [state_of(_reason(each), record.paused) for each in copies]
                reports = self._reports.living(name)
                yield MirrorFigures(name, states, reports, [*self._known(copies, reported(reports))])

    def _ours(self) -> list[str]:
        return [name for name in sorted(self._cluster.metadata_log.mirrors) if self._is_ours(name)]

    def _lagging(self, name: str) -> Iterator[TopicPartition]:
        ranges = reported(self._reports.living(name))
        for each in copies_of(self._cluster, name) if ranges else ():
            opened = self._opened(each)
            for number in range(each.partitions):
                at = ranges.get(TopicPartition(each.name, number))
                if at is not None and (number not in opened or opened[number].high_watermark < at.end):
                    yield TopicPartition(each.name, number)

    def _known(
        self, copies: Iterable[TopicRecord], ranges: dict[TopicPartition, SourceRange]
    ) -> Iterator[Progress]:
        for each in copies if ranges else ():
            for number, log in sorted(self._opened(each).items()):
                place = TopicPartition(each.name, number)
                if place in ranges:
                    yield progress_at(place, log.snapshot, ranges[place], _reason(each))

    def _opened(self, copy: TopicRecord) -> dict[int, Partition]:
        topic = self._cluster.cached_topic(copy.name)
        return {} if topic is None else dict(topic.opened())


def _reason(copy: TopicRecord) -> str:
    return copy.mirrored.stopped if copy.mirrored else ""
