"""Clocks a year apart: of a root, and of its standby with its store; and clocks that leap meanwhile."""

import threading

from api.process.standby_metrics import StandbyMetrics
from api.standby_reports import StandbyReports
from jobs.replica.replication import Replication
from jobs.replica.replicator import Figures
from log_tables.clock import ManualClock
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore
from tests.kit.standby import YEAR_MS, Apart, CheckedStandby, apart, follow, logs, newest_versions
from tests.kit.standby_workload import Workload


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


class Leaping(Apart):
    """A clock whose time of day is set a year forward and back, at each look at it."""

    def now_ms(self) -> int:
        self._apart_ms = -self._apart_ms
        return super().now_ms()


def test_the_lag_that_is_shown_is_small_and_not_negative_whatever_clocks_say() -> None:
    """The process, both stores and the gateway that shows it have a time of day each."""
    world, stopping = Workload(), threading.Event()
    clock = Leaping(world.clock, YEAR_MS)
    target = ClockedStore(open_store("memory://standby"), clock)
    at_gateway = ManualClock(world.clock.now_ms() - YEAR_MS)
    reports, shown = StandbyReports(world.store, at_gateway), list[float]()

    def look(now: Figures) -> None:
        shown.append(now.lag_s)
        world.produce()
        world.wait(1000)
        at_gateway.advance(1000)
        at_gateway.jump(YEAR_MS if len(shown) % 2 else -YEAR_MS)
        reports.follow()
        for family in StandbyMetrics(reports.seen).collect():
            if family.name == "lakelog_standby_lag_seconds" and family.samples:
                shown.extend(sample.value for sample in family.samples)
                stopping.set()

    Replication(world.store, target, clock).run(stopping, look)
    assert len(shown) > 2
    assert 0 <= min(shown) <= max(shown) < 3600
