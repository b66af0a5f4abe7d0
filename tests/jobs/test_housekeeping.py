"""Housekeeping: when checkpoints, cleaned logs and the removal of unreferenced files are due."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import housekeeping
from jobs.housekeeping import TIDY_INTERVAL_MS, TidyStep
from jobs.maintenance import JOBS, Maintenance
from jobs.outcome import JobOutcome
from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.group_log import Intent, IntentKey, encode
from log_tables.cluster.topic_fold import begin_again
from log_tables.layout import CONSUMER_OFFSETS, STAGING
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, LOG_RETENTION_MS, TIDY_TOMBSTONES
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.segments import staging
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.objects import TEMPORARY_PREFIX
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, CommitInfo, Remove, Txn, put_commit
from log_tables.table.tombstones import Tombstones
from log_tables.testing import ClockedStore, FaultyStore
from tests.kit.engines import always, in_process, no_engine
from tests.kit.partitions import another, append, append_each, log_versions, values
from tests.kit.states import NOW_MS, a_segment, a_snapshot, a_state
from tests.kit.tiers import move_topic, tiered_cluster

DUE = CHECKPOINT_INTERVAL_COMMITS
DAY_MS = 24 * 60 * 60 * 1000


def planned(version: int, checkpointed: int, tidied_ms: int | None) -> tuple[bool, bool] | None:
    """(Checkpoint, clean), None when nothing is due."""
    state = replace(
        a_state([]), snapshot=a_snapshot([], version=version), checkpointed=checkpointed, tidied_ms=tidied_ms
    )
    steps = housekeeping.plan([state], NOW_MS)
    return (steps[0].checkpoint, steps[0].clean) if steps else None


@pytest.mark.parametrize(
    ("version", "checkpointed", "tidied_ms", "expected"),
    [
        (DUE - 1, 0, NOW_MS, None),
        (DUE, 0, NOW_MS, (True, False)),
        (7 * DUE, 7 * DUE, NOW_MS, None),
        (8 * DUE - 1, 7 * DUE, NOW_MS, None),
        (9 * DUE, 7 * DUE, NOW_MS, (True, False)),
        # Once an hour, and when nobody knows when it was.
        (1, 0, None, (False, True)),
        (1, 0, NOW_MS - TIDY_INTERVAL_MS + 1, None),
        (1, 0, NOW_MS - TIDY_INTERVAL_MS, (False, True)),
        (DUE, 0, NOW_MS - TIDY_INTERVAL_MS, (True, True)),
        # The clock was wrong then.
        (1, 0, NOW_MS + TIDY_INTERVAL_MS - 1, None),
        (1, 0, NOW_MS + TIDY_INTERVAL_MS, (False, True)),
    ],
)
def test_what_is_due(
    version: int, checkpointed: int, tidied_ms: int | None, expected: tuple[bool, bool] | None
) -> None:
    assert planned(version, checkpointed, tidied_ms) == expected


def test_a_table_that_has_removed_many_files_is_cleaned_by_each_run() -> None:
    def planned(removed: int) -> Sequence[housekeeping.TidyStep]:
        gone = Tombstones(Remove(f"{number}", False, NOW_MS, 1, True, {}) for number in range(removed))
        snapshot = replace(a_snapshot([], version=1), tombstones=gone)
        return housekeeping.plan([replace(a_state([]), snapshot=snapshot, tidied_ms=NOW_MS)], NOW_MS)

    (step,) = planned(TIDY_TOMBSTONES)
    assert step.clean
    assert planned(TIDY_TOMBSTONES - 1) == ()


def test_files_that_were_replaced_stay_as_long_as_the_topic_says() -> None:
    config = TopicConfig.parse({"compaction.file.delete.delay.ms": "7200000"})
    (step,) = housekeeping.plan([replace(a_state([]), config=config)], NOW_MS)
    assert step.replaced_file_ms == 7_200_000


def remote_tidied(version: int, checkpointed: int, tidied_ms: int | None) -> list[TidyStep]:
    state = replace(
        a_state([]),
        remote=a_snapshot([a_segment(0)], version=version),
        remote_checkpointed=checkpointed,
        tidied_ms=tidied_ms,
    )
    return [step for step in housekeeping.plan([state], NOW_MS) if step.remote]


def test_a_remote_table_gets_a_checkpoint_when_it_is_tidied_up_and_has_changed() -> None:
    """A remote table has at most one commit for each run, and each run opens it."""
    assert remote_tidied(7, 3, NOW_MS) == []
    assert remote_tidied(7, 3, None) == [
        TidyStep(
            topic="t", partition=3, directory="topics/t/partition=3", remote=True, checkpoint=True, clean=True
        )
    ]
    assert remote_tidied(7, 7, None) == [
        TidyStep(
            topic="t",
            partition=3,
            directory="topics/t/partition=3",
            remote=True,
            checkpoint=False,
            clean=True,
        )
    ]


@pytest.mark.parametrize(
    ("checkpoint", "clean", "remote", "says"),
    [
        (True, False, False, "write a checkpoint"),
        (False, True, True, "clean the log and vacuum (remote)"),
        (True, True, True, "write a checkpoint and clean the log and vacuum (remote)"),
    ],
)
def test_a_step_says_what_it_is(checkpoint: bool, clean: bool, remote: bool, says: str) -> None:
    assert (
        str(
            TidyStep(
                topic="t",
                partition=3,
                directory="topics/t/partition=3",
                remote=remote,
                checkpoint=checkpoint,
                clean=clean,
            )
        )
        == says
    )


# On tables.

COMMITS = DUE + 10


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A topic `t` of many commits, merged into one segment, on a store that lives by `clock`."""
    made = Cluster.open(ClockedStore(open_store(tmp_path / "here"), clock), clock)
    partition = made.claim(create_topic(made, "t"), 0)
    append_each(partition, [b"%d" % number for number in range(COMMITS)])
    table, inputs = partition.table, partition.snapshot.segments
    assert commit_merge(table, inputs, merge(table.store, table.directory, inputs, "zstd", clock))
    return made


def run(cluster: Cluster, tidied: dict[str, int] | None = None) -> list[JobOutcome]:
    """One run of this job, on a cluster as another process opens it."""
    cluster = Cluster.open(cluster.store, cluster.clock, create=False)
    states, unreadable = look(cluster, tidied or {})
    assert unreadable == []
    steps = housekeeping.plan(states, cluster.clock.now_ms())
    return list(housekeeping.run(no_engine, cluster, steps))


def segment_files(cluster: Cluster) -> int:
    paths = [item.path for item in cluster.store.list("topics/t/partition=0/")]
    return sum(path.endswith(".parquet") and "_delta_log" not in path for path in paths)


def test_a_checkpoint_then_a_clean_log_then_files_that_are_gone(cluster: Cluster, clock: ManualClock) -> None:
    """Commits go after an hour, and what a merge replaced an hour after it was marked."""
    partition = another(cluster.topic("t").partition(0))
    version = partition.snapshot.version
    (outcome,) = run(cluster)
    assert (outcome.topic, outcome.files_before, outcome.files_after, outcome.error) == ("t", 0, 1, None)
    commits, checkpoints = log_versions(partition)
    assert (commits[0], checkpoints) == (0, [version])
    assert run(cluster) == []
    clock.advance(LOG_RETENTION_MS + 1)
    cleaned = {outcome.topic: outcome for outcome in run(cluster)}
    assert cleaned["t"].files_before == version + COMMITS
    assert cleaned["t"].bytes_before > cleaned["t"].bytes_after == 0
    assert log_versions(partition) == ([version, version + 1], [version])  # the last is the vacuum's
    assert segment_files(cluster) == 1
    assert values(another(partition)) == [b"%d" % number for number in range(COMMITS)]
    assert check(cluster.store).problems == []


def test_nothing_is_listed_that_was_tidied_up_lately(cluster: Cluster, clock: ManualClock) -> None:
    run(cluster)
    clock.advance(LOG_RETENTION_MS + 1)
    lately = {f"topics/{name}/partition=0": clock.now_ms() for name in ("t", "__cluster_metadata")}
    assert run(cluster, lately) == []
    assert run(cluster) != []


def test_a_preview_says_what_would_go_and_changes_nothing(cluster: Cluster, clock: ManualClock) -> None:
    (job,) = (job for job in JOBS if job.name == housekeeping.NAME)
    maintenance = Maintenance(Cluster.open(cluster.store, clock, create=False), always(no_engine), [job])

    def previewed() -> str:
        before = [*cluster.store.list("")]
        found = {step.topic: said for _, step, said, _ in maintenance.previews()}
        assert [*cluster.store.list("")] == before
        return found["t"]

    assert previewed() == (
        "write a checkpoint and clean the log and vacuum: "
        f"0 files of the log, 0 unreferenced files (0 bytes); mark {COMMITS}, 0 are waiting"
    )
    run(cluster)
    assert f"0 files of the log, 0 unreferenced files (0 bytes); mark 0, {COMMITS} are waiting" in previewed()
    clock.advance(LOG_RETENTION_MS + 1)
    version = cluster.topic("t").partition(0).snapshot.version
    assert f"{version} files of the log, {COMMITS} unreferenced files (" in previewed()


def test_a_scheduler_remembers_what_it_has_tidied_up(cluster: Cluster, clock: ManualClock) -> None:
    watched = FaultyStore(cluster.store)
    maintenance = Maintenance(Cluster.open(watched, clock, create=False), always(in_process))

    def listed() -> set[str]:
        watched.calls.clear()
        list(maintenance.run())
        return {call.path for call in watched.calls if call.operation == "list"}

    assert "topics/t/partition=0/" in listed()
    new = "topics/__maintenance/partition=0/"
    assert listed() == {new, f"{new}_vacuum/", f"{new}_delta_log/", f"{STAGING}/"}
    assert listed() == set()
    clock.advance(TIDY_INTERVAL_MS)
    assert "topics/t/partition=0/" in listed()


def test_one_that_failed_is_tidied_up_by_the_next_run(cluster: Cluster, clock: ManualClock) -> None:
    maintenance = Maintenance(Cluster.open(cluster.store, clock, create=False), always(in_process))
    cluster.store.put("topics/t/partition=0/_vacuum/00000000000000000001-01234567.json", b"{")
    (failed,) = (outcome for outcome in maintenance.run() if outcome.topic == "t")
    assert "is not a list of file names" in str(failed.error)
    (again,) = (outcome for outcome in maintenance.run() if outcome.topic == "t")
    assert again.error == failed.error
    cluster.store.delete("topics/t/partition=0/_vacuum/00000000000000000001-01234567.json")
    assert [outcome.topic for outcome in maintenance.run()] == []


def test_the_files_of_a_deleted_topic_go(cluster: Cluster, clock: ManualClock) -> None:
    delete_topic(cluster, "t")
    clock.advance(DAY_MS)
    run(cluster)
    assert [*cluster.store.list("topics/t/")] == []
    assert check(cluster.store).problems == []


def staged_files(cluster: Cluster) -> list[str]:
    return [item.path for item in cluster.store.list(f"{STAGING}/")]


def stage(cluster: Cluster) -> StagedFile:
    """Stage a record, for a transaction that is to come."""
    parts = [PartitionRecords("t", cluster.topic("t").topic_id, 0, [input_batch([Record(b"v")], 0)])]
    return staging.stage(cluster.store, cluster.clock, "g", parts)


def test_what_was_staged_for_a_transaction_that_never_came_goes_after_a_day(
    cluster: Cluster, clock: ManualClock
) -> None:
    run(cluster)
    staged = stage(cluster)
    clock.advance(DAY_MS)
    run(cluster)
    assert staged_files(cluster) == [staged.path]
    clock.advance(1)
    size = cluster.store.head(staged.path).size
    told = [outcome for outcome in run(cluster) if outcome.topic == "__cluster_metadata"]
    assert (told[-1].files_before, told[-1].files_after, told[-1].bytes_before) == (1, 0, size)
    assert staged_files(cluster) == []


def test_what_a_transaction_still_needs_stays_however_old(cluster: Cluster, clock: ManualClock) -> None:
    """The transaction is committed but not applied, because no gateway has run since."""
    kept, old = stage(cluster), stage(cluster)
    groups = cluster.claim(create_topic(cluster, CONSUMER_OFFSETS, internal=True), 0)
    key = IntentKey("g", 1)
    groups.append([AppendRequest(input_batch([encode(key, Intent(1, 1, (kept,)))], 0))])
    clock.advance(DAY_MS + 1)
    previews = [
        said for _, _, said, _ in Maintenance(cluster, always(in_process)).previews() if "staged" in said
    ]
    assert len(previews) == 1
    assert previews[0].endswith(f"; 1 staged file ({cluster.store.head(old.path).size:,} bytes)")
    run(cluster)
    assert staged_files(cluster) == [kept.path]
    groups.append([AppendRequest(input_batch([encode(key, None)], 0))])
    run(cluster)
    assert staged_files(cluster) == []


def test_a_remote_table_is_tidied_up_as_well(tmp_path: Path, clock: ManualClock) -> None:
    local, remote = open_store(tmp_path / "here"), tmp_path / "away"
    cluster = Cluster.open(local, clock)
    set_remote_root(cluster, remote)
    partition = cluster.claim(create_topic(cluster, "t", configs={"remote.storage.enable": "true"}), 0)
    for number in range(4):
        append(partition, b"%d" % number)
    move_topic(cluster, "t", [3])
    assert [outcome.files_after for outcome in run(cluster) if outcome.topic == "t"] == [1]
    assert [*remote.glob("topics/t/partition=0/_delta_log/*.checkpoint.parquet")] != []
    assert run(cluster) == []
    assert check(cluster.store).problems == []


def test_a_vacuum_spares_what_the_table_over_the_topic_in_the_remote_root_names(
    tmp_path: Path, clock: ManualClock
) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    partition = cluster.claim(create_topic(cluster, "t", configs={"remote.storage.enable": "true"}), 0)
    append_each(partition, [b"%d" % number for number in range(4)])
    move_topic(cluster, "t", [3])
    assert cluster.remote is not None
    remote, store = cluster.remote.table(partition.directory), cluster.remote.store
    inputs = remote.snapshot.segments
    assert commit_merge(remote, inputs, merge(store, partition.directory, inputs, "zstd", clock))
    foreign = Commit(CommitInfo(operation="WRITE", engineInfo="another tool"), (Txn("theirs", 1),))
    assert put_commit(store, "topics/t", 2, foreign, clock) is None
    files = [tmp_path / "away" / partition.directory / segment.path for segment in inputs]

    def vacuum_twice() -> list[str]:
        outcomes: list[JobOutcome] = []
        for _ in range(2):
            for path in (tmp_path / "away" / "topics/t").rglob("*"):
                then_s = path.stat().st_mtime - 2 * LOG_RETENTION_MS / 1_000
                os.utime(path, (then_s, then_s))
            scheduler = Cluster.open(cluster.store, clock, create=False)
            steps = housekeeping.plan(look(scheduler)[0], clock.now_ms())
            outcomes += housekeeping.run(no_engine, scheduler, steps)
        return [str(outcome.error) for outcome in outcomes if outcome.error]

    assert any("made by another tool" in error for error in vacuum_twice())
    assert all(path.exists() for path in files)
    operator = Cluster.open(cluster.store, clock, create=False)
    begin_again(operator, operator.topic("t"))
    assert vacuum_twice() == []
    assert not any(path.exists() for path in files)
    assert check(cluster.store).problems == []


def test_what_killed_puts_left_goes_from_both_roots(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    create_topic(cluster, "t", configs={"remote.storage.enable": "true"})
    left = [tmp_path / side / "topics/t/partition=0" / f"{TEMPORARY_PREFIX}x" for side in ("here", "away")]
    for path in left:
        path.write_bytes(b"half of it")
        os.utime(path, (0, 0))
    run(cluster)
    assert not any(path.exists() for path in left)


def test_a_sweep_that_fails_is_reported_next_to_the_outcomes(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    create_topic(cluster, "u", configs={"topic.delete.delay.ms": "0"})
    delete_topic(cluster, "u")
    partition = cluster.claim(create_topic(cluster, "t"), 0)
    append_each(partition, [b"%d" % number for number in range(DUE)])
    clock.advance(LOG_RETENTION_MS)
    (tmp_path / "away").rename(tmp_path / "gone")
    found = {outcome.topic: outcome.error for outcome in run(Cluster.open(cluster.store, clock))}
    assert found["t"] is None
    assert "the remote root is missing" in str(found["__cluster_metadata"])


def test_a_scheduler_forgets_what_was_removed_long_ago(cluster: Cluster, clock: ManualClock) -> None:
    """A scheduler that writes no checkpoints also follows each table for as long as it runs."""
    following = Cluster.open(cluster.store, clock, create=False)
    for _ in range(4):
        (state,) = (state for state in look(following)[0] if state.topic == "t")
        clock.advance(LOG_RETENTION_MS // 3)
    assert not state.snapshot.tombstones
