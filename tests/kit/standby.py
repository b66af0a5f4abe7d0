"""Standbys that follow a root in this process, and what must hold of one at each moment."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from jobs.replica.replicator import Figures, Replicator
from log_tables.clock import Clock, ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import read_mark
from log_tables.errors import LakelogError, TopicDeleted
from log_tables.layout import (
    CONSUMER_OFFSETS,
    METADATA_DIRECTORY,
    TOPICS,
    commit_version,
    log_directory,
    partition_directory,
)
from log_tables.root.fsck import check
from log_tables.root.group_replay import GroupReplay, applied
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table
from log_tables.topic_partition import TopicIdPartition
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.support import WAIT_S
from tests.kit.unfolding import QuickClock

T = TypeVar("T")

YEAR_MS = 365 * 24 * 60 * 60 * 1000
apart = pytest.mark.parametrize("apart_ms", [YEAR_MS, -YEAR_MS], ids=["ahead", "behind"])
"""Lets a test run with a clock that is a year ahead, and with one that is a year behind."""


class Apart(QuickClock):
    """A clock of which the time of day is that of another one, and `apart_ms` beside it."""

    def __init__(self, other: ManualClock, apart_ms: int) -> None:
        self._other, self._apart_ms = other, apart_ms

    def now_ms(self) -> int:
        return self._other.now_ms() + self._apart_ms

    def now_us(self) -> int:
        return self.now_ms() * 1_000


def follow(
    source: Store,
    target: Store,
    until: Callable[[], bool] | None = None,
    clock: Clock | None = None,
    with_credentials: bool = False,
) -> None:
    """Let `target` follow `source` until it is level, and `until` holds; without it until all is there that
    is there now.
    """
    goal = newest_versions(source)
    stopping = threading.Event()

    def look(_: Figures) -> None:
        if until() if until is not None else has(target, goal):
            stopping.set()

    with _bounded(stopping) as timed_out:
        Replicator(source, target, clock or SystemClock(), with_credentials).run(stopping, look)
    assert not timed_out.is_set(), f"it is not level: {newest_versions(target)}, wanted {goal}"


@contextmanager
def _bounded(stopping: threading.Event) -> Iterator[threading.Event]:
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        stopping.set()

    timer = threading.Timer(WAIT_S, end)
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()


def newest_versions(store: Store) -> dict[str, int]:
    """The newest version of every table below `topics/`."""
    found: dict[str, int] = {}
    for item in store.list(f"{TOPICS}/"):
        version = commit_version(item.path)
        if version is not None:
            directory = item.path.removesuffix(f"/{item.path.rsplit('/', 1)[-1]}")
            table = directory.removesuffix("/_delta_log")
            found[table] = max(version, found.get(table, 0))
    return found


def has(target: Store, goal: dict[str, int]) -> bool:
    """Whether each of these tables has its version."""
    there = newest_versions(target)
    return all(there.get(directory, -1) >= version for directory, version in goal.items())


def logs(store: Store) -> dict[str, bytes]:
    """The commits of every table, by path."""
    return {
        item.path: store.get(item.path)
        for item in store.list(f"{TOPICS}/")
        if commit_version(item.path) is not None
    }


class CheckedStandby(StoreWrapper):
    """A standby of which, after each commit that is put while it is level, `look` finds the problems."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.checked = 0

    def look(self) -> Iterator[str]:
        """Find problems by fsck. Called by one thread at a time."""
        yield from check(self.inner).problems

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation != "put_if_absent" or commit_version(path) is None:
            return perform()
        with self._lock:
            made = perform()
            mark = read_mark(self.inner)
            if mark is not None and mark.is_level:
                self.checked += 1
                self.problems += [f"after {path}: {problem}" for problem in self.look()]
            return made


class Watched(CheckedStandby):
    """A standby that is checked to be a root that the original could have been."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._looks: _Looks | None = None

    def look(self) -> Iterator[str]:
        """An error of a look is a problem, and none of whoever puts the commit."""
        try:
            self._looks = self._looks or _Looks(self.inner)
            yield from self._looks.problems()
        except LakelogError as error:
            yield str(error)


class _Looks:
    """The tables and groups of a root, which are read on with each look."""

    def __init__(self, store: Store) -> None:
        self._store, self._cluster = store, Cluster.open(store, SystemClock(), create=False)
        self._groups, self._read = GroupReplay(), dict[str, Table]()
        self._folds = dict[str, TopicTable]()

    def problems(self) -> Iterator[str]:
        self._cluster.refresh(wait=True)
        tables = {
            TopicIdPartition(topic.name, topic.topic_id, number): self._snapshot(
                partition_directory(topic.directory, number)
            )
            for topic in self._cluster.topics(include_internal=True)
            for number in range(topic.partition_count)
        }
        for at, table in tables.items():
            if at.topic == CONSUMER_OFFSETS:
                topic = self._cluster.topic(at.topic)
                self._groups.follow(self._store, partition_directory(topic.directory, at.partition), table)
        groups = self._groups
        for key, committed in groups.offsets.items():
            read = tables.get(TopicIdPartition(key.topic, committed.topic_id, key.partition))
            if read is not None and committed.offset > read.high_watermark:
                yield f"group {key.group} is at {committed.offset} of {key.topic}, which ends before"
        if groups.behind():
            yield f"groups have offsets of transactions that have not ended: {groups.behind()}"
        for topic in self._cluster.topics():
            folding = self._folds.setdefault(
                topic.directory, TopicTable(self._store, topic.directory, SystemClock())
            )
            with suppress(TopicDeleted):
                folding.refresh(wait=True)
            fold = folding.snapshot
            ends = [fold.deletions]
            for number in range(topic.partition_count):
                read = tables[TopicIdPartition(topic.name, topic.topic_id, number)]
                if fold.noted(number) > read.version:
                    yield f"{topic.directory} is ahead of its partition {number}"
                ends.append(read.deletions)
            if max(ends) > 2 * topic.revived:
                yield f"{topic.directory} has ended, and its topic is there"
        there = {item.path for item in self._store.list("staging/")}
        yield from (f"{path} is missing" for path in groups.staged().keys() - there)
        yield from _unapplied(tables, groups)

    def _snapshot(self, directory: str) -> Snapshot:
        if directory not in self._read:
            self._read[directory] = Table(self._store, directory, SystemClock())
        with suppress(TopicDeleted):
            self._read[directory].refresh(wait=True)
        return self._read[directory].snapshot


def _unapplied(tables: Mapping[TopicIdPartition, Snapshot], groups: GroupReplay) -> Iterator[str]:
    """Records of transactions that no group has decided; and transactions that were struck off, and whose
    records are not in a partition that has older ones.
    """
    waiting = {(intent.producer_id, intent.epoch) for intent in groups.pending.values()}
    for at, table in tables.items():
        for producer, epoch in applied(table.txns.lasting()):
            newest = groups.epochs.get(producer, epoch)
            if epoch > newest:
                yield f"{at} has transaction {epoch} of {producer}, which is not decided"
            for missed in range(epoch + 1, newest + 1):
                if (producer, missed) not in waiting:
                    yield f"{at} lacks transaction {missed} of {producer}"


def copied(store: Store) -> Store:
    """All objects of `store` in one of their own."""
    made = open_store("memory://copied")
    for item in [*store.list("")]:
        made.put(item.path, store.get(item.path))
    return made


def files(store: Store) -> dict[str, int]:
    """The sizes of all files of topics but those of maintenance and logs, by path."""
    return {
        item.path: item.size
        for item in store.list(f"{TOPICS}/")
        if item.path.endswith(".parquet") and log_directory("") not in item.path
    }


def emptied(store: Store, path: Path) -> Path:
    """Move the root of `store` away, as if its mount were lost, and leave an empty directory; returns where
    it is.
    """
    assert store.get(f"{log_directory(METADATA_DIRECTORY)}/{0:020}.json")
    away = path.with_name(f"{path.name}-away")
    path.rename(away)
    path.mkdir()
    return away
