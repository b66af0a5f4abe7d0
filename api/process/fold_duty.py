"""The tables over topics, which this gateway brings to where their partitions are.

One gateway folds a topic, with one commit for all its partitions. If two do, the store decides between them.
A partition that is led here costs no look at the store. Others are looked at each second while they change,
and less often while they do not. A topic that nobody appends to and nobody reads is looked at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold, fold_partitions
from log_tables.errors import LakelogError, TopicDeleted, UnknownTopic

LOOK_MAX_S = 8.0
"""The longest pause between two looks at a partition that another gateway leads, or nobody."""

CORES_MAX = 0.2
"""The part of a core that folding takes at most: a gateway with thousands of busy topics folds each less
often."""

LOOK_MIN_S = 0.5
"""The pause after the first look that found nothing; each later one is twice as long and this longer."""

RETRY_S = 10.0
"""The pause after a table could not be folded: to open it again may read a large checkpoint."""

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
    """A topic whose table this gateway keeps: since when it lags, None while it is level, and when to try
    again after a failure (`monotonic`).
    """

    topic: Topic
    partitions: dict[int, _PartitionState] = field(default_factory=dict)
    behind_since: float | None = None
    due: float = 0.0


class FoldDuty:
    """The tables that one gateway keeps. `run` and `lags` may be called from different threads."""

    def __init__(
        self,
        cluster: Cluster,
        is_ours: Callable[[Topic], bool],
        is_led: Callable[[Topic], bool],
        clock: Clock,
    ) -> None:
        """`is_ours` says whether this gateway folds a topic, `is_led` whether any gateway appends to it."""
        self._cluster, self._is_ours, self._is_led, self._clock = cluster, is_ours, is_led, clock
        self._followed: dict[str, _TopicState] = {}
        self._due = 0.0
        self._left: set[str] = set()
        """The ids of topics that nobody uses, and that were looked at once."""

    def run(self) -> None:
        """Fold the topics that have changed; of those that nobody uses, look at one. It does nothing if it
        has had its share of the processor.

        An error with one topic does not keep the others: it is raised in the end.
        """
        if self._clock.monotonic() < self._due:
            return
        begun_s = self._clock.processor_s()
        try:
            self._run()
        finally:
            used_s = self._clock.processor_s() - begun_s
            self._due = self._clock.monotonic() + used_s * (1 / CORES_MAX - 1)

    def _run(self) -> None:
        failed: LakelogError | None = None
        ours = {topic.topic_id: topic for topic in self._cluster.topics() if self._is_ours(topic)}
        self._followed = {key: one for key, one in self._followed.items() if key in ours}
        self._left &= {*ours}
        for key, topic in ours.items():
            if key not in self._followed and (topic.opened() or self._is_led(topic)):
                self._followed[key] = _TopicState(topic)
        unused = (topic for key, topic in ours.items() if key not in self._followed and key not in self._left)
        works = [partial(self._follow, one) for one in self._followed.values()]
        works += [partial(self._look_once, topic) for topic in islice(unused, 1)]
        for work in works:
            try:
                work()
            except (TopicDeleted, UnknownTopic):
                pass
            except LakelogError as error:
                failed = error
        if failed is not None:
            raise failed

    def _look_once(self, topic: Topic) -> None:
        """Fold a topic that nobody uses: a gateway that died may have left it. Nothing of it stays open."""
        record = self._cluster.metadata_log.topic(topic.name)
        if record is not None and record.topic_id == topic.topic_id:
            fold(self._cluster.topic_of(record))
        self._left.add(topic.topic_id)

    def _follow(self, one: _TopicState) -> None:
        now = self._clock.monotonic()
        if now < one.due:
            return
        changed = [
            number for number in range(one.topic.partition_count) if self._has_changed(one, number, now)
        ]
        if not changed:
            return
        if one.behind_since is None:
            one.behind_since = now
        try:
            result = fold_partitions(one.topic, changed)
        except LakelogError:
            one.due = now + RETRY_S
            raise
        folded = one.topic.table().snapshot
        level = [number for number, at in result.snapshots.items() if folded.is_level(number, at)]
        for number in level:
            one.partitions[number].version = result.snapshots[number].version
        # If another process folds too, the next round does the rest.
        if len(level) == len(changed):
            one.behind_since = None
        if result.failed is not None:
            raise result.failed

    def _has_changed(self, one: _TopicState, number: int, now: float) -> bool:
        """Whether the partition has a version that is not folded, as far as it is time to look."""
        state = one.partitions.setdefault(number, _PartitionState())
        if not one.topic.is_open(number):
            return True
        partition = one.topic.partition(number)
        if partition.leading:
            return partition.snapshot.version != state.version
        if now < state.due:
            return False
        before = partition.snapshot.version
        try:
            moved = partition.refresh().version != before
        except TopicDeleted:
            raise
        except LakelogError:
            return True  # the fold names it, and goes on with the others
        state.pause_s = 0.0 if moved else min(LOOK_MAX_S, 2 * state.pause_s + LOOK_MIN_S)
        state.due = now + state.pause_s
        return partition.snapshot.version != state.version

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
