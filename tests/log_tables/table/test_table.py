"""One table followed by several processes: who commits which version, and who learns what of it.

The stores here are on the clock of the test, so an hour passes for log files when the test says so.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from log_tables.clock import SystemClock
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    NotLeader,
    ObjectMissing,
    OutcomeUnknown,
    UnsupportedTable,
)
from log_tables.layout import TXN_LEADER, checkpoint_path, commit_path, last_checkpoint_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS, TOMBSTONE_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check_partition
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.table import table as tables
from log_tables.table.commit import Commit, Txn
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table, commit_info, create_table
from log_tables.testing import ClockedStore, Fault, FaultyStore, ManualClock, unavailable
from tests.kit.partitions import TABLE, another, append, append_each, log_versions, new_partition, values

STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) + 1
ALMOST_STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) - 1
COMMITS = {"put_if_absent"}
LOG = "_delta_log/"


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    return new_partition(store, clock)


def before(step: Callable[[], object]) -> Callable[[Callable[[], object]], object]:
    """A failure that is none: `step` happens, then what was asked."""

    def perform_after(perform: Callable[[], object]) -> object:
        step()
        return perform()

    return perform_after


def after(step: Callable[[], object]) -> Callable[[Callable[[], object]], object]:
    """What was asked happens, then `step`, and only then the answer arrives."""

    def perform_before(perform: Callable[[], object]) -> object:
        result = perform()
        step()
        return result

    return perform_before


def bury(partition: Partition) -> None:
    """Checkpoint what `partition` knows and clean the log before it, an hour later."""
    partition.clock.pause(LOG_RETENTION_MS / 1000 + 1)
    partition.refresh(wait=True)
    partition.checkpoint()
    partition.delete_expired_log()


def test_a_leader_that_slept_past_a_cleanup_is_fenced(partition: Partition) -> None:
    append(partition, b"mine")
    other = another(partition)
    other.claim("http://second")
    append_each(other, [b"theirs", b"theirs too"])
    bury(other)
    assert log_versions(other)[0] == [other.snapshot.version]

    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert not partition.leading
    assert values(another(partition)) == [b"mine", b"theirs", b"theirs too"]


def test_a_leader_that_slept_in_its_put_is_fenced(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    append(partition, b"mine")
    other = another(partition)

    def sleep() -> None:
        clock.advance(STALE_MS + 1)
        other.checkpoint()
        other.delete_expired_log()

    sleepy = another(partition, FaultyStore(store, [Fault(2, before(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    other.claim("http://second")
    append(other, b"theirs")
    clock.advance(ALMOST_STALE_MS)
    with pytest.raises(NotLeader):
        append(sleepy, b"lost")
    assert log_versions(other)[0] == [other.snapshot.version - 1, other.snapshot.version]
    assert values(another(partition)) == [b"mine", b"theirs"]


def test_a_leader_that_slept_in_its_put_for_an_hour_does_not_know_what_became_of_it(
    store: Store, partition: Partition
) -> None:
    append(partition, b"mine")
    other = another(partition)

    def sleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        bury(other)

    sleepy = another(partition, FaultyStore(store, [Fault(2, before(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    with pytest.raises(OutcomeUnknown, match="may have been removed since"):
        append(sleepy, b"lost")
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine", b"theirs"]


def test_a_leader_whose_segment_was_merged_and_forgotten_in_its_put_does_not_say_that_it_was_fenced(
    store: Store, partition: Partition
) -> None:
    """An hour after a merge nothing tells of its inputs any more: absence is no proof."""
    other = another(partition)

    def sleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        inputs = other.snapshot.segments
        assert commit_merge(other.table, inputs, merge(store, TABLE, inputs, "zstd", other.clock))
        bury(other)

    sleepy = another(partition, FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    with pytest.raises(OutcomeUnknown, match="may have been removed since"):
        append(sleepy, b"mine")
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine", b"theirs"]


def test_a_leader_whose_answer_came_within_the_hour_knows_its_segment_among_the_removed(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    other = another(partition)

    def sleep() -> None:
        other.refresh()
        other.truncate(1)
        clock.advance(LOG_RETENTION_MS - 1)
        other.checkpoint()

    sleepy = another(partition, FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    assert append(sleepy, b"mine") == 0
    assert sleepy.leading
    assert sleepy.snapshot.segments == ()


def test_a_leader_whose_answer_came_an_hour_late_knows_that_it_won(
    store: Store, partition: Partition
) -> None:
    other = another(partition)

    def sleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        bury(other)

    sleepy = another(partition, FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    assert append(sleepy, b"mine") == 0
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine", b"theirs"]
    with pytest.raises(NotLeader):
        append(sleepy, b"lost")


def test_many_short_sleeps_do_not_add_up_to_a_lost_fence(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1", b"2"])
    other = another(partition)

    def nap() -> None:
        clock.advance(ALMOST_STALE_MS)
        other.checkpoint()
        other.delete_expired_log()

    sleepy = another(partition, FaultyStore(store, [Fault(n, before(nap), COMMITS, LOG) for n in (2, 3, 4)]))
    sleepy.claim("http://sleepy")
    # Two versions of maintenance, then the fence, right after the sleepy one has looked.
    other.truncate(1)
    other.truncate(2)
    other.claim("http://second")
    append(other, b"theirs")

    with pytest.raises(NotLeader):
        append(sleepy, b"lost")
    assert values(another(partition)) == [b"2", b"theirs"]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
def test_an_opening_that_meets_a_cleanup_at_any_step_sees_the_newest_version(
    store: Store, clock: ManualClock, partition: Partition, step: int, checkpointed: bool
) -> None:
    if checkpointed:
        partition.checkpoint()
    append_each(partition, [b"0", b"1"])
    clock.advance(LOG_RETENTION_MS + 1)
    cleaner = another(partition)

    def clean() -> None:
        cleaner.checkpoint()
        cleaner.delete_expired_log()

    reads = {"get", "head", "list"}
    opening = another(partition, FaultyStore(store, [Fault(step, before(clean), reads)]))
    assert opening.snapshot.version == partition.snapshot.version


def test_a_claim_is_seen_by_all_though_a_clock_let_the_log_be_cleaned_too_early(
    clock: ManualClock, partition: Partition
) -> None:
    append(partition, b"0")
    follower = another(partition)
    append(partition, b"1")
    append(partition, b"2")
    partition.checkpoint()
    clock.jump(LOG_RETENTION_MS + 1)
    assert partition.delete_expired_log() > follower.snapshot.version
    follower.claim("http://second")
    assert follower.high_watermark == 3
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert append(follower, b"3") == 3
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]


# Opening.


def test_a_table_is_made_once(store: Store, clock: ManualClock) -> None:
    create_table(
        store, "topics/new/0", clock, {"delta.setTransactionRetentionDuration": "interval 5 seconds"}
    )
    table = Table(store, "topics/new/0", clock)
    assert (table.snapshot.version, table.snapshot.high_watermark, table.snapshot.leader_epoch) == (0, 0, 0)
    configuration = table.snapshot.metadata.configuration
    assert configuration["delta.enableExpiredLogCleanup"] == "false"
    assert configuration["delta.setTransactionRetentionDuration"] == "interval 5 seconds"
    assert "delta.appendOnly" not in configuration
    with pytest.raises(AlreadyExists, match="there is a table at topics/new/0 already"):
        create_table(store, "topics/new/0", clock)


def test_where_there_is_no_table_none_is_opened(store: Store, clock: ManualClock) -> None:
    with pytest.raises(ObjectMissing, match="there is no table at topics/none/0"):
        Table(store, "topics/none/0", clock)


def test_a_table_that_asks_for_more_is_not_led(partition: Partition, store: Store) -> None:
    path = commit_path(TABLE, 0)
    asked = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"]}}'
    lines = store.get(path).splitlines()
    store.put(path, b"\n".join(asked if line.startswith(b'{"protocol"') else line for line in lines))
    with pytest.raises(UnsupportedTable, match="deletionVectors"):
        another(partition)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_commit_that_cannot_be_read_is_named(partition: Partition, store: Store, version: int) -> None:
    append_each(partition, [b"0", b"1"])
    store.put(commit_path(TABLE, version), b"rotten")
    with pytest.raises(CorruptLog, match=commit_path(TABLE, version)):
        another(partition)


def test_a_checkpoint_that_cannot_be_read_is_named(partition: Partition, store: Store) -> None:
    append(partition, b"0")
    partition.checkpoint()
    store.put(checkpoint_path(TABLE, 2), b"rotten")
    with pytest.raises(CorruptLog, match="checkpoint 2 of topics/t/0 cannot be read"):
        another(partition)


def test_a_table_opens_by_its_checkpoint_and_the_commits_after_it_alone(
    partition: Partition, store: Store
) -> None:
    append_each(partition, [b"%d" % number for number in range(8)])
    partition.checkpoint()
    append_each(partition, [b"8", b"9"])
    watched = FaultyStore(store)
    opened = another(partition, watched)
    assert opened.snapshot.segments == partition.snapshot.segments
    assert opened.snapshot.txns == partition.snapshot.txns
    asked = [call.path for call in watched.calls]
    assert asked[:2] == [last_checkpoint_path(TABLE), checkpoint_path(TABLE, 9)]
    assert {path for path in asked if path.endswith(".json")} == {
        commit_path(TABLE, version) for version in (9, 10, 11, 12, 13)
    }


# Checkpoints and cleanups.


def test_a_checkpoint_is_due_after_so_many_commits(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHECKPOINT_INTERVAL_COMMITS", 4)
    due = []
    for _ in range(10):
        due.append(partition.checkpoint_due())
        if due[-1]:
            partition.checkpoint()
        append(partition, b"x")
    assert due == [False, False, False, True, False, False, False, True, False, False]
    assert not another(partition).checkpoint_due()


def test_a_slow_writer_that_sets_the_hint_back_misleads_nobody(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    """It wakes from its checkpoint after a cleanup, and puts a commit in a place that was cleaned."""
    append_each(partition, [b"0", b"1"])
    slow = another(partition)
    append_each(partition, [b"2", b"3"])
    ghost = store.get(commit_path(TABLE, slow.snapshot.version + 1))
    bury(partition)
    slow.checkpoint()
    store.put_if_absent(commit_path(TABLE, slow.snapshot.version + 1), ghost)
    assert b'"version":3' in store.get(last_checkpoint_path(TABLE))
    assert another(partition).snapshot.version == partition.snapshot.version
    opened = another(partition)
    opened.claim("http://second")
    assert append(opened, b"4") == 4
    assert values(another(partition)) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_younger_than_an_hour_or_not_below_a_checkpoint_is_never_cleaned(
    clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1"])
    clock.advance(LOG_RETENTION_MS)
    append_each(partition, [b"2", b"3"])
    assert partition.delete_expired_log() == 0
    partition.checkpoint()
    assert partition.delete_expired_log() == 0
    clock.advance(1)
    assert partition.delete_expired_log() == 4
    assert log_versions(partition) == ([4, 5], [5])
    clock.advance(LOG_RETENTION_MS)
    assert partition.delete_expired_log() == 1
    assert log_versions(partition) == ([5], [5])
    clock.advance(LOG_RETENTION_MS)
    assert partition.delete_expired_log() == 0


def test_a_dry_run_of_a_cleanup_says_how_many_and_deletes_none(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1"])
    partition.checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    watched = FaultyStore(store)
    table = Table(watched, TABLE, clock)
    assert table.delete_expired_log(dry_run=True) == 3
    assert watched.writes() == 0
    assert table.delete_expired_log() == 3
    assert watched.writes() == 3
    assert table.delete_expired_log(dry_run=True) == 0


@pytest.mark.parametrize("nth", range(1, 9))
def test_another_process_may_tidy_a_log_beside_its_leader(
    store: Store, clock: ManualClock, partition: Partition, nth: int
) -> None:
    """Both write checkpoints and clean, at any step of the other, and the one that began first ends last."""
    append_each(partition, [b"0", b"1", b"2"])
    clock.advance(LOG_RETENTION_MS + 1)

    def tidy() -> None:
        append(partition, b"3")
        partition.checkpoint()
        partition.delete_expired_log()

    operations = {"get", "list", "put", "delete", "now_ms"}
    driver = another(partition, FaultyStore(store, [Fault(nth + 9, before(tidy), operations)]))
    for _ in range(3):
        driver.checkpoint()
        driver.delete_expired_log()
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]
    assert append(partition, b"4") == 4
    assert values(another(partition)) == [b"0", b"1", b"2", b"3", b"4"]
    assert check_partition(store, TABLE).problems == []


def test_other_readers_find_the_newest_version_when_the_hint_was_set_back(store_root: Path) -> None:
    """By a slow process: to a checkpoint that was cleaned, and to one before a hole."""
    partition = new_partition(open_store(store_root), SystemClock())
    slow = another(partition)
    append_each(partition, [b"0", b"1", b"2", b"3"])
    partition.checkpoint()
    for path in (store_root / TABLE / "_delta_log").iterdir():
        os.utime(path, (0, 0))
    assert partition.delete_expired_log() == 5
    slow.checkpoint()
    location = partition.table.store.delta_location(TABLE)[0]
    assert log_versions(partition) == ([5], [1, 5])
    assert DeltaTable(location).to_pyarrow_table().num_rows == 4
    os.utime(store_root / checkpoint_path(TABLE, 1), (0, 0))
    assert partition.delete_expired_log() == 1
    assert b'"version":1' in partition.table.store.get(last_checkpoint_path(TABLE))
    assert DeltaTable(location).version() == 5
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]


def test_a_cleanup_leaves_no_hole_before_a_young_file(clock: ManualClock, partition: Partition) -> None:
    append_each(partition, [b"0", b"1", b"2"])
    partition.checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    partition.table.store.put(commit_path(TABLE, 2), partition.table.store.get(commit_path(TABLE, 2)))
    assert partition.delete_expired_log() == 2
    assert log_versions(partition)[0] == [2, 3, 4]


def test_a_cleanup_on_a_disk_judges_by_the_age_of_the_files(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    append_each(partition, [b"0", b"1"])
    partition.checkpoint()
    assert partition.delete_expired_log() == 0
    old = os.stat(store_root / commit_path(TABLE, 0)).st_mtime - LOG_RETENTION_MS / 1000 - 1
    for version in (0, 1):
        os.utime(store_root / commit_path(TABLE, version), (old, old))
    assert partition.delete_expired_log() == 2
    assert log_versions(partition) == ([2, 3], [3])
    fresh = another(partition)
    fresh.claim("http://second")
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert append(fresh, b"2") == 2


def test_old_tombstones_are_left_out_of_checkpoints(clock: ManualClock, partition: Partition) -> None:
    append_each(partition, [b"0", b"1"])
    partition.truncate(1)
    partition.checkpoint()
    assert len(another(partition).snapshot.tombstones) == 1
    clock.advance(TOMBSTONE_RETENTION_MS + 1)
    append(partition, b"2")
    partition.checkpoint()
    assert another(partition).snapshot.tombstones == {}
    assert values(another(partition)) == [b"1", b"2"]


# Following and committing.


def test_a_reader_that_slept_past_a_cleanup_sees_the_newest_version(
    clock: ManualClock, partition: Partition
) -> None:
    reader = another(partition)
    append_each(partition, [b"0", b"1", b"2"])
    bury(partition)
    assert reader.refresh().version == partition.snapshot.version
    assert values(reader) == [b"0", b"1", b"2"]


def test_a_refresh_does_not_wait_for_a_commit_in_flight(store: Store, partition: Partition) -> None:
    in_flight, done = threading.Event(), threading.Event()

    def hang() -> None:
        in_flight.set()
        assert done.wait(60)

    slow = another(partition, FaultyStore(store, [Fault(2, before(hang), COMMITS)]))
    slow.claim("http://second")
    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(append, slow, b"0")
        assert in_flight.wait(60)
        assert slow.refresh().high_watermark == 0
        assert slow.fetch(0, 100).num_rows == 0
        done.set()
        assert appending.result() == 0
    assert values(slow) == [b"0"]


class WatchedLock:
    """A lock that tells, by `asked`, of each who asks for it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._lock = threading.RLock()

    def acquire(self, blocking: bool = True) -> bool:
        self.asked.release()
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


def test_who_comes_while_another_looks_shares_a_look_that_began_later(
    store: Store, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has found nothing, and does not know it yet, when there is something, and others ask."""
    faulty = FaultyStore(store)
    reader = another(partition, faulty)
    opened = len(faulty.calls)
    lock, looked, done = WatchedLock(), threading.Event(), threading.Event()
    monkeypatch.setattr(reader.table, "_lock", lock)

    def answer_late(perform: Callable[[], object]) -> object:
        try:
            return perform()
        finally:
            looked.set()
            assert done.wait(60)

    faulty._faults.append(Fault(1, answer_late, {"get"}, LOG))
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(reader.table.refresh)
        assert looked.wait(60)
        append(partition, b"0")
        others = [pool.submit(reader.table.refresh) for _ in range(2)]
        assert all(lock.asked.acquire(timeout=60) for _ in range(3))
        done.set()
        first.result()
        assert [other.result().high_watermark for other in others] == [1, 1]
    after_it = commit_path(TABLE, partition.snapshot.version + 1)
    assert [call.path for call in faulty.calls[opened:]].count(after_it) == 1


def test_nothing_is_written_when_the_builder_gives_up_or_fails(partition: Partition) -> None:
    version = partition.snapshot.version

    def fail(_: Snapshot) -> Commit:
        raise NotLeader("on purpose")

    assert partition.table.transact(lambda _: None) is None
    with pytest.raises(NotLeader, match="on purpose"):
        partition.table.transact(fail)
    assert another(partition).snapshot.version == version


def test_a_commit_that_would_break_an_invariant_is_not_written(partition: Partition) -> None:
    append(partition, b"0")
    version = partition.snapshot.version
    info = commit_info(partition.clock, "WRONG")
    with pytest.raises(CorruptLog, match="leader epoch moved back from 1 to 0"):
        partition.table.transact(lambda _: Commit(info, (Txn(TXN_LEADER, 0),)))
    assert another(partition).snapshot.version == version


def test_a_claim_whose_answer_came_an_hour_late_is_made_again(store: Store, partition: Partition) -> None:
    """Whether the first counted is not looked for: a second claim fences at least as well."""
    other = another(partition)

    def sleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        bury(other)

    sleepy = another(partition, FaultyStore(store, [Fault(1, after(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    with pytest.raises(NotLeader):
        append(other, b"lost")
    assert append(sleepy, b"mine") == 1
    assert values(another(partition)) == [b"theirs", b"mine"]


def test_a_table_that_cannot_be_read_again_leaves_the_outcome_unknown(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    def sleep() -> None:
        clock.advance(STALE_MS)
        faulty._faults.append(Fault(1, unavailable, {"get"}))

    faulty = FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)])
    sleepy = another(partition, faulty)
    sleepy.claim("http://sleepy")
    with pytest.raises(OutcomeUnknown):
        append(sleepy, b"mine")
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine"]
