"""The files that a vacuum must not delete, whichever process sleeps, and whatever a machine's clock says."""

import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.errors import CorruptSegment, InvalidArgument, OffsetOutOfRange
from log_tables.layout import ledger_path
from log_tables.limits import (
    CONFIRMATION_MAX_AGE_S,
    FILE_RETENTION_MS,
    REPLACED_FILE_RETENTION_MS,
    REWRITE_MAX_AGE_MS,
    VACUUM_MARK_AGE_MS,
)
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader
from log_tables.root.table_check import check_partition
from log_tables.segments.rewrite import commit_compaction, commit_merge
from log_tables.segments.segment_cache import SegmentCache
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, vacuum
from log_tables.testing import Fault, FaultyStore
from tests.kit.failures import before
from tests.kit.partitions import TABLE, another, append_each, values
from tests.kit.vacuums import DAY_MS, HOUR_MS, NOTHING, ORPHAN, World


def planned(world: World, clock: ManualClock) -> tuple[PartitionReader, ReadPlan]:
    """A reader on a clock of its own, and its plan to read all."""
    reader = PartitionReader(world.store, TABLE, clock, cache=SegmentCache(0))
    return reader, reader.plan_read(0, 1 << 20)


def read(reader: PartitionReader, plan: ReadPlan) -> list[bytes]:
    return [row for batch in reader.read(plan, ["value"]) for row in batch.column("value").to_pylist()]


@pytest.mark.parametrize("awake", [True, False])
def test_a_reader_that_planned_before_merges_goes_on_in_what_replaced_its_files(
    world: World, awake: bool
) -> None:
    """This includes a reader whose clock stood still, and for which the log was cleaned too early."""
    append_each(world.partition, [b"0", b"1", b"2"])
    reader, plan = planned(world, world.clock if awake else ManualClock())
    for value in (b"3", b"4"):
        world.merge()
        append_each(world.partition, [value])
        world.vacuum()
        assert read(reader, plan) == [b"0", b"1", b"2"]
        world.wait(REPLACED_FILE_RETENTION_MS + 1)
        assert world.vacuum().deleted > 0
        world.partition.checkpoint()
        assert world.partition.table.delete_expired_log() > 0
    assert read(reader, plan) == [b"0", b"1", b"2"]
    assert values(reader) == [b"%d" % number for number in range(5)]


def test_a_read_that_has_begun_goes_on_where_it_was(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2", b"3"])
    reader, plan = planned(world, world.clock)
    batches = reader.read(plan)
    found = [next(batches), next(batches)]
    world.merge()
    world.vacuum()
    world.wait(REPLACED_FILE_RETENTION_MS + 1)
    assert world.vacuum().deleted == 4
    found += batches
    assert [row for batch in found for row in batch.column("value").to_pylist()] == [b"0", b"1", b"2", b"3"]


def test_a_reader_that_planned_before_a_deletion_reads_on_for_a_day(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    reader, plan = planned(world, world.clock)
    world.partition.truncate(2)
    world.vacuum()
    world.wait(DAY_MS)
    assert world.vacuum().deleted == 0
    assert read(reader, plan) == [b"0", b"1", b"2"]
    world.wait(1)
    assert world.vacuum().deleted == 2
    with pytest.raises(OffsetOutOfRange, match="use one from 2 to 3"):
        read(reader, plan)


def test_a_file_that_is_missing_and_still_counts_is_damage(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    reader, plan = planned(world, world.clock)
    (lost,) = (segment.path for segment in plan.segments[1:2])
    world.store.delete(f"{TABLE}/{lost}")
    with pytest.raises(CorruptSegment, match=f"{lost} is missing"):
        read(reader, plan)


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
    world.wait(REPLACED_FILE_RETENTION_MS + 1)
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
    """The table's log was cleaned meanwhile, so the vacuum's knowledge is old."""
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
@pytest.mark.parametrize(
    ("removed", "stay_ms"), [("merged", REPLACED_FILE_RETENTION_MS), ("deleted", FILE_RETENTION_MS)]
)
def test_no_wrong_clock_of_a_machine_changes_anything(
    request: pytest.FixtureRequest, removed: str, stay_ms: int, days: int
) -> None:
    world: World = request.getfixturevalue(removed)
    world.clock.jump(days * DAY_MS)
    assert world.vacuum().marked == 3
    world.clock.jump(-2 * days * DAY_MS)
    assert world.vacuum() == VacuumResult(0, 3, 0, 0)
    world.wait(stay_ms)
    world.clock.jump(days * DAY_MS)
    assert world.vacuum() == VacuumResult(0, 3, 0, 0)
    world.clock.jump(days * DAY_MS)
    world.wait(1)
    assert world.vacuum().deleted == 3
