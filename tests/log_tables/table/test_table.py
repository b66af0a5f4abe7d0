"""One table followed by several processes: who commits which version, and who learns what of it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_tables.errors import AlreadyExists, CorruptLog, NotLeader, ObjectMissing, UnsupportedTable
from log_tables.layout import TXN_LEADER, checkpoint_path, commit_path, last_checkpoint_path
from log_tables.limits import LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.store.store import Store
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table, create_table
from log_tables.testing import Fault, FaultyStore, ManualClock
from tests.kit.failures import before
from tests.kit.partitions import TABLE, another, append, append_each, bury, values
from tests.kit.support import wait_until
from tests.kit.tables import refreshes_wait

COMMITS = {"put_if_absent"}
LOG = "_delta_log/"


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
        cleaner.table.delete_expired_log()

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
    assert partition.table.delete_expired_log() > follower.snapshot.version
    follower.claim("http://second")
    assert follower.high_watermark == 3
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert append(follower, b"3") == 3
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]


# Opening.


def test_a_table_is_made_once(store: Store, clock: ManualClock) -> None:
    create_table(
        store,
        "topics/new/partition=0",
        clock,
        {"delta.setTransactionRetentionDuration": "interval 5 seconds"},
    )
    table = Table(store, "topics/new/partition=0", clock)
    assert (table.snapshot.version, table.snapshot.high_watermark, table.snapshot.leader_epoch) == (0, 0, 0)
    configuration = table.snapshot.metadata.configuration
    assert configuration["delta.enableExpiredLogCleanup"] == "false"
    assert configuration["delta.setTransactionRetentionDuration"] == "interval 5 seconds"
    assert "delta.appendOnly" not in configuration
    with pytest.raises(AlreadyExists, match="there is a table at topics/new/partition=0 already"):
        create_table(store, "topics/new/partition=0", clock)


def test_where_there_is_no_table_none_is_opened(store: Store, clock: ManualClock) -> None:
    with pytest.raises(ObjectMissing, match="there is no table at topics/none/partition=0"):
        Table(store, "topics/none/partition=0", clock)


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
    with pytest.raises(CorruptLog, match="checkpoint 2 of topics/t/partition=0 cannot be read"):
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


def test_who_comes_while_another_looks_shares_a_look_that_began_later(
    store: Store, partition: Partition
) -> None:
    """The first has found nothing, and does not know it yet, when there is something, and others ask."""
    faulty = FaultyStore(store)
    reader = another(partition, faulty)
    opened = len(faulty.calls)
    looked, done = threading.Event(), threading.Event()

    def answer_late(perform: Callable[[], object]) -> object:
        try:
            return perform()
        finally:
            looked.set()
            assert done.wait(60)

    faulty.faults.append(Fault(1, answer_late, {"get"}, LOG))
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(reader.table.refresh)
        assert looked.wait(60)
        append(partition, b"0")
        others = [pool.submit(reader.table.refresh) for _ in range(2)]
        wait_until(refreshes_wait(reader.table, 2), "both others wait for the first")
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
