"""Clocks a year apart: of a root and its standby, of their stores, and of who promotes it."""

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.standby import read_mark
from log_tables.layout import commit_version
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.testing import ClockedStore
from tests.kit.standby import follow, logs, newest_versions
from tests.kit.standby_workload import HOUR_MS, Workload
from tests.kit.unfolding import QuickClock

T = TypeVar("T")
YEAR_MS = 365 * 24 * HOUR_MS
apart = pytest.mark.parametrize("apart_ms", [YEAR_MS, -YEAR_MS], ids=["ahead", "behind"])


class Apart(QuickClock):
    """A clock of which the time of day is that of another one, and `apart_ms` beside it."""

    def __init__(self, other: ManualClock, apart_ms: int) -> None:
        self._other, self._apart_ms = other, apart_ms

    def now_ms(self) -> int:
        return self._other.now_ms() + self._apart_ms

    def now_us(self) -> int:
        return self.now_ms() * 1_000


class Checked(StoreWrapper):
    """A standby that is checked whole after each commit while it is level, on the clock of its store."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.problems = list[str]()
        self.checked = 0

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation != "put_if_absent" or commit_version(path) is None:
            return perform()
        with self._lock:
            made = perform()
            mark = read_mark(self.inner)
            if mark is not None and mark.is_level:
                self.checked += 1
                self.problems += [f"after {path}: {each}" for each in check(self.inner).problems]
            return made


@apart
def test_a_standby_is_whole_at_each_step(apart_ms: int) -> None:
    world = Workload()
    clock = Apart(world.clock, apart_ms)
    target = Checked(ClockedStore(open_store("memory://standby"), clock))
    follow(world.store, target, clock=clock)
    world.work(15)
    follow(world.store, target, clock=clock)
    assert target.problems == []
    assert target.checked > 30
    assert newest_versions(target) == newest_versions(world.store)
    original = logs(world.store)
    assert all(original[path] == data for path, data in logs(target).items())
