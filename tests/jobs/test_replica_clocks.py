"""Clocks a year apart: of a root, and of its standby with its store."""

import pytest

from log_tables.clock import ManualClock
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore
from tests.kit.standby import CheckedStandby, follow, logs, newest_versions
from tests.kit.standby_workload import HOUR_MS, Workload
from tests.kit.unfolding import QuickClock

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


@apart
def test_a_standby_is_whole_at_each_step(apart_ms: int) -> None:
    world = Workload()
    clock = Apart(world.clock, apart_ms)
    target = CheckedStandby(ClockedStore(open_store("memory://standby"), clock))
    follow(world.store, target, clock=clock)
    world.work(15)
    follow(world.store, target, clock=clock)
    assert target.problems == []
    assert target.checked > 30
    assert newest_versions(target) == newest_versions(world.store)
    original = logs(world.store)
    assert all(original[path] == data for path, data in logs(target).items())
