"""A cluster has one remote root: who may name it, what topics need of it, and what goes with a topic."""

import os
import shutil
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Conflict, InvalidArgument, InvalidConfig, StoreUnavailable
from log_tables.layout import PROPERTY_CLUSTER, TOPICS, TXN_TIERED
from log_tables.limits import LOG_RETENTION_MS
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.table import create_table
from log_tables.testing import Crash, Fault, FaultyStore, crash_after
from log_tables.topic_table.topic_table import TopicTable, create_topic_table
from tests.kit.failures import before
from tests.kit.killed import killed
from tests.kit.partitions import append_each, values
from tests.kit.tiers import move_topic, tiered_cluster

TIERED = {"remote.storage.enable": "true", "topic.delete.delay.ms": "0"}
VALUES = [b"0", b"1", b"2", b"3"]


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A cluster with a tiered topic `t` of four segments, two of them in the remote root."""
    made = tiered_cluster(tmp_path, clock)
    partition = made.claim(create_topic(made, "t", configs=TIERED), 0)
    append_each(partition, VALUES)
    move_topic(made, "t", [2])
    return made


def opened(cluster: Cluster) -> Cluster:
    """The cluster of this root, opened anew as in another process."""
    return Cluster.open(open_store(cluster.store.url), cluster.clock, create=False)


def files(root: Path, directory: str) -> list[str]:
    return [item.path for item in open_store(root).list(f"{directory}/")]


def test_every_process_finds_the_remote_root_in_the_metadata_log(cluster: Cluster, tmp_path: Path) -> None:
    other = opened(cluster)
    assert other.remote_root == (tmp_path / "away").as_uri()
    assert values(other.topic("t").partition(0)) == VALUES
    assert other.topic("t").partition(0).snapshot.tiered == 2


def test_a_relative_directory_is_kept_absolute(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = Cluster.open(open_store("here"), clock)
    assert [cluster.remote_root, cluster.remote] == [None, None]
    set_remote_root(cluster, "away")
    assert cluster.remote_root == (tmp_path / "away").as_uri()
    version = cluster.metadata_log.partition.snapshot.version
    set_remote_root(cluster, tmp_path / "away")
    assert cluster.metadata_log.partition.snapshot.version == version


def test_the_root_is_not_its_own_remote_root(tmp_path: Path, clock: ManualClock) -> None:
    cluster = Cluster.open(open_store(tmp_path), clock)
    with pytest.raises(InvalidArgument, match="the remote root is the root itself"):
        set_remote_root(cluster, tmp_path)


def test_neither_root_lies_in_the_other(tmp_path: Path, clock: ManualClock) -> None:
    """A sweep deletes all below `topics/` that no topic names: a remote root there would be lost."""
    cluster = Cluster.open(open_store(tmp_path / "here"), clock)
    (tmp_path / "link").symlink_to(tmp_path / "here")
    for inside in ("here/topics", "here/topics/t", "here/../here", "link", "link/away", "."):
        with pytest.raises(InvalidArgument, match="or one of them lies inside the other; name another place"):
            set_remote_root(cluster, tmp_path / inside)
    assert cluster.remote_root is None
    set_remote_root(cluster, tmp_path / "here-too")


def test_the_remote_root_changes_only_to_where_everything_is(cluster: Cluster, tmp_path: Path) -> None:
    before = opened(cluster)
    assert values(before.topic("t").partition(0)) == VALUES
    with pytest.raises(
        InvalidArgument,
        match="does not hold the records that were moved: the remote root has no table topics/t/partition=0",
    ):
        set_remote_root(cluster, tmp_path / "further")
    assert cluster.remote_root == (tmp_path / "away").as_uri()
    shutil.copytree(tmp_path / "away", tmp_path / "further", dirs_exist_ok=True)
    set_remote_root(cluster, tmp_path / "further")
    shutil.rmtree(tmp_path / "away")
    before.refresh()
    for process in (cluster, before, opened(cluster)):
        assert values(process.topic("t").partition(0)) == VALUES


def test_a_root_that_lacks_the_newest_move_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "away", tmp_path / "further")
    move_topic(cluster, "t", [1])
    with pytest.raises(InvalidArgument, match="ends at offset 2, and the local one begins at 3"):
        set_remote_root(cluster, tmp_path / "further")


def test_moving_needs_a_remote_root(tmp_path: Path, clock: ManualClock) -> None:
    cluster = Cluster.open(open_store(tmp_path / "here"), clock)
    with pytest.raises(InvalidConfig, match="lakelog maintain --remote-root"):
        create_topic(cluster, "t", configs=TIERED)
    create_topic(cluster, "t")
    with pytest.raises(InvalidConfig, match="needs a remote root, and none is set"):
        alter_topic(cluster, "t", TIERED)
    set_remote_root(opened(cluster), tmp_path / "away")  # by another process
    assert alter_topic(cluster, "t", TIERED).config.remote_storage


def test_a_topic_that_is_to_move_has_its_remote_tables_at_once(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    create_topic(cluster, "a", 2, TIERED)
    add_partitions(cluster, "a", 3)
    create_topic(cluster, "b")
    assert open_store(tmp_path / "away").list_dirs(f"{TOPICS}/") == ["topics/a"]
    alter_topic(cluster, "b", TIERED)
    assert cluster.remote is not None
    for directory in (
        "topics/a/partition=0",
        "topics/a/partition=1",
        "topics/a/partition=2",
        "topics/b/partition=0",
    ):
        assert cluster.remote.table(directory).snapshot.cluster == cluster.cluster_id


def test_a_topic_with_records_in_the_remote_root_is_not_compacted_by_key(cluster: Cluster) -> None:
    with pytest.raises(InvalidConfig, match="offsets up to 1 of topics/t/partition=0 are in the remote root"):
        alter_topic(cluster, "t", {"cleanup.policy": "compact", "remote.storage.enable": None})
    assert not alter_topic(cluster, "t", {"remote.storage.enable": None}).config.remote_storage
    cluster.topic("t").partition(0).truncate(2)
    assert alter_topic(cluster, "t", {"cleanup.policy": "compact"}).config.compacted


def test_moving_may_be_ended_and_history_is_still_read(cluster: Cluster) -> None:
    alter_topic(cluster, "t", {"remote.storage.enable": None})
    assert values(opened(cluster).topic("t").partition(0)) == VALUES


def age(directory: Path) -> None:
    """Make the files of `directory` look an hour older to the store."""
    for path in directory.rglob("*.*"):
        then = path.stat().st_mtime - LOG_RETENTION_MS / 1000
        os.utime(path, (then, then))


def test_the_remote_files_of_a_deleted_topic_go_with_it(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    delete_topic(cluster, "t")
    assert sweep(cluster) == []
    assert files(tmp_path / "away", "topics/t")
    clock.advance(60_000)
    assert sweep(cluster) == []
    assert files(tmp_path / "away", "topics/t") == []
    clock.advance(LOG_RETENTION_MS)
    assert sweep(cluster) == []
    age(tmp_path / "here" / "topics" / "t")
    assert sweep(cluster) == ["topics/t"]
    again = cluster.claim(create_topic(cluster, "t", configs=TIERED), 0)
    append_each(again, VALUES)
    move_topic(cluster, "t", [3])
    assert values(again) == VALUES
    assert files(tmp_path / "away", "topics/t") == []
    assert files(tmp_path / "away", "topics/t~2")


def test_the_table_over_a_topic_is_empty_before_its_remote_files_go(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """Whenever the sweep dies: a program that reads it then finds nothing, and misses no file."""
    delete_topic(cluster, "t")
    clock.advance(60_000)
    away = tmp_path / "away"
    while files(away, "topics/t"):
        with killed(away, 1, crash_after), pytest.raises(Crash):
            sweep(opened(cluster))
        found = files(away, "topics/t")
        if f"topics/t/_delta_log/{0:020}.json" in found:
            table = TopicTable(open_store(away), "topics/t", clock).snapshot
            assert all(f"topics/t/partition=0/{segment.path}" in found for segment in table.of(0))


def test_a_sweep_takes_a_table_over_a_topic_to_which_another_tool_has_committed(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """Unless it was another cluster's before that."""
    away = open_store(tmp_path / "away")
    create_topic(cluster, "u", configs={"topic.delete.delay.ms": "0"})
    create_topic_table(away, "topics/u", clock, {PROPERTY_CLUSTER: "another"})
    for topic, version in (("t", 2), ("u", 1)):
        foreign = Commit(CommitInfo(operation="WRITE", engineInfo="another tool"), (Txn("theirs", 1),))
        assert put_commit(away, f"topics/{topic}", version, foreign, clock) is None
        delete_topic(cluster, topic)
    clock.advance(60_000)
    sweep(cluster)
    assert files(tmp_path / "away", "topics/t") == []
    assert len(files(tmp_path / "away", "topics/u")) == 2


def test_a_sweep_leaves_the_tables_of_another_cluster(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    create_table(open_store(tmp_path / "away"), "topics/t/partition=1", clock, {PROPERTY_CLUSTER: "another"})
    delete_topic(cluster, "t")
    clock.advance(60_000)
    sweep(cluster)
    assert files(tmp_path / "away", "topics/t") == [f"topics/t/partition=1/_delta_log/{0:020}.json"]


def test_a_remote_root_that_is_away_keeps_the_deleted_topic(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    delete_topic(cluster, "t")
    clock.advance(60_000 + LOG_RETENTION_MS)
    (tmp_path / "away").rename(tmp_path / "gone")
    late = opened(cluster)
    with pytest.raises(StoreUnavailable, match="the remote root is missing"):
        sweep(late)
    assert files(tmp_path / "here", "topics/t")
    (tmp_path / "gone").rename(tmp_path / "away")
    age(tmp_path / "here" / "topics" / "t")
    assert sweep(late) == ["topics/t"]
    assert files(tmp_path / "away", "topics/t") == files(tmp_path / "here", "topics/t") == []


def test_a_tiered_root_is_sound(cluster: Cluster, tmp_path: Path) -> None:
    report = check(cluster.store)
    assert report.problems == []
    assert [(part.directory, part.records) for part in report.partitions] == [
        ("topics/__cluster_metadata/partition=0", 1),
        ("topics/t/partition=0", 2),
        ("topics/t/partition=0 (remote)", 2),
    ]
    cluster.topic("t").partition(0).truncate(1)
    assert check(cluster.store).problems == []
    cluster.topic("t").partition(0).truncate(3)
    shutil.rmtree(tmp_path / "away" / "topics")
    assert check(cluster.store).problems == []  # nothing of what was there is the log's any more


def test_what_is_missing_in_the_remote_root_is_found(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.remote is not None
    remote, away = cluster.remote.table("topics/t/partition=0"), tmp_path / "away" / "topics/t/partition=0"
    segment = away / remote.snapshot.segments[1].path
    data = segment.read_bytes()
    segment.unlink()
    (of_topic, problem) = check(cluster.store).problems
    assert of_topic == (
        f"the table over topics/t (remote): it names topics/t/partition=0/{segment.name}, which is missing; "
        "restore it from a backup"
    )
    assert problem.startswith(f"topics/t/partition=0 (remote): segment {segment.name}: there is no object")
    segment.write_bytes(data)
    (away / "_delta_log" / f"{1:020}.json").unlink()
    noted = "version 1 notes version 1 of topics/t/partition=0, which ends at 0"
    assert check(cluster.store).problems == [
        f"the table over topics/t (remote): {noted}",
        "topics/t/partition=0 (remote): offsets 0-1 are missing at the end",
    ]
    shutil.rmtree(away)
    assert "topics/t/partition=0 (remote): there is no table" in check(cluster.store).problems[-1]
    shutil.rmtree(tmp_path / "away")
    (problem,) = check(cluster.store).problems
    assert problem.startswith("the remote root cannot be opened: there is no directory")


def test_records_lost_between_the_two_roots_are_found(cluster: Cluster) -> None:
    """A program that is wrong has removed a segment here that is not there."""
    table = cluster.topic("t").partition(0).table
    gone = table.snapshot.segments[0]
    info = commit_info(cluster.clock, "TIER")
    table.transact(lambda _: Commit(info, (Txn(TXN_TIERED, 3),), removes=(gone.remove(0, data_change=True),)))
    assert check(cluster.store).problems == [
        "topics/t/partition=0 (remote): offsets 2-2 are missing at the end"
    ]


def test_a_remote_table_of_another_cluster_is_found(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    shutil.rmtree(tmp_path / "away" / "topics" / "t")
    create_table(open_store(tmp_path / "away"), "topics/t/partition=0", clock, {PROPERTY_CLUSTER: "another"})
    found = check(cluster.store).problems
    assert f"topics/t/partition=0 (remote): it is of cluster another, not of {cluster.cluster_id}" in found[0]
    assert "offsets 0-1 are missing at the end" in found[1]


def test_what_is_in_the_remote_root_comes_back_with_its_topic(cluster: Cluster, clock: ManualClock) -> None:
    alter_topic(cluster, "t", {"topic.delete.delay.ms": str(4 * LOG_RETENTION_MS)})
    topic_id = cluster.topic("t").topic_id
    for name, new_name in (("t", "t"), ("t", "u"), ("u", "u")):
        delete_topic(cluster, name)
        clock.advance(2 * LOG_RETENTION_MS)
        assert sweep(cluster) == []
        create_topic(cluster, name) if name != new_name else None
        assert undelete_topic(cluster, name, topic_id, new_name).partition(0).snapshot.tiered == 2
        partition = opened(cluster).topic(new_name).partition(0)
        assert values(partition) == VALUES
    move_topic(cluster, "u", [1])
    partition = cluster.claim(cluster.topic("u"), 0)
    append_each(partition, [b"4"])
    assert values(partition) == [*VALUES, b"4"]
    began = partition.snapshot.version
    partition.truncate(2)
    clock.advance(LOG_RETENTION_MS)
    with pytest.raises(Conflict, match="were in the remote root"):
        restore_topic(cluster.topic("u"), clock.now_ms(), wanted(began, None), 0)
    assert check(cluster.store).problems == []


def test_a_move_that_comes_first_has_a_restore_refused(cluster: Cluster, clock: ManualClock) -> None:
    log = cluster.claim(create_topic(cluster, "v", configs=TIERED), 0)
    append_each(log, VALUES)
    began = log.snapshot.version
    log.truncate(2)
    move = Fault(1, before(lambda: move_topic(opened(cluster), "v", [1])), {"put_if_absent"})
    slow = Cluster.open(FaultyStore(cluster.store, [move]), clock)
    with pytest.raises(Conflict, match="were in the remote root"):
        restore_topic(slow.topic("v"), clock.now_ms(), wanted(began, None))
    assert values(opened(cluster).topic("v").partition(0)) == VALUES[2:]
    assert check(cluster.store).problems == []
