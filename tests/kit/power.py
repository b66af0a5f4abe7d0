"""Processes on a disk that fails (tests/kit/disk.py): what was promised, and whether a power cut keeps it."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import OutcomeUnknown, Retriable
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.segments.segment_cache import SegmentCache
from log_tables.store.file import AtOnce
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from tests.kit.disk import Disk, Fails, Kept
from tests.kit.partitions import TABLE, held
from tests.kit.tiers import CLUSTER

HERE, AWAY = "here", "away"
LONG_AGO_S = 1_600_000_000


class Left:
    """The two roots after a power cut, as the next process finds them."""

    def __init__(self, world: "World", kept: Kept) -> None:
        self.here, self.away = world.disk.cut(HERE, kept), world.disk.cut(AWAY, kept)
        self._cache = world.cache

    def values(self) -> Mapping[int | None, bytes | None]:
        """The values of the partition TABLE, by offset."""
        return held(self.partition())

    def partition(self) -> Partition:
        """The partition TABLE, after a check that all its segments exist, and that the remote root has no
        more.
        """
        root = self.remote()
        partition = Partition(self.here, TABLE, ManualClock(), cache=self._cache, remote=lambda: root)
        for segment in partition.log_from(partition.log_start).segments:
            store = self.away if segment.remote else self.here
            assert store.head(f"{TABLE}/{segment.path}").size == segment.size
        if any(self.away.list("")):
            there = root.find(TABLE)
            assert there is None or there.snapshot.high_watermark <= partition.high_watermark
        return partition

    def remote(self) -> RemoteRoot:
        """The remote root after the power cut."""
        return RemoteRoot("memory://", CLUSTER, ManualClock(), lambda: self.away)

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster.open(self.here, ManualClock(), create=False)


Promise = Callable[[Left], object]
"""Raises when it is broken."""


class World:
    """Two roots on one disk, and what those who work on them were told.

    `watched`, the power may be cut after every fsync from the first failure on, else when somebody is told
    something.
    """

    def __init__(
        self,
        root: Path,
        fails: Fails,
        *,
        watched: bool = False,
        ordered: bool = False,
        fast: bool | None = None,
        at_once: AtOnce | None = None,
        seed: int = 0,
    ) -> None:
        """`ordered` is a disk that keeps order; processes rely on that if they are `fast`, or if it does.
        They draw the names of files by `seed`.
        """
        self.disk = Disk(root, HERE, AWAY, fails=fails, synced=self._synced, ordered=ordered)
        self._fast, self._at_once = ordered if fast is None else fast, at_once
        self.clock, self.chance, self.cache = ManualClock(seed=seed), ManualClock(seed=1), SegmentCache()
        self.watched = watched
        self.asked_to_delete = 0
        self._values: dict[int, bytes] = {}
        self._promises: dict[str, Promise] = {}
        self._checked = False

    def stores(self) -> tuple[Store, Store]:
        """The two roots as a new process opens them."""
        sync = self.disk.process()
        roots = (self.disk.root / name for name in (HERE, AWAY))
        here, away = (
            LocalStore(root, self.clock, sync=sync, ordered=self._fast, at_once=self._at_once)
            for root in roots
        )
        return here, away

    def holds(self, offset: int, value: bytes) -> None:
        """Somebody was told that the partition TABLE has `value` at `offset`."""
        news = offset not in self._values
        self._values[offset] = value
        self._told(news)

    def told(self, what: str, promise: Promise) -> None:
        """Somebody was told `what`: from now on it holds, whatever becomes of the power."""
        news = what not in self._promises
        self._promises[what] = promise
        self._told(news)

    def was_told(self, what: str) -> bool:
        return what in self._promises

    def _told(self, news: bool) -> None:
        if self.disk.failed and (news or not self._checked):
            self._checked = True
            self.check(nothing)

    def _synced(self) -> None:
        if self.watched and self.disk.failed:
            self.check(nothing)

    def check(self, *cuts: Kept) -> None:
        """A power cut now breaks no promise."""
        wanted = {at: value for at, value in self._values.items() if at >= self.asked_to_delete}
        promises = [*self._promises.values()]  # before the cut: other threads may be told something meanwhile
        for kept in cuts:
            left = Left(self, kept)
            if self._values:
                found = left.values()
                assert {at: found.get(at) for at in wanted} == wanted
            for promise in promises:
                promise(left)

    def something(self, _: str) -> bool:
        """A power cut keeps random ones of the files that were not fsynced."""
        return self.chance.random() < 0.5

    def age(self) -> None:
        """Make all existing files years old."""
        for directory, _, names in os.walk(self.disk.root):
            for name in names:
                os.utime(os.path.join(directory, name), (LONG_AGO_S, LONG_AGO_S))


def nothing(_: str) -> bool:
    """Nothing is left of what was not fsynced."""
    return False


def everything(_: str) -> bool:
    """A power cut keeps all visible files."""
    return True


class StillFailing(Exception):
    """The fault persists, so going on is of no use."""


def again(step: Callable[[], object]) -> None:
    """Do `step` until that is acknowledged; a disk that fails for good is given up."""
    for _ in range(3):
        with suppress(Retriable, OutcomeUnknown):
            step()
            return
    raise StillFailing
