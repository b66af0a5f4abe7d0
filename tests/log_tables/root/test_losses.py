"""Files that are lost or foreign: what is left is served, nothing is begun anew in its place."""

import shutil
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, ForeignCommit, TopicDeleted
from log_tables.layout import commit_path, last_checkpoint_path, log_directory
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root import fsck
from log_tables.store.store import open_store

CLAIMED = 2
"""The version of a first append: after the table's creation and the claim."""


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    return Cluster.open(open_store(str(tmp_path), clock=clock), clock, "http://here")


def appended(cluster: Cluster, count: int, partitions: int = 1) -> Partition:
    """Partition 0 of a new topic `t`, with `count` records of a commit each."""
    partition = create_topic(cluster, "t", partitions).partition(0)
    partition.claim("http://here")
    for _ in range(count):
        partition.append([AppendRequest(input_batch([Record(b"1")], 0))])
    return partition


def again(cluster: Cluster) -> Cluster:
    """The root as another process opens it."""
    return Cluster.open(cluster.store, cluster.clock, "http://there")


def foreign(cluster: Cluster, partition: Partition) -> None:
    """A commit of another tool."""
    path = commit_path(partition.directory, partition.snapshot.version + 1)
    add = b'{"add":{"path":"x","size":1,"modificationTime":1,"dataChange":true,"partitionValues":{}}}'
    cluster.store.put(path, b'{"commitInfo":{"operation":"WRITE"}}\n' + add)


def test_a_topic_with_a_damaged_partition_can_be_deleted_and_fences_the_others(cluster: Cluster) -> None:
    foreign(cluster, appended(cluster, 1, partitions=2))
    elsewhere = again(cluster)
    other = elsewhere.claim(elsewhere.topic("t"), 1)
    with pytest.raises(ForeignCommit):
        cluster.topic("t").partition(0).refresh()
    delete_topic(cluster, "t")
    assert cluster.topics() == []
    with pytest.raises(TopicDeleted):
        other.refresh()
    assert not other.leading


def test_a_root_that_lost_its_metadata_log_is_not_begun_anew(cluster: Cluster, tmp_path: Path) -> None:
    appended(cluster, 1)
    shutil.rmtree(tmp_path / log_directory(cluster.metadata_log.partition.directory))
    for create in (True, False):
        with pytest.raises(CorruptLog, match="there are topics, but"):
            Cluster.open(cluster.store, cluster.clock, create=create)
    assert not (tmp_path / log_directory(cluster.metadata_log.partition.directory)).exists()
    assert fsck.check(cluster.store).problems


def test_a_topic_that_lost_its_table_says_so(cluster: Cluster, tmp_path: Path) -> None:
    directory = appended(cluster, 1).directory
    shutil.rmtree(tmp_path / directory)
    with pytest.raises(CorruptLog, match=f"names the table {directory}, which is missing"):
        again(cluster).topic("t").partition(0)


def test_nothing_takes_the_place_of_a_lost_commit(cluster: Cluster) -> None:
    directory = appended(cluster, 5).directory
    cluster.store.delete(commit_path(directory, CLAIMED + 2))
    with pytest.raises(CorruptLog, match=r"version 4 of .* is missing, though version 5 is there"):
        again(cluster).topic("t").partition(0)


@pytest.mark.parametrize(("lost", "following"), [(0, 1), (CLAIMED, 3), (CLAIMED + 2, 5)])
def test_the_check_names_a_lost_commit(cluster: Cluster, lost: int, following: int) -> None:
    directory = appended(cluster, 5).directory
    cluster.store.delete(commit_path(directory, lost))
    (problem,) = fsck.check(cluster.store).problems
    assert f"version {lost}" in problem
    assert f"is missing, though version {following} is there" in problem


def test_the_check_names_a_commit_that_was_lost_after_a_checkpoint(cluster: Cluster) -> None:
    partition = appended(cluster, 5)
    partition.checkpoint()
    for _ in range(5):
        partition.append([AppendRequest(input_batch([Record(b"1")], 0))])
    for version in (0, CLAIMED + 6):
        cluster.store.delete(commit_path(partition.directory, version))
    (problem,) = fsck.check(cluster.store).problems
    assert "version 8 is missing, though version 9 is there" in problem


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"\xff",
        b'{"version":-1,"size":1}',
        b'{"version":1' + b"0" * 300 + b',"size":1}',
        b"[" * 100_000,
        b'{"version":1,"size":1,"x":' + b"[" * 100_000,
    ],
    ids=lambda hint: repr(hint[:16]),
)
def test_a_spoilt_hint_is_passed_over(cluster: Cluster, hint: bytes) -> None:
    partition = appended(cluster, 3)
    partition.checkpoint()
    cluster.store.put(last_checkpoint_path(partition.directory), hint)
    assert again(cluster).topic("t").partition(0).high_watermark == 3
