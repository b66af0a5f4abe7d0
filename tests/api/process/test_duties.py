"""The duties of a gateway: checkpoints, log cleanup, sizes, and the handling of their failures."""

import os
import threading
from pathlib import Path

import pytest

from api.metrics import Metrics, TableSize
from api.process.duties import Duty, checkpoint, clean, table_sizes
from ingest.periodic_task import FailureLog
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import checkpoint_version, commit_version, log_directory
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, LOG_RETENTION_MS, TOMBSTONE_RETENTION_MS
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore, FaultyStore
from tests.kit.partitions import append


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.open(open_store(tmp_path), SystemClock(), "http://first")


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    """A partition, led by `cluster`, in which a checkpoint is due."""
    found = create_topic(cluster, "t").partition(0)
    found.claim("http://first")
    for number in range(CHECKPOINT_INTERVAL_COMMITS):
        found.append([AppendRequest(input_batch([Record(b"%d" % number)], number))])
    return found


def log_versions(cluster: Cluster, partition: Partition) -> tuple[list[int], list[int]]:
    """The versions of the commits and of the checkpoints in a partition's log."""
    paths = [item.path for item in cluster.store.list(f"{log_directory(partition.directory)}/")]
    commits = [version for path in paths if (version := commit_version(path)) is not None]
    checkpoints = [version for path in paths if (version := checkpoint_version(path)) is not None]
    return commits, checkpoints


def test_a_checkpoint_that_is_due_is_written_once(cluster: Cluster, partition: Partition) -> None:
    checkpoint(cluster)
    assert log_versions(cluster, partition)[1] == [partition.snapshot.version]
    partition.append([AppendRequest(input_batch([Record(b"one more")], 0))])
    checkpoint(cluster)
    assert log_versions(cluster, partition)[1] == [partition.snapshot.version - 1]


def test_what_another_gateway_leads_is_left_to_it(cluster: Cluster, partition: Partition) -> None:
    other = Cluster.open(cluster.store, cluster.clock, "http://other")
    other.topic("t").partition(0).claim("http://other")
    partition.refresh()
    checkpoint(cluster)
    assert log_versions(cluster, partition)[1] == []


def test_old_commits_are_cleaned_when_a_checkpoint_has_them(
    cluster: Cluster, partition: Partition, tmp_path: Path
) -> None:
    checkpoint(cluster)
    version = partition.snapshot.version
    clean(cluster)
    assert log_versions(cluster, partition)[0] == list(range(version + 1))
    long_ago = (SystemClock().now_ms() - 2 * LOG_RETENTION_MS) / 1_000
    for file in (tmp_path / log_directory(partition.directory)).iterdir():
        os.utime(file, (long_ago, long_ago))
    clean(cluster)
    assert log_versions(cluster, partition)[0] == [version]


def test_the_log_of_an_idle_table_is_listed_until_all_of_it_is_old(clock: ManualClock) -> None:
    store = FaultyStore(ClockedStore(open_store("memory://"), clock))
    cluster = Cluster.open(store, clock)
    partition = cluster.claim(create_topic(cluster, "t"), 0)

    def lists() -> int:
        before = len(store.calls)
        clean(cluster)
        at = log_directory(partition.directory)
        return sum(call.operation == "list" and at in call.path for call in store.calls[before:])

    assert (lists(), lists()) == (1, 1)
    clock.advance(LOG_RETENTION_MS + 1)
    assert (lists(), lists()) == (1, 0)
    append(partition, b"v")
    assert lists() == 1


def test_what_is_old_is_forgotten_of_what_another_gateway_leads(tmp_path: Path, clock: ManualClock) -> None:
    follower = Cluster.open(open_store(tmp_path), clock, "http://first")
    partition = create_topic(follower, "t").partition(0)
    other = Cluster.open(follower.store, clock, "http://other")
    leader = other.claim(other.topic("t"), 0)
    append(leader, b"0", producer=ProducerStamp(7, 0, 0))
    append(leader, b"1")
    leader.truncate(1)
    partition.refresh()
    assert (partition.snapshot.producer(7) is None, len(partition.snapshot.tombstones)) == (False, 1)
    clock.advance(max(partition.config.producer_expiration_ms, TOMBSTONE_RETENTION_MS) + 1)
    clean(follower)
    assert (partition.snapshot.producer(7), len(partition.snapshot.tombstones)) == (None, 0)
    assert partition.high_watermark == 2


def test_sizes_are_those_of_the_open_partitions(cluster: Cluster, partition: Partition) -> None:
    create_topic(cluster, "not-opened")
    (size,) = table_sizes(cluster)
    bytes_on_disk = sum(
        item.size
        for item in cluster.store.list(f"{partition.directory}/")
        if item.path.endswith(".parquet") and "_delta_log" not in item.path
    )
    assert size == TableSize("t", CHECKPOINT_INTERVAL_COMMITS, bytes_on_disk, True)


def test_a_duty_that_fails_is_logged_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    metrics, done = Metrics(), threading.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("the disk is on fire")
        done.set()

    duty = Duty("tidy", 0.0, work, FailureLog(metrics.duty_failed))
    duty.start()
    assert done.wait(30)
    duty.stop()
    duty.join(30)
    assert 'lakelog_duty_failures_total{duty="tidy"} 1.0' in metrics.render().decode()
    assert "the disk is on fire" in caplog.text
