"""The tables over topics, which this gateway brings to where their partitions are.

One gateway folds a topic, with one commit for all its partitions. If two do, the store decides between them.
A partition that is led here costs no look at the store. Others are looked at each second while they change,
and less often while they do not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import LakelogError, TopicDeleted, UnknownTopic

LOOK_MAX_S = 8.0
"""The longest pause between two looks at a partition that another gateway leads, or nobody."""

LAG_SERIES_MAX = 1_000
"""Topics with a series of their own: those that lag most."""


@dataclass(slots=True)
class _PartitionState:
    """A partition as it was looked at: the version that is folded, and when to look again (`monotonic`)."""

    version: int = -1
    pause_s: float = 0.0
    due: float = 0.0


@dataclass(slots=True)
class _TopicState:
    """A topic whose table this gateway keeps; `behind_since` is None while it is level (`monotonic`)."""

    topic: Topic
    partitions: dict[int, _PartitionState] = field(default_factory=dict)
    behind_since: float | None = None


class FoldDuty:
    """The tables that one gateway keeps. `run` and `lags` may be called from different threads."""

    def __init__(self, cluster: Cluster, is_ours: Callable[[Topic], bool], clock: Clock) -> None:
        """`is_ours` says whether this gateway folds a topic."""
        self._cluster, self._is_ours, self._clock = cluster, is_ours, clock
        self._followed: dict[str, _TopicState] = {}

    def run(self) -> None:
        """Fold the topics that have changed; at most one that nobody has touched since the start is opened.

        An error with one topic does not keep the others: it is raised in the end.
        """
        failed: LakelogError | None = None
        ours = [topic for topic in self._cluster.topics() if self._is_ours(topic)]
        kept = {topic.topic_id for topic in ours}
        self._followed = {key: one for key, one in self._followed.items() if key in kept}
        for topic in self._chosen(ours):
            try:
                self._follow(self._followed.setdefault(topic.topic_id, _TopicState(topic)))
            except (TopicDeleted, UnknownTopic):
                pass
            except LakelogError as error:
                failed = error
        if failed is not None:
            raise failed

    def _chosen(self, ours: Iterable[Topic]) -> Iterator[Topic]:
        """The topics that are in use here, and one of the others: a gateway that died may have left it."""
        spare = 1
        for topic in ours:
            if topic.topic_id in self._followed or topic.opened():
                yield topic
            elif spare:
                spare -= 1
                yield topic

    def _follow(self, one: _TopicState) -> None:
        now = self._clock.monotonic()
        changed = [
            number for number in range(one.topic.partition_count) if self._has_changed(one, number, now)
        ]
        if not changed:
            return
        if one.behind_since is None:
            one.behind_since = now
        seen = fold(one.topic, changed)
        folded = one.topic.table().snapshot
        level = [number for number, snapshot in seen.items() if folded.is_level(number, snapshot)]
        for number in level:
            one.partitions[number].version = seen[number].version
        if len(level) == len(
            changed
        ):  # otherwise another process has folded, and the next round does the rest
            one.behind_since = None

    def _has_changed(self, one: _TopicState, number: int, now: float) -> bool:
        """Whether the partition has a version that is not folded, as far as it is time to look."""
        looked = one.partitions.setdefault(number, _PartitionState())
        partition = one.topic.partition(number)
        if not partition.leading:
            if now < looked.due:
                return False
            before = partition.snapshot.version
            try:
                moved = partition.refresh().version != before
            except TopicDeleted:
                raise
            except LakelogError:
                return True  # `fold` names it, and folds the others
            looked.pause_s = 0.0 if moved else min(LOOK_MAX_S, 2 * looked.pause_s + 0.5)
            looked.due = now + looked.pause_s
        return partition.snapshot.version != looked.version

    def lags(self) -> Iterator[tuple[str, float]]:
        """For how many seconds each topic has had records that its table lacks; 0 where it lacks none."""
        now = self._clock.monotonic()
        for one in [*self._followed.values()]:
            since = one.behind_since
            yield one.topic.name, 0.0 if since is None else max(0.0, now - since)


class FoldLags(Collector):
    """Collects `lags`, which is asked whenever the metrics are read."""

    def __init__(self, lags: Callable[[], Iterable[tuple[str, float]]]) -> None:
        self._lags = lags

    def describe(self) -> Iterable[GaugeMetricFamily]:
        yield _family()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = _family()
        for topic, seconds in sorted(self._lags(), key=lambda pair: -pair[1])[:LAG_SERIES_MAX]:
            family.add_metric([topic], seconds)
        yield family


def _family() -> GaugeMetricFamily:
    text = "For how long the table over a topic has lacked records that its partitions have."
    return GaugeMetricFamily("lakelog_topic_table_lag_seconds", text, labels=["topic"])
