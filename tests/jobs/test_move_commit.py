"""Records leave the first root when the table over the topic in the remote root has them, and not before."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from jobs import tiering
from jobs.outcome import GONE, JobOutcome
from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import begin_again, fold
from log_tables.layout import log_directory
from log_tables.root.fsck import check
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from log_tables.testing import Crash, Failure, crash_after, crash_before
from tests.kit.engines import in_process
from tests.kit.joined import everything, joined, moving_topic, reopened, tables_of
from tests.kit.killed import killed
from tests.kit.partitions import append_each
from tests.kit.tiers import bases

FOREIGN = CommitInfo(operation="WRITE", engineInfo="another tool")


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    made = moving_topic(tmp_path, clock)
    clock.advance(1_000)
    return made


def run(cluster: Cluster, meanwhile: Callable[[], object] = lambda: None) -> list[JobOutcome]:
    """One run of tiering by a process of its own, that does `meanwhile` after it has planned."""
    scheduler = reopened(cluster)
    steps = tiering.plan(look(scheduler)[0], scheduler.clock.now_ms())
    meanwhile()
    return [*tiering.run(in_process, scheduler, steps)]


def check_joined(cluster: Cluster) -> None:
    """A program that joins both tables over the topic finds each record once, before and after a fold."""
    topic = reopened(cluster).topic("t")
    before = joined(*tables_of(cluster, topic))
    assert before == everything(cluster)
    fold(topic)
    assert joined(*tables_of(cluster, topic)) == everything(cluster)


def test_a_run_moves_all_partitions_with_one_fold(cluster: Cluster) -> None:
    assert [(outcome.error, outcome.records) for outcome in run(cluster)] == [(None, 3), (None, 3)]
    check_joined(cluster)
    first, remote = tables_of(cluster, cluster.topic("t"))
    assert [remote.version, remote.cluster] == [1, cluster.cluster_id]
    assert [bases(remote.of(number)) for number in range(2)] == [[0, 1, 2], [0, 1, 2]]
    assert [bases(first.of(number)) for number in range(2)] == [[3], [3]]
    assert check(cluster.store).problems == []
    assert run(cluster) == []


def test_both_tables_have_as_many_records_as_fsck_counts(cluster: Cluster) -> None:
    run(cluster)
    fold(reopened(cluster).topic("t"))
    first, remote = tables_of(cluster, cluster.topic("t"))
    tables = {"": first, " (remote)": remote}
    counts = {
        f"topics/t/partition={number}{where}": sum(segment.records for segment in table.of(number))
        for where, table in tables.items()
        for number in range(2)
    }
    reports = check(cluster.store).partitions
    assert counts == {each.directory: each.records for each in reports if "topics/t/" in each.directory}


@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_a_process_that_dies_at_any_write_leaves_each_record_once(
    tmp_path: Path, clock: ManualClock, failure: Failure
) -> None:
    for nth in count(1):
        directory = tmp_path / f"{nth}"
        cluster = moving_topic(directory, clock, commits=3)
        clock.advance(1_000)
        fold(cluster.topic("t"))
        with killed(directory, nth, failure) as kill:
            try:
                run(cluster)
            except Crash:
                pass
        if not kill.dead:
            break
        if [*open_log(cluster)]:
            check_joined(cluster)
        assert [outcome.error for outcome in run(cluster)] in ([], [None], [None, None])
        check_joined(cluster)
        assert check(cluster.store).problems == []
        assert [bases(p.refresh().segments) for p in cluster.topic("t").partitions()] == [[2], [2]]
    assert nth > 9  # four copies, two commits there, a fold, two commits here


def open_log(cluster: Cluster) -> list[str]:
    assert cluster.remote is not None
    return [item.path for item in cluster.remote.store.list(f"{log_directory('topics/t')}/")]


def test_two_runs_at_once_move_each_record_once(cluster: Cluster) -> None:
    outcomes = run(cluster, lambda: run(cluster))
    assert [outcome.error for outcome in outcomes] == [None, None]
    check_joined(cluster)
    assert check(cluster.store).problems == []
    _, remote = tables_of(cluster, cluster.topic("t"))
    assert [bases(remote.of(number)) for number in range(2)] == [[0, 1, 2], [0, 1, 2]]


def put_foreign(cluster: Cluster) -> None:
    """A commit of another tool to the table over the topic in the remote root."""
    assert cluster.remote is not None
    _, remote = tables_of(cluster, cluster.topic("t"))
    commit = Commit(FOREIGN, (Txn("theirs", 1),))
    store = cluster.remote.store
    assert put_commit(store, "topics/t", remote.version + 1, commit, cluster.clock) is None


def test_while_the_table_there_stands_still_nothing_leaves_this_root(
    cluster: Cluster, clock: ManualClock
) -> None:
    put_foreign(cluster)
    for outcome in run(cluster):
        assert "the table over the topic in the remote root" in str(outcome.error)
        assert "made by another tool" in str(outcome.error)
    for _ in range(2):
        states, unreadable = look(reopened(cluster))
        (stuck,) = unreadable
        assert "the table over the topic in the remote root cannot be used" in stuck.reason
        assert {state.remote_rewritable for state in states} == {()}
        assert all(not step.segments for step in tiering.plan(states, clock.now_ms()))
        run(cluster)
    assert all(len(partition.refresh().segments) == 4 for partition in cluster.topic("t").partitions())
    assert "made by another tool" in check(cluster.store).problems[0]
    operator = reopened(cluster)
    begin_again(operator, operator.topic("t"))
    assert [outcome.error for outcome in run(cluster)] == [None, None]
    check_joined(cluster)
    assert check(cluster.store).problems == []


def test_a_remote_root_without_such_a_table_gets_one(cluster: Cluster) -> None:
    run(cluster)
    assert cluster.remote is not None
    for path in open_log(cluster):
        cluster.remote.store.delete(path)
    assert check(cluster.store).problems == []
    assert look(reopened(cluster), change=False)[1] == []
    assert open_log(cluster) == []
    run(cluster)
    check_joined(cluster)
    assert check(cluster.store).problems == []


def test_what_retention_takes_out_there_leaves_the_table_in_the_same_run(cluster: Cluster) -> None:
    run(cluster)
    for partition in cluster.topic("t").partitions():
        partition.refresh()
        partition.truncate(2)
    assert [outcome.error for outcome in run(cluster)] == [None, None]
    _, remote = tables_of(cluster, cluster.topic("t"))
    assert [bases(remote.of(number)) for number in range(2)] == [[2], [2]]
    check_joined(cluster)
    assert check(cluster.store).problems == []


def test_a_topic_that_was_deleted_meanwhile_is_left_alone(cluster: Cluster) -> None:
    outcomes = run(cluster, lambda: delete_topic(cluster, "t"))
    assert [outcome.error for outcome in outcomes] == [GONE, GONE]
    assert len(open_log(cluster)) == 1


def test_partitions_that_are_added_are_in_the_table_with_their_first_move(
    cluster: Cluster, clock: ManualClock
) -> None:
    run(cluster)
    topic = add_partitions(cluster, "t", 3)
    append_each(cluster.claim(topic, 2), [b"0", b"1"])
    clock.advance(1_000)
    assert [outcome.error for outcome in run(cluster)] == [None]
    check_joined(cluster)
    _, remote = tables_of(cluster, topic)
    assert bases(remote.of(2)) == [0]


def test_declared_columns_move_with_their_records(cluster: Cluster, clock: ManualClock) -> None:
    run(cluster)
    alter_topic(cluster, "t", {"value.columns": "n bigint"})
    partition = cluster.claim(cluster.topic("t"), 0)
    append_each(partition, [b'{"n": 7}', b'{"n": 8}'])
    clock.advance(1_000)
    assert [outcome.error for outcome in run(cluster)] == [None]
    check_joined(cluster)
    assert check(cluster.store).problems == []
    remote = cluster.remote
    assert remote is not None
    for place in ("topics/t", "topics/t/partition=0"):
        frame = pl.read_delta(remote.store.delta_location(place)[0]).sort("offset")
        if "partition" in frame.columns:
            frame = frame.filter(pl.col("partition") == 0)
        assert frame["n"].to_list() == [None, None, None, None, 7]
