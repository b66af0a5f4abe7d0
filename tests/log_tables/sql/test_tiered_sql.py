"""SQL joins the two tiers of a topic: every record once, wherever it is and whoever is moving it."""

import shutil
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import StoreUnavailable
from log_tables.sql.query import query
from log_tables.table.table import Table
from log_tables.testing import Crash, Fault, FaultyStore, crash_before
from tests.kit.partitions import append_each
from tests.kit.tiers import move, move_topic, tiered_cluster

VALUES = [f'{{"n": {number}}}'.encode() for number in range(6)]


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A cluster with a tiered topic `t` of two partitions, each with six segments of one record."""
    made = tiered_cluster(tmp_path, clock)
    topic = create_topic(made, "t", 2, {"remote.storage.enable": "true"})
    for index in range(2):
        append_each(made.claim(topic, index), VALUES)
    return made


def rows(cluster: Cluster, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(cluster, sql).to_pylist()]


def expected(start: int = 0) -> list[tuple[object, ...]]:
    return [(index, offset, VALUES[offset]) for index in range(2) for offset in range(start, 6)]


ALL = "select partition, offset, value from t order by partition, offset"


def test_sql_reads_across_the_border(cluster: Cluster) -> None:
    for counts in ([0, 0], [2, 0], [0, 5], [2, 0], [1, 0]):
        move_topic(cluster, "t", counts)
        assert rows(cluster, ALL) == expected()
    assert rows(cluster, "select count(*), sum(n) from t_json") == [(12, 30)]
    assert rows(cluster, "select value from t where partition = 1 and offset in (0, 5) order by offset") == [
        (VALUES[0],),
        (VALUES[5],),
    ]


def test_sql_begins_at_the_log_start_in_either_tier(cluster: Cluster) -> None:
    move_topic(cluster, "t", [4, 4])
    for start in (1, 4, 5):
        for partition in cluster.topic("t").partitions():
            partition.truncate(start)
        assert rows(cluster, ALL) == expected(start)


def test_sql_sees_a_half_done_move_once(cluster: Cluster, tmp_path: Path, clock: ManualClock) -> None:
    partition, root = cluster.topic("t").partition(0), cluster.remote
    assert root is not None
    dying = FaultyStore(cluster.store, [Fault(1, crash_before)])
    with pytest.raises(Crash):
        move(Table(dying, partition.directory, clock), root, 3)
    assert root.table(partition.directory).snapshot.high_watermark == 3
    assert rows(cluster, ALL) == expected()


def test_sql_without_the_remote_root_says_so(cluster: Cluster, tmp_path: Path) -> None:
    move_topic(cluster, "t", [1, 1])
    shutil.rmtree(tmp_path / "away" / "topics")
    with pytest.raises(StoreUnavailable) as raised:
        query(cluster, ALL)
    assert str(tmp_path) not in raised.value.message
