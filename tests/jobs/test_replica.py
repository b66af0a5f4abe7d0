"""A standby, its stores, and other processes: what fails, what is gone, and who else writes."""

import threading
from pathlib import Path

import pytest

from jobs.replica.replicator import Figures, Replicator
from jobs.replica.table_log import Diverged
from jobs.replica.tables import ROOT
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import create_credentials
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.errors import Conflict, InvalidArgument, StoreUnavailable
from log_tables.layout import commit_path, log_directory
from log_tables.root.fsck import check
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    HoldingStore,
    answer_lost,
    crash_after,
    crash_before,
    refused,
    unavailable,
)
from tests.kit.failures import READS
from tests.kit.partitions import append, append_each, bury, values
from tests.kit.standby import emptied, follow, logs, newest_versions
from tests.kit.standby_workload import HOUR_MS, Workload
from tests.kit.unfolding import QuickClock

HERE = "topics/t/partition=0"


@pytest.fixture(scope="module")
def small() -> Store:
    """A root with some of everything, at rest."""
    made = Workload()
    made.work(10)
    return made.recorded.inner


def standby() -> Store:
    return open_store("memory://standby")


def replicate(source: Store, target: Store) -> None:
    follow(source, target, clock=QuickClock())


def check_level(source: Store, target: Store) -> None:
    mark = read_mark(target)
    assert mark is not None
    assert mark.is_level
    assert newest_versions(target) == newest_versions(source)
    original = logs(source)
    assert all(original[path] == data for path, data in logs(target).items())
    assert check(target).problems == []


def writes_of(source: Store) -> int:
    """How many writes a first copy takes."""
    counted = FaultyStore(standby())
    replicate(source, counted)
    return counted.writes()


@pytest.mark.parametrize("failure", [unavailable, refused, answer_lost])
def test_a_write_that_fails_is_made_good(small: Store, failure: Failure, seed: int) -> None:
    """Several at once, all over the first copy: a store that comes and goes, or that is full for a while."""
    most = writes_of(small)
    faults = [Fault(2 + (number * 7 + seed) % (most - 2), failure) for number in range(2, most, 15)]
    target = FaultyStore(standby(), faults)
    replicate(small, target)
    check_level(small, target.inner)


def test_a_read_that_fails_is_made_good(small: Store) -> None:
    counted = FaultyStore(small)
    replicate(counted, standby())
    for first in range(1, len(counted.calls), len(counted.calls) // 3):
        target = standby()
        source = FaultyStore(small, [Fault(first + more, unavailable, READS) for more in range(0, 20, 3)])
        for _ in range(8):
            try:
                replicate(source, target)
            except StoreUnavailable:
                continue  # at the start it ends, and is started again
            break
        check_level(small, target)


def test_a_standby_is_gone_on_with_after_a_crash_at_any_write(small: Store, seed: int) -> None:
    most = writes_of(small)
    for number in range(1 + seed % 3, most, max(1, most // 8)):
        inner = standby()
        crash = (crash_before, crash_after)[number % 2]
        with pytest.raises(Crash):
            replicate(small, FaultyStore(inner, [Fault(number, crash)]))
        mark = read_mark(inner)
        assert number == 1 or mark is not None
        replicate(small, inner)
        check_level(small, inner)


def test_another_writer_ends_it_with_the_table_and_the_version() -> None:
    made, target = Workload(), standby()
    source = made.recorded.inner
    replicate(source, target)
    other = Cluster.open(target, made.clock, create=False)
    append(other.claim(other.topic("t"), 0), b"another's")
    append(made.partition("t"), b"the original's")
    with pytest.raises(Diverged, match=rf"version \d of {HERE} in the standby"):
        replicate(source, target)


def test_it_replicates_to_an_empty_place_or_its_own_standby(small: Store) -> None:
    target = standby()
    target.put("mine", b"")
    with pytest.raises(InvalidArgument, match="is not empty"):
        replicate(small, target)
    with pytest.raises(InvalidArgument, match="follow itself"):
        replicate(small, small)
    put_mark(target, StandbyMark("memory://another", "another"))
    with pytest.raises(Conflict, match="standby of the cluster another"):
        replicate(small, target)
    put_mark(target, StandbyMark(small.url, "another", is_promoted=True))
    with pytest.raises(Conflict, match="was promoted"):
        replicate(small, target)


def test_files_that_are_gone_let_it_begin_at_a_checkpoint_again() -> None:
    """The original has merged, and vacuumed the inputs, since the standby saw it last."""
    made, target = Workload(), standby()
    source = made.recorded.inner
    replicate(source, target)
    partition = made.partition("t")
    append_each(partition, [b"1", b"2", b"3"])
    inputs = partition.snapshot.segments
    assert commit_merge(partition.table, inputs, merge(made.store, HERE, inputs, "zstd", made.clock))
    made.fold()
    partition.checkpoint()
    source.delete_objects([f"{HERE}/{item.path}" for item in inputs])
    replicate(source, target)
    check_level(source, target)
    assert values(Cluster.open(target, made.clock, create=False).topic("t").partition(0)) == values(partition)


class SleptClock(QuickClock):
    """A clock of a machine that was asleep."""

    slept_s = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.slept_s


def test_a_process_that_slept_does_not_take_a_log_that_was_cleaned_for_a_quiet_one() -> None:
    made, target, clock = Workload(), standby(), SleptClock()
    source = HoldingStore(made.recorded.inner, operations=READS | {"get_range"})
    slept: list[bool] = []

    def sleep() -> bool:
        if not slept:
            slept.append(True)
            source.hold()
            append_each(made.partition("t"), [b"1", b"2"])
            made.wait(2 * HOUR_MS)
            bury(made.partition("t"))
            append(made.partition("t"), b"3")
            made.fold()
            clock.slept_s = 2 * HOUR_MS / 1000
            source.let_go()
        return newest_versions(target) == newest_versions(made.recorded.inner)

    follow(source, target, sleep, clock)
    check_level(made.recorded.inner, target)


def test_a_topic_that_is_swept_goes_from_the_standby() -> None:
    made, target = Workload(), standby()
    source = made.recorded.inner
    made.make_again()
    replicate(source, target)
    assert [*target.list("topics/again/")] != []
    made.make_again()
    made.make_again()
    follow(source, target, lambda: not [*target.list("topics/again/")], QuickClock())
    check_level(source, target)
    assert [*target.list("topics/again~2/")] != []


def test_a_root_that_vanishes_is_trouble_and_nothing_of_the_standby_goes(tmp_path: Path) -> None:
    path, target, rounds = tmp_path / "here", standby(), list[Figures]()
    made = Workload(inner=open_store(path))

    replicate(made.recorded.inner, target)
    before, stopping = {*logs(target)}, threading.Event()
    replicator = Replicator(open_store(path), target, QuickClock())

    def look(now: Figures) -> None:
        if not rounds:
            emptied(made.recorded.inner, path)
        rounds.append(now)
        if len(rounds) > 3:
            with pytest.raises(StoreUnavailable, match="check that it is mounted"):
                replicator.check_source()
        if now.trouble or len(rounds) > 200:
            stopping.set()

    replicator.run(stopping, look)
    assert "check that it is mounted" in rounds[-1].trouble
    assert {*logs(target)} == before


@pytest.mark.parametrize("told", [False, True])
def test_credentials_come_over_only_if_told_and_schemas_always(told: bool) -> None:
    made, target = Workload(), standby()
    create_credentials(made.store, made.clock, "")
    made.store.put("schemas/files/7.avsc", b'"long"')
    made.produce()
    follow(made.recorded.inner, target, clock=QuickClock(), with_credentials=told)
    assert bool([*target.list("credentials/")]) is told
    assert target.get("schemas/files/7.avsc") == b'"long"'


@pytest.mark.parametrize("shared", [False, True])
def test_two_processes_replicate_to_one_standby(small: Store, shared: bool) -> None:
    """Two that know nothing of each other, and two that share the tables."""
    target, stopping = standby(), threading.Event()
    errors: list[BaseException] = []

    def owns(number: int, part: str) -> bool:
        return not shared or (part != ROOT and part.endswith("1")) == bool(number)

    def run(number: int) -> None:
        def look(_: Figures) -> None:
            if newest_versions(target) == newest_versions(small):
                stopping.set()

        replicator = Replicator(small, target, QuickClock(), owns=lambda part: owns(number, part))
        timer = threading.Timer(60, stopping.set)
        timer.start()
        try:
            replicator.run(stopping, look)
        except BaseException as error:  # noqa: BLE001 -- it is looked at in the test
            errors.append(error)
        finally:
            timer.cancel()

    if shared:  # one begins the standby
        replicate(small, target)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    replicate(small, target)  # one of them may have been amid a checkpoint
    check_level(small, target)


def test_checkpoints_come_over_and_the_log_is_kept_short() -> None:
    made, target = Workload(), standby()
    source = made.recorded.inner
    replicate(source, target)
    partition = made.partition("t")
    append_each(partition, [b"%d" % number for number in range(60)])
    made.wait(2 * HOUR_MS)
    bury(partition)
    append(partition, b"last")
    first = min(path for path in logs(source) if path.startswith(HERE))
    clean = log_directory(HERE)

    def is_short() -> bool:
        there = [item.path for item in target.list(f"{clean}/")]
        return commit_path(HERE, 0) not in there and f"{clean}/_last_checkpoint" in there

    follow(source, target, is_short, QuickClock())
    check_level(source, target)
    assert min(path for path in logs(target) if path.startswith(HERE)) <= first
