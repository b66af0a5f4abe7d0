"""The processes that share the partitions of a mirror, without a word to one another.

Each reports itself in the store, and sees which others live. From their names all compute alike who copies a
partition: the process whose hash with it is the greatest (Thaler and Ravishankar, "Using name-based mappings
to increase hit rates", 1998), so one that comes or goes moves only what it takes or had. While they do not
agree yet, claims decide: a process that lost a partition looks again.
"""

import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby

import mmh3

from log_tables.clock import Clock
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.cluster.mirror_report import (
    MirrorReport,
    MirrorWatch,
    SourcePartition,
    delete_report,
    put_report,
    read_report,
)
from log_tables.errors import LakelogError
from log_tables.store.store import Store
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_FORGOTTEN_S = 3600.0
"""The report of a process that was silent for so long is removed."""

_ENDS_MAX = 64
"""So many ends of a partition are remembered, to say for how long it is behind."""


class Sharing:
    """This process among those of the mirror `mirror`. Of one thread; blocking."""

    def __init__(self, store: Store, clock: Clock, mirror: str) -> None:
        self._store, self._clock, self._mirror = store, clock, mirror
        self.process = clock.unique_id()
        self._watch = MirrorWatch(store, clock, mirror)
        self._number, self._host = 0, socket.gethostname()
        self._met: set[str] = set()
        self._gone: set[str] = set()
        self._silent: dict[str, float] = {}
        self._processes = [self.process]
        self._copied: dict[TopicPartition, _Copied] = {}
        self.offsets_behind = 0
        """How many offsets of groups are not here yet, for the next report."""

    def look(self) -> None:
        """See which processes live. Raises StoreUnavailable, and as `Store.put`."""
        if not self._number:
            self.report({}, {})  # the others make room
        self._watch.look()
        self._gone &= {*self._watch.living()} - {*self._watch.living(sure=True)}
        for process in self._watch.living():
            if process != self.process and process not in self._met:
                self._met.add(process)
                if self._is_gone(process):
                    self._gone.add(process)
        others = set(self._watch.living()) - self._gone - {self.process}
        living = sorted({self.process, *others})
        if living != self._processes:
            _log.info("the mirror %s is copied by %s processes", self._mirror, len(living))
        self._processes = living
        self._forget()

    def _is_gone(self, process: str) -> bool:
        """Whether it was killed on this machine: there its number is free."""
        found = read_report(self._store, self._mirror, process)
        if found is None:
            return True
        if found.host != self._host or found.pid <= 0:
            return False
        try:
            os.kill(found.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _forget(self) -> None:
        """Remove the reports of processes that are silent for long."""
        now, silent = self._clock.monotonic(), {*self._watch.silent(), *self._gone}
        self._silent = {process: self._silent.get(process, now) for process in silent}
        for process, since in self._silent.items():
            if now >= since + _FORGOTTEN_S:
                delete_report(self._store, self._mirror, process)

    def owns(self, place: TopicPartition) -> bool:
        """Whether this process is to copy the partition."""
        if len(self._processes) == 1:
            return True
        return self.process == max(self._processes, key=lambda each: (_weight(each, place), each))

    def owns_group(self, group: str) -> bool:
        """Whether this process is to bring the offsets of a group over. Of any thread."""
        return self.owns(TopicPartition(group, -1))

    def report(
        self, ranges: Mapping[TopicPartition, SourceRange], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Say which partitions it copies, with what their source has, and how far the copies are.

        Raises as `Store.put`.
        """
        now, before = self._clock.monotonic(), self._copied
        self._copied = {place: before.get(place) or _Copied() for place in ranges}
        for place, at in ranges.items():
            self._copied[place].note(at, positions[place], now)
        self._put("")

    def report_trouble(self, trouble: str) -> None:
        """Say why nothing is copied now. Raises as `Store.put`."""
        self._put(trouble)

    def _put(self, trouble: str) -> None:
        now, topics = self._clock.monotonic(), dict[str, Sequence[SourcePartition]]()
        for name, copied in groupby(self._copied.items(), lambda item: item[0].topic):
            topics[name] = [each.said(place.partition, now) for place, each in copied]
        self._number += 1
        said = MirrorReport(
            self.process, self._number, self._host, os.getpid(), topics, trouble, self.offsets_behind
        )
        put_report(self._store, self._mirror, said)

    def close(self) -> None:
        """Say that this process copies nothing any more, if the store can be told."""
        with contextlib.suppress(LakelogError):
            delete_report(self._store, self._mirror, self.process)


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


def _weight(process: str, place: TopicPartition) -> int:
    found: int = mmh3.hash64(f"{process}/{place.topic}/{place.partition}", signed=False)[0]
    return found
