"""The tables over topics, which this gateway brings to where their partitions are.

One gateway folds a topic, with one commit for all its partitions. If two do, the store decides between them.
What is appended to a partition that is led here is known without a look at the store. What others remove from
it, or merge, is looked for seldom. Other partitions are looked at each second while they change, and less
often while they do not. A topic that nobody appends to and nobody reads is looked at once.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.process.looks import LookLimits, Looks
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold, fold_partitions
from log_tables.errors import LakelogError, TopicDeleted, UnknownTopic

LOOK_MAX_S = 30.0
"""The longest pause between two looks at a partition that another gateway leads, or nobody, while nothing
comes: on an object store each look is paid. It is the pause of those that are led here, too."""

LOOKS_PER_S = 20.0
"""Looks at all such partitions together, while nothing comes to their topics: of more than 600 each is looked
at less often. A commit here to a partition of the topic shortens the pause again."""

CORES_MAX = 0.2
"""The part of a core that folding takes at most: a gateway with thousands of busy topics folds each less
often."""

THREADS = 8
"""Topics that are folded at a time: on an object store a fold mostly waits."""

LOOK_MIN_S = 0.5
"""The pause after the first look that found nothing."""

RETRY_S = 10.0
"""The pause after a table could not be folded: to open it again may read a large checkpoint."""

UNUSED_RETRY_S = 300.0
"""The same pause for a topic that nobody uses."""

LAG_SERIES_MAX = 1_000
"""Topics with a series of their own: those that lag most."""


@dataclass(slots=True)
class _PartitionState:
    """A partition as it was looked at: the version that is folded, when to look again (`monotonic`), and why
    it could not be read.
    """

    version: int = -1
    pause_s: float = 0.0
    due: float = 0.0
    failed: LakelogError | None = None


@dataclass(slots=True)
class _TopicState:
    """A topic whose table this gateway keeps: when it was last level, whether it lags, why it could not be
    folded, when to try again, and when something came (`monotonic`).
    """

    topic: Topic
    level_at: float
    behind: bool = False
    partitions: dict[int, _PartitionState] = field(default_factory=dict)
    due: float = 0.0
    failed: LakelogError | None = None
    used_s: float = -math.inf

    def rests(self, now: float) -> bool:
        """Whether nothing has come for long, as far as is known here."""
        return now - self.used_s > 2 * LOOK_MAX_S


class FoldDuty:
    """The tables that one gateway keeps. `run` and `lags` may be called from different threads.

    A few threads fold, each some of the topics: one that is far behind keeps only these.
    """

    def __init__(
        self,
        cluster: Cluster,
        is_ours: Callable[[Topic], bool],
        is_led: Callable[[Topic], bool],
        clock: Clock,
        looks_per_s: float = LOOKS_PER_S,
    ) -> None:
        """`is_ours` says whether this gateway folds a topic, `is_led` whether any gateway appends to it."""
        self._cluster, self._is_ours, self._is_led, self._clock = cluster, is_ours, is_led, clock
        self._followed: dict[str, _TopicState] = {}
        self._due = 0.0
        self._looks = Looks(LookLimits(LOOK_MIN_S, LOOK_MAX_S, looks_per_s), clock)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="lakelog-fold")
        self._unused: dict[str, float] = {}
        """When to look at topics that nobody uses (`monotonic`): once, and later if that failed."""

    def run(self) -> None:
        """Fold the topics that have changed; of those that nobody uses, look at one. It does nothing if it
        has had its share of the processor.

        An error with one topic does not keep the others: it is raised in the end.
        """
        if self._clock.monotonic() < self._due:
            return
        begun_s = self._clock.processor_s()
        works = self._works()
        used_s = self._clock.processor_s() - begun_s
        done = [*self._pool.map(self._done, [works[first::THREADS] for first in range(THREADS)])]
        used_s += sum(part_s for part_s, _ in done)
        self._due = self._clock.monotonic() + used_s * (1 / CORES_MAX - 1)
        failed = next((error for _, error in done if error is not None), None)
        if failed is not None:
            raise failed

    def _works(self) -> list[Callable[[], None]]:
        """The work of a round, topic by topic."""
        now = self._clock.monotonic()
        ours = {topic.topic_id: topic for topic in self._cluster.topics() if self._is_ours(topic)}
        self._followed = {key: one for key, one in self._followed.items() if key in ours}
        for key, topic in ours.items():
            if key not in self._followed and (topic.opened() or self._is_led(topic)):
                self._followed[key] = _TopicState(topic, now)
        self._unused = {key: due for key, due in self._unused.items() if key in ours}
        unused = (
            topic
            for key, topic in ours.items()
            if key not in self._followed and self._unused.get(key, 0.0) <= now
        )
        looked_at = sum(
            state.pause_s > 0 for one in self._followed.values() for state in one.partitions.values()
        )
        self._looks.begin(looked_at)
        followed = [partial(self._follow, one) for one in self._followed.values()]
        return [*followed, *(partial(self._look_once, topic) for topic in islice(unused, 1))]

    def _done(self, works: Iterable[Callable[[], None]]) -> tuple[float, LakelogError | None]:
        """Do each of `works`: (the processor time that it took, the last error)."""
        begun_s = self._clock.processor_s()
        failed: LakelogError | None = None
        for work in works:
            try:
                work()
            except (TopicDeleted, UnknownTopic):
                pass
            except LakelogError as error:
                failed = error
        return self._clock.processor_s() - begun_s, failed

    def _look_once(self, topic: Topic) -> None:
        """Fold a topic that nobody uses: a gateway that died may have left it. Nothing of it stays open."""
        self._unused[topic.topic_id] = self._clock.monotonic() + UNUSED_RETRY_S
        record = self._cluster.metadata_log.topic(topic.name)
        if record is not None and record.topic_id == topic.topic_id:
            fold(self._cluster.topic_of(record))
        self._unused[topic.topic_id] = math.inf

    def _follow(self, one: _TopicState) -> None:
        """Fold what has changed. Raises the newest failure, also while it is not time to try again."""
        now = self._clock.monotonic()
        if now >= one.due:
            numbers = range(one.topic.partition_count)
            changed = [number for number in numbers if self._has_changed(one, number, now)]
            if changed:
                self._fold(one, changed, now)
            if not one.behind:
                one.level_at = now
        failed = one.failed or next((each.failed for each in one.partitions.values() if each.failed), None)
        if failed is not None:
            raise failed

    def _fold(self, one: _TopicState, changed: Sequence[int], now: float) -> None:
        one.behind, one.failed = True, None
        if any(one.partitions[number].pause_s == 0 for number in changed):
            one.used_s = now
            for state in one.partitions.values():  # the topic is in use, so the others may have news, too
                state.due = state.due if state.failed else min(state.due, now + LOOK_MAX_S)
        try:
            result = fold_partitions(one.topic, changed)
            folded = one.topic.table().snapshot
        except TopicDeleted:
            raise
        except LakelogError as error:
            one.failed, one.due = error, now + RETRY_S
            return
        level = True
        for number in changed:
            state, snapshot = one.partitions[number], result.snapshots.get(number)
            if snapshot is None:
                state.failed, state.due = result.failed, now + RETRY_S
                continue
            state.failed = None
            if folded.is_level(number, snapshot):
                state.version = snapshot.version
            else:
                level = False  # another process folds too, and the next round does the rest
        one.behind = not level or any(state.failed for state in one.partitions.values())

    def _has_changed(self, one: _TopicState, number: int, now: float) -> bool:
        """Whether the partition has a version that is not folded, as far as it is time to look."""
        state = one.partitions.get(number)
        if state is None:
            state = one.partitions[number] = _PartitionState()
        if not one.topic.is_open(number):
            return now >= state.due
        partition = one.topic.partition(number)
        if partition.leading and partition.snapshot.version != state.version:
            state.pause_s, state.due = 0.0, now + LOOK_MAX_S
            return True
        may_wait = not state.failed and one.rests(now)
        if now < state.due or (may_wait and not self._looks.has_turn(state.pause_s)):
            return False
        if state.failed:
            return True
        try:
            moved = partition.refresh().version != state.version  # readers here may have refreshed it before
        except TopicDeleted:
            raise
        except LakelogError:
            return True  # the fold names it, and goes on with the others
        state.pause_s = self._looks.pause_s(state.pause_s, moved=moved, rests=one.rests(now))
        if partition.leading:  # what is appended is known here; others remove records, and merge them
            state.pause_s = max(state.pause_s, LOOK_MAX_S)
        state.due = now + state.pause_s
        return partition.snapshot.version != state.version

    def lags(self) -> Iterator[tuple[str, float]]:
        """For how many seconds each topic may have had records that its table lacks; 0 if it has all."""
        now = self._clock.monotonic()
        exist = {topic.topic_id for topic in self._cluster.topics()}  # one may be gone since the last round
        for key, one in [*self._followed.items()]:
            if key not in exist:
                continue
            lags = one.behind or any(
                partition.leading and partition.snapshot.version != one.partitions[number].version
                for number, partition in one.topic.opened()
                if number in one.partitions
            )
            yield one.topic.name, max(0.0, now - one.level_at) if lags else 0.0


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
