"""The log of maintenance runs: its newest rows, a part at a time."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.run_log import JobRun, recent_runs, record_runs, runs_table
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store


@pytest.fixture
def cluster(clock: ManualClock) -> Cluster:
    return Cluster.open(open_store("memory://"), clock)


def record(cluster: Cluster, first: int, count: int) -> None:
    rows = [
        JobRun(run="r", started_ms=number, job="j", topic="t", partition=0)
        for number in range(first, first + count)
    ]
    record_runs(cluster, rows)


def test_a_root_without_runs_has_no_rows(cluster: Cluster) -> None:
    assert recent_runs(cluster, None, 10) == ([], 0)
    assert runs_table(cluster).num_rows == 0


def test_the_last_rows_are_given_and_those_before_an_offset(cluster: Cluster) -> None:
    for first in (0, 4, 8):
        record(cluster, first, 4)

    def found(before: int | None, count: int) -> list[int]:
        rows, log_start = recent_runs(cluster, before, count)
        assert log_start == 0
        assert [offset for offset, _ in rows] == [row.started_ms for _, row in rows]
        return [offset for offset, _ in rows]

    assert found(None, 3) == [9, 10, 11]
    assert found(9, 3) == [6, 7, 8]
    assert found(2, 100) == [0, 1]
    assert found(0, 5) == []
    assert found(10**15, 12) == [*range(12)]


def test_rows_that_were_deleted_are_not_asked_for(cluster: Cluster) -> None:
    record(cluster, 0, 4)
    record(cluster, 4, 4)
    cluster.topic("__maintenance").partition(0).truncate(5)
    rows, log_start = recent_runs(cluster, None, 100)
    assert ([offset for offset, _ in rows], log_start) == ([5, 6, 7], 5)
