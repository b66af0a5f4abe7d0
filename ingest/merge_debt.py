"""The files of the partitions that a gateway leads that wait for a merge, and what follows from many of them.

Every commit is a file until `lakelog maintain` merges it. A partition that gets files faster than they are
merged is in debt: beyond `unmerged_segments_gather` its commits gather longer, which makes fewer files of as
many records, and beyond `unmerged_segments_max` it takes no more records. Internal topics stand outside.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import floor, inf

from ingest.buffer import RETRY_AFTER_S
from ingest.commit_budget import GATHER_MAX_S
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.merge_plan import merge_debt
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, UnmergedSegments
from log_tables.partition.partition import Partition

_log = logging.getLogger(__name__)

RECOUNT_S = 30.0
"""How old a count may become while the table changes, or its segments become old enough for a merge; and how
often it is looked whether the files of a large debt have been merged."""

_CHANGED = 8
"""Without one segment in so many more or fewer, a count stays: so each is looked at some eight times while a
partition grows to twice its size, however fast it does."""

_FIRST_PERIOD_S = 0.02
"""The period of commits without commits_per_second_max, from which it is doubled."""


_CLOSE = 0.05
"""The part of a period by which a commit may come early: a timer is not exact."""


@dataclass(frozen=True, slots=True)
class PartitionDebt:
    """The debt of one partition: `files` that merges would remove, as counted at `counted_s` (monotonic),
    when the table had `version` and so many `segments`, none of them too young for a merge if `settled`, and
    the topic `config`.
    """

    topic: str
    partition: int
    files: int
    version: int
    segments: int
    settled: bool
    config: TopicConfig
    counted_s: float

    def rests(self, version: int, config: TopicConfig) -> bool:
        """Whether it owes nothing, and nothing has changed since: there may be thousands of those."""
        return not self.files and self.settled and version == self.version and config == self.config

    def stands(self, version: int, segments: int, now_s: float) -> bool:
        """Whether it is still about right."""
        few = abs(segments - self.segments) * _CHANGED <= self.segments
        same = version == self.version and self.settled
        return few and (same or now_s - self.counted_s < RECOUNT_S)


class MergeDebt:
    """The debts of the partitions that are led here: counted in the background, as appends only look at a
    number. Thread-safe.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._gather, self._max = settings.unmerged_segments_gather, settings.unmerged_segments_max
        bounds = (settings.unmerged_segments_urgent, self._gather, self._max)
        self._many = min(filter(None, bounds), default=inf)
        self._rate, self._clock = settings.commits_per_second_max, clock
        self._found: dict[str, PartitionDebt] = {}
        self._refused: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()

    def count(self, cluster: Cluster) -> None:
        """Count again where something has changed. Called again and again, by one thread."""
        self._found = dict(self._counts(cluster))
        refused = {at for at, debt in self._found.items() if 0 < self._max <= debt.files}
        self._refused = frozenset(refused)
        self._tell()

    def of(self, directory: str) -> int:
        """The files that wait in the partition whose table is at `directory`; 0 if it is not led here."""
        found = self._found.get(directory)
        return 0 if found is None else found.files

    @property
    def refuses(self) -> bool:
        """Whether any partition takes no more records."""
        return bool(self._refused)

    @property
    def found(self) -> Sequence[PartitionDebt]:
        """All partitions that are led here, as last counted."""
        return (*self._found.values(),)

    def check(self, partition: Partition) -> None:
        """Raise UnmergedSegments for a partition that takes no more records."""
        if partition.directory not in self._refused:
            return
        found = self._found.get(partition.directory)
        if found is None:  # it has moved on a moment ago
            return
        raise UnmergedSegments(
            f"partition {found.partition} of topic {found.topic!r} has {found.files:,} unmerged segments, "
            f"and unmerged_segments_max is {self._max:,}; run `lakelog maintain`, then repeat the request",
            retry_after_s=RETRY_AFTER_S,
        )

    def pause_s(self, partition: Partition, last_s: float) -> float:
        """Seconds until a partition that made its last commit at `last_s` (monotonic) commits again: 0 unless
        it is in debt. Twice the debt is twice the pause, up to GATHER_MAX_S.

        Partitions in equal debt commit at the same moments, as they do without (`CommitBucket`).
        """
        times = self.of(partition.directory) // self._gather if self._gather else 0
        if not times:
            return 0.0
        usual_s = 1 / self._rate if self._rate else _FIRST_PERIOD_S
        period_s = min(GATHER_MAX_S, usual_s * (1 << times.bit_length()))
        return (floor(last_s / period_s + _CLOSE) + 1) * period_s - self._clock.monotonic()

    def _counts(self, cluster: Cluster) -> Iterator[tuple[str, PartitionDebt]]:
        before = self._found
        for topic in cluster.topics():
            for number, partition in topic.opened():
                if partition.leading:
                    known = before.get(partition.directory)
                    if known is None or not known.rests(partition.snapshot.version, topic.config):
                        known = self._count(topic, number, partition, known)
                    yield partition.directory, known

    def _count(
        self, topic: Topic, number: int, partition: Partition, known: PartitionDebt | None
    ) -> PartitionDebt:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        if known is not None and self._may_be_paid(partition, known, now_s):
            with suppress(LakelogError):  # whoever reads or writes the partition next says why
                partition.refresh()
            # A merge that was found counts, however few files it removes: else nobody would be let in again.
            same = partition.snapshot.version == known.version
            known = replace(known, counted_s=now_s) if same else None
        snapshot, youngest_ms = partition.snapshot, now_ms - topic.config.merge_min_age_ms
        version, segments = snapshot.version, len(snapshot.segments)
        if known is not None and known.config == topic.config and known.stands(version, segments, now_s):
            return known
        files = merge_debt(snapshot, topic.config, now_ms)
        settled = not segments or snapshot.segments[-1].modification_time <= youngest_ms
        return PartitionDebt(topic.name, number, files, version, segments, settled, topic.config, now_s)

    def _may_be_paid(self, partition: Partition, known: PartitionDebt, now_s: float) -> bool:
        """Whether to look for a merge. A leader reads of it when it commits next, and it may be that it does
        not commit: nobody sends anything, or it is in so much debt that all is refused.
        """
        refused = partition.directory in self._refused
        return refused or (known.files >= self._many and now_s - known.counted_s >= RECOUNT_S)

    def _tell(self) -> None:
        """Say in the log which partitions have come to wait for maintenance, once for each."""
        late = frozenset(at for at, debt in self._found.items() if 0 < self._gather <= debt.files)
        for directory in sorted(late - self._told):
            debt = self._found[directory]
            _log.warning(
                "partition %d of topic %r has %s unmerged segments, and commits gather longer there from %s "
                "on; is `lakelog maintain` running?",
                debt.partition,
                debt.topic,
                f"{debt.files:,}",
                f"{self._gather:,}",
            )
        self._told = late
