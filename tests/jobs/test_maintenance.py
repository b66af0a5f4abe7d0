"""All jobs on one root: what they leave, whoever comes between, and whatever fails."""

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from jobs import housekeeping, key_compaction
from jobs.engine import Engine, Failure
from jobs.maintenance import JOBS, Job, Maintenance, jobs_named
from jobs.outcome import OVERTAKEN, JobOutcome
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.layout import CONSUMER_OFFSETS, MAINTENANCE
from log_tables.limits import LOG_RETENTION_MS
from log_tables.root import fsck
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.testing import (
    Crash,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    refused,
    unavailable,
)
from log_tables.testing import (
    Failure as Fails,
)
from tests.kit.engines import InProcess, Item, Result, always, in_process
from tests.kit.groups import commit
from tests.kit.killed import killed
from tests.kit.maintenance import (
    FAR,
    KEYED,
    NAMES,
    OLD,
    PLAIN,
    TYPED,
    Root,
    errors,
    interrupted,
    newest_of_each_key,
    run,
)
from tests.kit.partitions import append, append_each


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def by_job(outcomes: list[JobOutcome]) -> dict[str, set[str]]:
    """The topics that each job has changed."""
    found: dict[str, set[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.job, set()).add(outcome.topic)
    return found


def test_a_run_does_all_there_is_to_do_and_the_next_has_nothing(tmp_path: Path, engine: Engine) -> None:
    internal_too = partial(key_compaction.plan, dirty_records_min=0)
    jobs = [job._replace(plan=internal_too) if job.name == key_compaction.NAME else job for job in JOBS]
    root = Root(tmp_path, partitions=3)
    create_topic(root.cluster, CONSUMER_OFFSETS, 2, {"cleanup.policy": "compact"}, internal=True)
    for offset in range(4):
        commit(root.cluster, "group", PLAIN, 0, offset)
    outcomes = run(root.opened(), engine, jobs)
    assert errors(outcomes) == {}
    assert by_job(outcomes) == {
        "retention": {OLD},
        "key_compaction": {KEYED, CONSUMER_OFFSETS},
        "retype": {TYPED},
        "segment_compaction": {PLAIN, OLD, TYPED},
        "tiering": {FAR},
        "housekeeping": {FAR},
    }
    root.check_done()
    sql = "select run, job, topic, partition, files_before, bytes_after, records, error from maintenance_runs"
    rows = query(root.opened(), sql).to_pylist()
    assert len({row.pop("run") for row in rows}) == 1
    assert rows == [
        {
            "job": outcome.job,
            "topic": outcome.topic,
            "partition": outcome.partition,
            "files_before": outcome.files_before,
            "bytes_after": outcome.bytes_after,
            "records": outcome.records,
            "error": None,
        }
        for outcome in outcomes
    ]


def test_jobs_are_chosen_by_name_and_run_in_their_order() -> None:
    assert {*JOBS} - {*jobs_named([])} == {*jobs_named(["retype"])}
    both = ["retype", "segment_compaction"]
    assert [job.name for job in jobs_named(both[::-1])] == both
    assert [job.name for job in jobs_named(["tiering", "retention"])] == ["retention", "tiering"]
    with pytest.raises(InvalidArgument, match="there is no job 'tidy'; use one of retention, key_comp"):
        jobs_named(["tiering", "tidy"])


def test_a_run_that_is_stopped_ends_between_two_jobs(root: Root) -> None:
    answers = iter([False, True])
    done = [*Maintenance(root.opened(), always(in_process)).run(lambda: next(answers))]
    assert by_job(done) == {"retention": {OLD}}
    assert errors(run(root.opened())) == {}
    root.check_done()


def test_what_a_producer_appends_during_a_run_is_left_to_the_next(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path), SystemClock())
    partition = cluster.claim(create_topic(cluster, "t", 1, {"merge.min.age.ms": "0"}), 0)
    append_each(partition, [b"x"] * 8)

    class Beside(InProcess):
        """A producer is as fast as the workers are: ten files come for each merge."""

        def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
            append_each(partition, [b"y"] * 10 * len(items))
            return super().spread(function, items)

    def merged() -> list[tuple[int, int]]:
        opened = Cluster.open(cluster.store, cluster.clock, create=False)
        return [(each.files_before, each.files_after) for each in run(opened, Beside())]

    assert merged() == [(8, 1)]
    assert len(partition.refresh().segments) == 11
    assert merged() == [(11, 1)]
    assert partition.high_watermark == 28
    assert fsck.check(cluster.store).problems == []


def test_a_hurried_run_merges_and_does_nothing_else(root: Root) -> None:
    maintenance = Maintenance(root.opened(), always(in_process))
    assert by_job([*maintenance.run(hurried=True)]) == {"segment_compaction": {PLAIN, OLD, KEYED, TYPED}}
    assert maintenance.debt > 0
    assert maintenance.look_at_debt() == 0
    root.check_readable()


# What fails, fails alone.


def test_a_damaged_partition_fails_alone(tmp_path: Path, engine: Engine) -> None:
    root = Root(tmp_path, partitions=2)
    lost = []
    for name in (PLAIN, KEYED, FAR):
        partition = root.cluster.topic(name).partition(1)
        path = f"{partition.directory}/{partition.snapshot.segments[2].path}"
        lost.append((path, root.store.get(path)))
        root.store.delete(path)
    outcomes = run(root.opened(), engine)
    failed = errors(outcomes)
    assert sorted(failed) == ["far-1", "keyed-1", "plain-1"]
    for name, (path, _) in zip(("plain-1", "keyed-1", "far-1"), lost, strict=True):
        assert path in failed[name]
    again = run(root.opened(), engine)
    assert errors(again).keys() == failed.keys()
    for path, data in lost:
        root.store.put(path, data)
    assert errors(run(root.opened(), engine)) == {}
    root.check_done()


def test_a_partition_that_cannot_be_opened_fails_alone_and_is_reported_once(root: Root) -> None:
    directory = root.directory / "here" / "topics" / PLAIN / "partition=0"
    directory.rename(directory.with_name("away"))
    outcomes = run(root.opened())
    assert [(o.job, o.topic) for o in outcomes if o.error] == [("look", PLAIN)]
    assert "restore it from a backup" in errors(outcomes)["plain-0"]
    assert by_job(outcomes).keys() >= {"retention", "key_compaction", "tiering"}
    directory.with_name("away").rename(directory)
    run(root.opened())
    root.check_done()


def test_runs_that_cannot_be_recorded_are_still_done(root: Root) -> None:
    """A log of the runs that is damaged must not end the maintenance of all the others."""
    run(root.opened(), jobs=JOBS[:1])
    log = root.directory / "here" / "topics" / MAINTENANCE / "partition=0" / "_delta_log"
    log.rename(log.with_name("gone"))
    outcomes = run(root.opened())
    assert by_job(outcomes).keys() >= {"key_compaction", "segment_compaction", "tiering"}
    assert sorted(errors(outcomes)) == ["__maintenance-0"]
    log.with_name("gone").rename(log)
    root.check_done()


def test_a_remote_root_that_is_away_is_reported_and_stops_no_other_job(root: Root) -> None:
    away = root.directory / "away"
    run(root.opened())
    away.rename(away.with_name("further"))
    root.write(root.opened(), PLAIN)
    outcomes = run(root.opened())
    assert [(o.job, o.topic) for o in outcomes] == [("look", FAR)]
    assert "mount" in errors(outcomes)["far-0"]
    away.with_name("further").rename(away)
    root.check()


# Who comes between the plan and the deed.


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_gateway_takes_over_and_writes_after_the_plan(root: Root, job: Job) -> None:
    def take_over() -> None:
        other = root.opened()
        for name in NAMES:
            root.write(other, name)

    jobs = [*JOBS[: JOBS.index(job)], interrupted(job, take_over)]
    assert errors(run(root.opened(), jobs=jobs)) == {}
    root.expect(KEYED, newest_of_each_key)
    assert errors(run(root.opened())) == {}
    root.check()


@pytest.mark.parametrize("then", ["deleted", "re-created", "swept"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_topics_are_deleted_after_the_plan(root: Root, job: Job, then: str) -> None:
    def delete() -> None:
        other = root.opened()
        for name in NAMES:
            alter_topic(other, name, {"file.delete.delay.ms": "0", "topic.delete.delay.ms": "0"})
            delete_topic(other, name)
            if then == "swept":
                root.clock.advance(LOG_RETENTION_MS)
                root.age(LOG_RETENTION_MS)
                sweep(other)
                assert list(root.store.list(f"topics/{name}/")) == []
            if then == "re-created":
                append(other.claim(create_topic(other, name), 0), b"another", at_us=root.clock.now_us())

    outcomes = run(root.opened(), jobs=[interrupted(job, delete)])
    if then == "swept" and job.name != housekeeping.NAME:
        assert errors(outcomes) != {}
    assert errors(run(root.opened())) == {}
    left = {f"{name}/0": [b"another"] for name in NAMES} if then == "re-created" else {}
    assert {name: [record.value for record in found] for name, found in root.read().items()} == left
    assert fsck.check(root.store).problems == []


def test_two_schedulers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    root = Root(tmp_path, partitions=2)
    together = threading.Barrier(2)

    def schedule(_: int) -> list[JobOutcome]:
        opened = root.opened()
        together.wait()
        return [outcome for _ in range(3) for outcome in run(opened)]

    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(schedule, range(2))]
    said = {text for outcomes in found for text in errors(outcomes).values()}
    assert said <= {OVERTAKEN}
    run(root.opened())
    root.check()
    assert query(root.opened(), "select count(distinct run) as n from maintenance_runs")["n"][0].as_py() >= 2


# Stores that fail.


def test_a_store_that_fails_one_put_in_ten_makes_errors_at_worst(root: Root, seed: int) -> None:
    draw = ManualClock(seed=seed)
    kinds: list[Fails] = [unavailable, refused, answer_lost]
    faults: list[Fault] = []
    at = 0
    while len(faults) < 100:
        at += 1 + int(draw.random() * 19)
        faults.append(Fault(at, kinds[len(faults) % 3]))
    failing = FaultyStore(root.store, faults)
    for _ in range(5):
        with suppress(LakelogError):
            run(root.opened(failing))
        for name in NAMES:
            root.write(root.opened(), name)
        root.clock.advance(1_000)
        root.expect(KEYED, newest_of_each_key)
    assert failing.writes() > 20
    assert errors(run(root.opened())) == {}
    root.check()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """A root that no test changes."""
    return Root(tmp_path_factory.mktemp("template"))


@pytest.mark.parametrize(
    ("failure", "side", "step"),
    [
        pytest.param(crash_before, "here", 5, id="before-here-some"),
        pytest.param(crash_before, "here", 1, id="before-here", marks=pytest.mark.torture),
        pytest.param(crash_before, "away", 1, id="before-away", marks=pytest.mark.torture),
        pytest.param(crash_after, "here", 1, id="after-here", marks=pytest.mark.torture),
        pytest.param(crash_after, "away", 1, id="after-away", marks=pytest.mark.torture),
    ],
)
def test_a_run_that_is_killed_at_any_write_is_completed_by_the_next(
    template: Root, tmp_path: Path, failure: Fails, side: str, step: int
) -> None:
    """The write is one of the driver or of a task, which run in this process. A death after a write is one
    before the next.
    """
    often = partial(housekeeping.plan, checkpoint_interval_commits=3)
    jobs = [job._replace(plan=often) if job.name == housekeeping.NAME else job for job in JOBS]
    for number in range(1, 1_000, step):
        root = template.copied(tmp_path / f"{number}")
        with killed(root.directory / side, number, failure) as kill, suppress(Crash):
            run(root.opened(), jobs=jobs)
        root.check_readable()
        assert errors(run(root.opened(), jobs=jobs)) == {}
        root.check()
        shutil.rmtree(root.directory)
        if not kill.dead:
            break
    assert number > (25 if side == "here" else 4)
