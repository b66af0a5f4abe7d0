"""What a vacuum must not delete, whoever sleeps, and whatever the clock of a machine says."""

import pytest
from msgspec.structs import replace

from log_tables.errors import InvalidArgument
from log_tables.layout import ledger_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S, REWRITE_MAX_AGE_MS, VACUUM_MARK_AGE_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check_partition
from log_tables.segments.rewrite import commit_compaction, commit_merge
from log_tables.segments.segment import SegmentCache
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, vacuum
from log_tables.testing import Fault, FaultyStore
from tests.kit.failures import before
from tests.kit.partitions import TABLE, another, append_each, values
from tests.kit.vacuums import DAY_MS, NOTHING, ORPHAN, World

HOUR_MS = 60 * 60 * 1000


def test_a_reader_that_planned_before_a_merge_reads_on_for_a_day(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    reader = Partition(world.store, TABLE, world.clock, cache=SegmentCache(0))
    plan = reader.plan_read(0, 1 << 20)
    world.wait(10 * DAY_MS)
    world.merge()
    for _ in range(4):
        world.vacuum()
        assert [row for batch in reader.read(plan) for row in batch.column("value").to_pylist()] == [
            b"0",
            b"1",
            b"2",
        ]
        world.wait(DAY_MS // 4)
    world.wait(1)
    assert world.vacuum().deleted == 3
    assert values(another(world.partition)) == [b"0", b"1", b"2"]


def test_a_merge_that_is_committed_after_a_mark_stays_and_goes_a_day_after_its_end(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    world.store.put_new(f"{TABLE}/{ORPHAN}", b"somebody's")
    inputs = world.partition.snapshot.segments
    world.wait(VACUUM_MARK_AGE_MS)
    made = world.merged(inputs)
    world.wait(2 * HOUR_MS)
    assert world.vacuum() == VacuumResult(1, 0, 0, 0)
    assert commit_merge(world.partition.table, inputs, made)
    world.vacuum()
    world.wait(DAY_MS + 1)
    assert world.vacuum().deleted == 4
    assert world.files() == {made.path}

    world.partition.truncate(3)
    world.vacuum()
    for _ in range(3):
        world.wait(DAY_MS // 3)
        assert world.vacuum().deleted == 0
        assert world.files() == {made.path}
    world.wait(1)
    assert world.vacuum().deleted == 1


def test_a_file_of_a_ledger_that_is_in_the_table_is_not_deleted(merged: World) -> None:
    """As after the table was restored to an older version, by hand."""
    (live,) = merged.live()
    merged.store.put(ledger_path(TABLE, 1, "0123abcd"), f'["{live}"]'.encode())
    merged.wait(DAY_MS + 1)
    assert merged.vacuum() == VacuumResult(3, 0, 0, 0)
    assert values(another(merged.partition)) == [b"0", b"1", b"2"]


def test_a_merge_that_sleeps_in_its_put_while_its_output_goes_is_not_committed(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    inputs = world.partition.snapshot.segments
    made = world.merged(inputs)

    def sleep() -> None:
        world.wait(VACUUM_MARK_AGE_MS + 1)
        assert world.vacuum().marked == 1
        world.wait(DAY_MS + 1)
        assert world.vacuum().deleted == 1

    faulty = FaultyStore(world.store, [Fault(1, before(sleep), {"put_if_absent"})])
    with pytest.raises(InvalidArgument, match="longer than 3 hours and was not committed"):
        commit_merge(Table(faulty, TABLE, world.clock), inputs, made)
    assert values(another(world.partition)) == [b"0", b"1", b"2"]
    assert check_partition(world.store, TABLE).problems == []


def test_a_rewrite_that_took_too_long_is_not_committed(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    table, inputs = world.partition.table, world.partition.snapshot.segments
    begun, made = world.clock.boottime(), world.merged(inputs)
    world.clock.jump(-DAY_MS)
    world.wait(REWRITE_MAX_AGE_MS + 1)
    with pytest.raises(InvalidArgument, match="a vacuum may delete its files"):
        commit_merge(table, inputs, made, begun)
    with pytest.raises(InvalidArgument, match="a vacuum may delete its files"):
        commit_compaction(table, inputs, [made], 3, begun)
    assert world.live() == {item.path for item in inputs}
    assert commit_merge(table, inputs, made, begun + 0.001)


def test_what_is_committed_while_the_files_are_listed_is_not_marked(world: World) -> None:
    append_each(world.partition, [b"0", b"1"])

    def meanwhile() -> None:
        world.wait(1)
        world.merge()
        world.wait(VACUUM_MARK_AGE_MS + 1)

    world.wait(VACUUM_MARK_AGE_MS + 1)
    slow = FaultyStore(world.store, [Fault(1, before(meanwhile), {"list"}, "_vacuum")])
    assert world.vacuum(slow) == NOTHING
    slow = FaultyStore(world.store, [Fault(1, before(meanwhile), {"now_ms"})])
    assert world.vacuum(slow).marked == 3


def test_a_vacuum_that_slept_opens_the_table_again(merged: World) -> None:
    """Its log was cleaned meanwhile: what it knows of the table is of long ago."""
    sleepy = Table(merged.store, TABLE, merged.clock)
    append_each(merged.partition, [b"3", b"4"])
    merged.merge()
    merged.wait(VACUUM_MARK_AGE_MS + 1)
    merged.partition.refresh(wait=True)
    merged.partition.checkpoint()
    assert merged.partition.table.delete_expired_log() > sleepy.snapshot.version
    assert vacuum(sleepy).marked == 6
    assert sleepy.snapshot.version == merged.partition.snapshot.version
    merged.wait(DAY_MS + 1)
    assert vacuum(sleepy).deleted == 6
    assert merged.files() == merged.live()


def test_a_vacuum_that_sleeps_before_it_deletes_looks_again(merged: World) -> None:
    """A file that became part of the table again in its sleep stays: against all rules, but so."""
    merged.vacuum()
    (live,) = another(merged.partition).snapshot.segments
    again = min(merged.files() - merged.live())
    merged.wait(DAY_MS + 1)
    merged.store.put(f"{TABLE}/{again}", merged.store.get(f"{TABLE}/{live.path}"))

    def sleep() -> None:
        merged.wait(int(CONFIRMATION_MAX_AGE_S * 1000) + 1)
        assert commit_merge(Table(merged.store, TABLE, merged.clock), (live,), replace(live, path=again))

    faulty = FaultyStore(merged.store, [Fault(1, before(sleep), {"put_if_absent"}, "_delta_log")])
    assert merged.vacuum(faulty).deleted == 2
    assert merged.files() - {live.path} == merged.live() == {again}


@pytest.mark.parametrize("days", [-400, -2, -1, 1, 2, 400])
def test_no_wrong_clock_of_a_machine_changes_anything(merged: World, days: int) -> None:
    merged.clock.jump(days * DAY_MS)
    assert merged.vacuum().marked == 3
    merged.clock.jump(-2 * days * DAY_MS)
    assert merged.vacuum() == VacuumResult(0, 3, 0, 0)
    merged.wait(DAY_MS)
    merged.clock.jump(days * DAY_MS)
    assert merged.vacuum() == VacuumResult(0, 3, 0, 0)
    merged.clock.jump(days * DAY_MS)
    merged.wait(1)
    assert merged.vacuum().deleted == 3
