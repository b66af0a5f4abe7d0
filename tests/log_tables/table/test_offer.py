"""Maintenance beside a leader that is faster: how many attempts it takes, and that an offer harms nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.columns.declaration import parse
from log_tables.errors import CorruptLog
from log_tables.layout import PROPERTY_CLUSTER, TXN_HIGH_WATERMARK, offer_path
from log_tables.limits import OFFER_MAX_AGE_MS
from log_tables.partition.partition import Partition
from log_tables.partition.tier import commit_copies, copy, release
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Commit, Txn, read_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.offer import has_offer, put_offer
from log_tables.table.table import Table, create_table
from log_tables.table.vacuum import vacuum
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    crash_after,
    crash_before,
    unavailable,
)
from tests.kit.offers import ATTEMPTS_MAX, Overtaken, busy, merge
from tests.kit.partitions import TABLE, another, append, append_each, new_partition, sound, values
from tests.kit.rewrites import merged

BACKLOG = [b"%d" % number for number in range(12)]
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def leader(store: Store, clock: ManualClock) -> Partition:
    """The leader of a partition with a backlog of small segments."""
    partition = new_partition(store, clock)
    append_each(partition, BACKLOG)
    return partition


def retype(table: Table) -> bool:
    columns, inputs = parse("n bigint"), table.snapshot.segments[:10]
    made = [rewrite.retype(table.store, TABLE, item, columns, "zstd", table.clock) for item in inputs]
    return rewrite.commit_retype(table, inputs, made, columns)


def compact(table: Table) -> bool:
    return rewrite.compact_by_key(table, "zstd")


def tier(table: Table, count: int = 10) -> bool:
    away = open_store("memory://away")
    create_table(away, TABLE, table.clock, {PROPERTY_CLUSTER: "here"})
    remote, given = Table(away, TABLE, table.clock), table.snapshot.segments[:count]
    copied = copy(table.store, away, TABLE, given, 0, "zstd", table.clock)
    commit_copies(table, remote, copied)
    gone = release(table, remote, copied, given[-1].last_offset + 1)
    assert gone == given
    return table.snapshot.tiered == count


def tier_all(table: Table) -> bool:
    """The last one is the newest when the move begins, and stays then."""
    return tier(table, len(BACKLOG))


def truncate(table: Table) -> bool:
    return Partition(table.store, TABLE, table.clock).truncate(5) == 5


def tidy(table: Table) -> bool:
    return vacuum(table).deleted == 10


@pytest.mark.parametrize(
    "maintain", [merge, compact, tier, tier_all, truncate], ids=lambda each: each.__name__
)
def test_maintenance_ends_beside_a_leader_that_always_is_first(
    store: Store, leader: Partition, maintain: Callable[[Table], bool]
) -> None:
    slow = Overtaken(store, busy(leader))
    assert maintain(Table(slow, TABLE, leader.clock))
    assert slow.attempts <= ATTEMPTS_MAX
    assert not has_offer(store, TABLE)
    assert append(leader, b"last") == leader.high_watermark - 1
    assert sound(leader)


def test_a_retype_ends_beside_a_leader_that_always_is_first(store: Store, leader: Partition) -> None:
    leader.table.widen(parse("n bigint"))  # the leader does so itself, as its topic declares
    assert retype(Table(Overtaken(store, busy(leader)), TABLE, leader.clock))
    leader.refresh()
    assert {item.columns for item in leader.snapshot.segments[:10]} == {parse("n bigint").id}
    assert sound(leader)


def test_a_vacuum_ends_beside_a_leader_that_always_is_first(
    store: Store, leader: Partition, clock: ManualClock
) -> None:
    assert merge(Table(store, TABLE, clock))
    assert vacuum(Table(store, TABLE, clock)).marked == 10
    clock.advance(DAY_MS)
    slow = Overtaken(store, busy(leader))
    assert tidy(Table(slow, TABLE, clock))
    assert slow.attempts == 1, "whoever put the next version, a rewrite that slept in its put loses"
    assert sound(leader)


@given(gaps=st.lists(st.booleans(), max_size=20), bursts=st.lists(st.integers(1, 4), max_size=20))
def test_records_are_kept_whoever_is_first(gaps: list[bool], bursts: list[int]) -> None:
    clock, store = ManualClock(), open_store("memory://")
    leader = new_partition(store, clock)
    append_each(leader, BACKLOG)
    often, step = iter(bursts), busy(leader)
    slow = Overtaken(store, lambda: [step() for _ in range(next(often, 1))], iter(gaps))
    assert merge(Table(slow, TABLE, clock))
    leader.refresh()
    news = leader.high_watermark - len(BACKLOG)
    assert values(leader) == [*BACKLOG, *[b"new"] * news]
    assert len(leader.snapshot.segments) == news + 3
    assert sound(leader)


def test_what_an_offer_costs_the_leader_is_one_commit(store: Store, leader: Partition) -> None:
    counted = FaultyStore(store)
    slowed = another(leader, counted)
    slowed.claim("http://second")
    before = counted.writes()
    append(slowed, b"new")
    alone = counted.writes() - before

    def step() -> None:
        before = counted.writes()
        append(slowed, b"new")
        if slowed.offer_due and slowed.has_offer():
            slowed.take_offer()
            assert counted.writes() - before == alone + 2  # the commit, and the offer's deletion

    assert merge(Table(Overtaken(store, step), TABLE, leader.clock))


def offered(table: Table) -> Commit:
    """The commit of a merge that a process offered before it ended."""
    inputs, made = (
        table.snapshot.segments[:10],
        merged(Partition(table.store, TABLE, table.clock), table.snapshot.segments[:10]),
    )
    now_ms = table.clock.now_ms()
    removes = tuple(item.remove(now_ms, False) for item in inputs)
    commit = Commit(commit_info(table.clock, "OPTIMIZE"), adds=(made.add(False),), removes=removes)
    put_offer(table.store, TABLE, table.snapshot, commit)
    return commit


def test_an_offer_of_a_dead_process_is_taken(leader: Partition) -> None:
    commit = offered(leader.table)
    leader.clock.pause(1)
    leader.take_offer()
    found = read_commit(leader.table.store, TABLE, leader.snapshot.version)
    assert found is not None
    assert found.info == commit.info
    assert len(leader.snapshot.segments) == 3
    assert values(leader) == BACKLOG
    assert sound(leader)


def test_an_old_offer_is_dropped(store: Store, leader: Partition, clock: ManualClock) -> None:
    offered(leader.table)
    clock.advance(OFFER_MAX_AGE_MS + 1_000)
    leader.take_offer()
    assert (len(leader.snapshot.segments), has_offer(store, TABLE)) == (12, False)


def test_an_offer_whose_files_were_replaced_meanwhile_is_dropped(store: Store, leader: Partition) -> None:
    offered(leader.table)
    assert merge(Table(store, TABLE, leader.clock))
    leader.take_offer()
    assert (len(leader.snapshot.segments), has_offer(store, TABLE)) == (3, False)
    assert sound(leader)


def test_an_offer_to_a_leader_that_was_fenced_is_dropped(store: Store, leader: Partition) -> None:
    offered(leader.table)
    another(leader).claim("http://second")
    leader.take_offer()
    assert has_offer(store, TABLE) is False
    assert not leader.leading
    assert len(another(leader).snapshot.segments) == 12


def garbage(_: Table) -> bytes:
    return b"{"


def an_append(table: Table) -> bytes:
    commit = Commit(commit_info(table.clock, "WRITE"), txns=(Txn(TXN_HIGH_WATERMARK, 99),))
    put_offer(table.store, TABLE, table.snapshot, commit)
    return table.store.get(offer_path(TABLE))


def a_loss(table: Table) -> bytes:
    """Maintenance that drops records and says that it does not."""
    removes = (table.snapshot.segments[0].remove(0, False),)
    commit = Commit(commit_info(table.clock, "OPTIMIZE"), removes=removes)
    put_offer(table.store, TABLE, table.snapshot, commit)
    return table.store.get(offer_path(TABLE))


@pytest.mark.parametrize("content", [garbage, an_append, a_loss], ids=lambda each: each.__name__)
def test_a_wrong_offer_is_refused_and_the_leader_leads_on(
    store: Store, leader: Partition, content: Callable[[Table], bytes]
) -> None:
    store.put(offer_path(TABLE), content(leader.table))
    with pytest.raises(CorruptLog):
        leader.take_offer()
    assert not has_offer(store, TABLE)
    append(leader, b"new")
    assert values(leader) == [*BACKLOG, b"new"]


def test_an_offer_that_was_copied_with_another_table_is_dropped(
    store: Store, leader: Partition, clock: ManualClock
) -> None:
    offered(leader.table)
    other = "topics/t/partition=1"
    create_table(store, other, clock)
    following = Partition(store, other, clock)
    following.claim("http://first")
    store.put(offer_path(other), store.get(offer_path(TABLE)))
    version = following.snapshot.version
    following.take_offer()
    assert following.snapshot.version == version


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_leader_that_dies_at_any_write_leaves_a_sound_log(
    store: Store, leader: Partition, failure: Failure, nth: int
) -> None:
    dying = another(leader, FaultyStore(store, [Fault(nth + 2, failure)]))  # its claim comes first
    dying.claim("http://second")

    def step() -> None:
        nonlocal dying
        try:
            busy(dying)()
        except Crash:
            dying = another(leader, store)
            dying.claim("http://third")

    assert merge(Table(Overtaken(store, step), TABLE, leader.clock))
    leader.refresh()
    assert values(leader)[:12] == BACKLOG
    assert sound(leader)


def test_maintenance_beside_no_leader_makes_no_offer(store: Store, leader: Partition) -> None:
    counted = FaultyStore(store)
    assert merge(Table(counted, TABLE, leader.clock))
    assert not [call for call in counted.calls if call.path == offer_path(TABLE)]


def test_an_offer_that_could_not_be_withdrawn_is_dropped_by_the_leader(
    store: Store, leader: Partition
) -> None:
    fails = FaultyStore(Overtaken(store, lambda: append(leader, b"new"), iter([False] * 3)))
    fails.faults.append(Fault(1, unavailable, {"delete"}))
    assert merge(Table(fails, TABLE, leader.clock))
    assert has_offer(store, TABLE)
    leader.take_offer()
    assert not has_offer(store, TABLE)
    assert sound(leader)
