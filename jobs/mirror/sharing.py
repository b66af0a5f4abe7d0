"""The processes that share the partitions of a mirror, and what each reports of its own."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby

from jobs.processes import Processes
from log_tables.clock import Clock
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.cluster.mirror_report import MirrorReport, SourcePartition
from log_tables.layout import mirror_directory
from log_tables.store.store import Store
from log_tables.topic_partition import TopicPartition

_ENDS_MAX = 64
"""So many ends of a partition are remembered, to say for how long it is behind."""


class Sharing:
    """This process among those of the mirror `mirror`. Of one thread; blocking."""

    def __init__(self, store: Store, clock: Clock, mirror: str) -> None:
        directory = mirror_directory(mirror)
        self._processes = Processes(store, clock, directory, f"the mirror {mirror} is copied")
        self._clock, self._number = clock, 0
        self._copied: dict[TopicPartition, _Copied] = {}
        self.offsets_behind = 0
        """How many offsets of groups are not here yet, for the next report."""

    @property
    def process(self) -> str:
        """The name of this process."""
        return self._processes.process

    def look(self) -> None:
        """See which processes live. Raises StoreUnavailable, and as `Store.put`."""
        if not self._number:
            self.report({}, {})  # the others make room
        self._processes.look()

    def owns(self, place: TopicPartition) -> bool:
        """Whether this process is to copy the partition."""
        return self._processes.owns(f"{place.topic}/{place.partition}")

    def owns_group(self, group: str) -> bool:
        """Whether this process is to bring the offsets of a group over. Of any thread."""
        return self.owns(TopicPartition(group, -1))

    def report(
        self,
        ranges: Mapping[TopicPartition, SourceRange],
        positions: Mapping[TopicPartition, int],
        trouble: str = "",
    ) -> None:
        """Say which partitions it copies, with what their source has, how far they are, and what keeps them.

        Raises as `Store.put`.
        """
        now, before = self._clock.monotonic(), self._copied
        self._copied = {place: before.get(place) or _Copied() for place in ranges}
        for place, at in ranges.items():
            self._copied[place].note(at, positions[place], now)
        self._put(trouble)

    def report_trouble(self, trouble: str) -> None:
        """Say why nothing is copied now. Raises as `Store.put`."""
        self._put(trouble)

    def _put(self, trouble: str) -> None:
        now, topics = self._clock.monotonic(), dict[str, Sequence[SourcePartition]]()
        for name, copied in groupby(self._copied.items(), lambda item: item[0].topic):
            topics[name] = [each.said(place.partition, now) for place, each in copied]
        self._number += 1
        at = self._processes
        said = MirrorReport(at.process, self._number, at.host, at.pid, topics, trouble, self.offsets_behind)
        at.report(said)

    def close(self) -> None:
        """Say that this process copies nothing any more, if the store can be told."""
        self._processes.close()


class _Copied:
    """A partition that this process copies: what its source was last seen to have, and when it was first seen
    to end where, as far as the copy is not there yet.
    """

    def __init__(self) -> None:
        self._start = self._end = 0
        self._ends: deque[tuple[int, float]] = deque()

    def note(self, at: SourceRange, position: int, now: float) -> None:
        self._start, self._end = at.start, at.end
        if not self._ends or self._ends[-1][0] < at.end:
            self._ends.append((at.end, now))
        while self._ends and self._ends[0][0] <= position:
            self._ends.popleft()
        if len(self._ends) > _ENDS_MAX:
            self._ends = deque([*self._ends][::2])

    def said(self, partition: int, now: float) -> SourcePartition:
        behind_s = round(now - self._ends[0][1], 3) if self._ends else 0.0
        return SourcePartition(partition, self._start, self._end, behind_s)
