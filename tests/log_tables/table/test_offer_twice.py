"""An offer is done once, whatever its maker, its leader and the store do at the wrong time."""

import threading
from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, OutcomeUnknown, PutRefused
from log_tables.layout import TXN_CLEANED, TXN_LOG_START, offer_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S
from log_tables.partition.partition import Partition
from log_tables.store.store import Store
from log_tables.table.commit import VACUUM, Commit, Txn, read_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.offer import has_offer, put_offer
from log_tables.table.table import Table
from log_tables.testing import Failure, Fault, FaultyStore, refused, unavailable
from tests.kit.offers import Overtaken, busy, merge
from tests.kit.partitions import TABLE, append, append_each, entry, new_partition, sound, values

BACKLOG = [b"%d" % number for number in range(12)]


class BusyClock(ManualClock):
    """A clock during whose pauses `step` is done."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms, seed=1)
        self.steps: list[Callable[[], object]] = []

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        for step in self.steps:
            step()


@pytest.fixture
def leader(store: Store, clock: ManualClock) -> Partition:
    partition = new_partition(store, clock)
    append_each(partition, BACKLOG)
    return partition


def batch_ids(partition: Partition) -> list[str]:
    table = partition.table
    commits = (read_commit(table.store, TABLE, version) for version in range(table.snapshot.version + 1))
    return [commit.info.batchId for commit in commits if commit is not None]


def truncation(table: Table) -> Commit:
    """A truncation to the inside of a segment, which removes none."""
    return Commit(commit_info(table.clock, "DELETE RECORDS"), txns=(Txn(TXN_LOG_START, 13),))


def end_of_vacuum(table: Table) -> Commit:
    return Commit(commit_info(table.clock, VACUUM))


@pytest.mark.parametrize("make", [truncation, end_of_vacuum], ids=lambda each: each.__name__)
def test_an_offer_without_removes_that_its_maker_has_committed_is_not_put_again(
    store: Store, leader: Partition, make: Callable[[Table], Commit]
) -> None:
    leader.truncate(12)
    leader.append([entry(b"12", b"13", b"14")])
    maker = Table(store, TABLE, leader.clock)
    commit = make(maker)
    assert put_offer(store, TABLE, maker.snapshot, commit)
    assert maker.transact(lambda _: commit) == commit  # and it dies before it withdraws the offer
    append(leader, b"15")
    leader.take_offer()
    assert batch_ids(leader).count(commit.info.batchId) == 1
    assert not has_offer(store, TABLE)
    assert sound(leader)


def test_an_offer_that_would_move_a_border_back_is_dropped(store: Store, leader: Partition) -> None:
    """Another compaction by key has come further, and left its files as they are."""
    info, removes = commit_info(leader.clock, "COMPACT"), (leader.snapshot.segments[0].remove(0, True),)
    assert put_offer(store, TABLE, leader.snapshot, Commit(info, (Txn(TXN_CLEANED, 1),), removes=removes))
    other = Table(store, TABLE, leader.clock)
    other.transact(lambda _: Commit(commit_info(leader.clock, "COMPACT"), (Txn(TXN_CLEANED, 2),)))
    leader.refresh()
    leader.take_offer()
    assert (leader.snapshot.cleaned, has_offer(store, TABLE)) == (2, False)
    assert sound(leader)


def test_who_is_second_under_one_batch_id_follows_what_is_in_the_log(store: Store, leader: Partition) -> None:
    """Maker and leader may put one commit with other removes."""
    second, info = Table(store, TABLE, leader.clock), commit_info(leader.clock, "DELETE RECORDS")

    def cut(table: Table, before: int) -> Commit:
        removes = tuple(item.remove(0, True) for item in table.snapshot.segments[:before])
        return Commit(info, txns=(Txn(TXN_LOG_START, before),), removes=removes)

    first = leader.table.transact(lambda _: cut(leader.table, 2))
    assert second.transact(lambda _: cut(second, 3)) == first
    assert second.snapshot == leader.snapshot
    assert second.snapshot.log_start == 2


@pytest.mark.parametrize("failure", [unavailable, refused])
def test_a_store_that_refuses_the_offer_does_not_end_the_maintenance(
    store: Store, leader: Partition, failure: Failure
) -> None:
    gaps = iter([False] * 3)
    faulty = FaultyStore(store, [Fault(1, failure, {"put_if_absent"}, "_offer")])
    assert merge(Table(Overtaken(faulty, lambda: append(leader, b"new"), gaps), TABLE, leader.clock))
    assert [call for call in faulty.calls if call.path == offer_path(TABLE)]


@pytest.mark.parametrize("operation", ["get", "make_durable"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_store_that_fails_after_an_offer_leaves_the_outcome_unknown(
    store: Store, leader: Partition, operation: str, taken: bool
) -> None:
    faulty = FaultyStore(store)

    def step() -> None:
        append(leader, b"new")
        if has_offer(store, TABLE):
            if taken:
                leader.take_offer()
            faulty.faults.append(Fault(2, unavailable, {operation}))

    with pytest.raises(OutcomeUnknown, match="offered to the leader"):
        merge(Table(Overtaken(faulty, step), TABLE, leader.clock))
    assert not has_offer(store, TABLE)
    leader.refresh()
    assert len(leader.snapshot.segments) < 12 if taken else len(leader.snapshot.segments) > 12


def test_before_an_offer_a_store_that_fails_is_away_and_nothing_was_done(
    store: Store, leader: Partition
) -> None:
    fault = Fault(1, refused, {"put_if_absent"}, "_delta_log")
    with pytest.raises(PutRefused):
        merge(Table(FaultyStore(store, [fault]), TABLE, leader.clock))


@pytest.mark.parametrize("asleep_s", [0, CONFIRMATION_MAX_AGE_S + 1])
def test_others_use_the_table_in_its_pauses_and_what_the_leader_put_then_is_found(
    store: Store, leader: Partition, asleep_s: int
) -> None:
    clock = BusyClock(leader.clock.now_ms())
    table = Table(Overtaken(store, lambda: append(leader, b"new")), TABLE, clock)

    taken = list[int]()

    def step() -> None:
        if has_offer(store, TABLE):
            leader.take_offer()
            append(leader, b"later")
            taken.append(leader.snapshot.version)
        reader = threading.Thread(target=table.refresh, args=(True,))
        reader.start()
        reader.join(30)
        assert not reader.is_alive()
        clock.advance(asleep_s * 1000)

    clock.steps.append(step)
    assert merge(table)
    assert len(taken) == 1
    leader.refresh()
    assert len(batch_ids(leader)) == len({*batch_ids(leader)})
    assert values(leader)[:12] == BACKLOG
    assert sound(leader)


def nested(depth: int) -> bytes:
    return b'{"of later versions":' + b"[" * depth + b"]" * depth + b"}"


def test_an_offer_that_is_nested_too_deep_is_refused(store: Store, leader: Partition) -> None:
    store.put(offer_path(TABLE), nested(100_000))
    with pytest.raises(CorruptLog, match="cannot be read"):
        leader.take_offer()
    assert not has_offer(store, TABLE)


def test_who_loses_races_leaves_the_offers_of_others(store: Store, leader: Partition) -> None:
    theirs = Commit(commit_info(leader.clock, "DELETE RECORDS"), txns=(Txn(TXN_LOG_START, 1),))

    def step() -> None:
        append(leader, b"new")
        put_offer(store, TABLE, leader.snapshot, theirs)

    other = Partition(Overtaken(store, step, iter([False] * 4)), TABLE, leader.clock)
    other.claim("http://second")
    assert has_offer(store, TABLE)
    assert merge(Table(Overtaken(store, lambda: None), TABLE, leader.clock))
    assert has_offer(store, TABLE)


def test_a_busy_leader_takes_no_offer_for_a_minute_after_a_wrong_one(
    store: Store, leader: Partition, clock: ManualClock
) -> None:
    store.put(offer_path(TABLE), b"{")
    with pytest.raises(CorruptLog):
        leader.take_offer()
    due = list[bool]()
    for ms in (59_000, 1_000):
        clock.advance(ms)
        due.append(leader.offer_due)
    assert due == [False, True]
    assert merge(Table(Overtaken(store, busy(leader)), TABLE, clock))
