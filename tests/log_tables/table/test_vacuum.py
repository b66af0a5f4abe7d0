"""A vacuum deletes what nobody needs, a day after it was marked by the store's clock, and nothing else.

The clock of the store and that of the machine are two, and the machine's may be wrong by days.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.sweep import sweep
from log_tables.errors import CorruptLog, InvalidArgument, StoreUnavailable
from log_tables.layout import (
    PROPERTY_FILE_RETENTION,
    ledger_path,
    segment_base_offset,
    segment_name,
    vacuum_directory,
)
from log_tables.limits import (
    CONFIRMATION_MAX_AGE_S,
    FILE_RETENTION_MS,
    LOG_RETENTION_MS,
    REWRITE_MAX_AGE_MS,
    VACUUM_MARK_AGE_MS,
)
from log_tables.root.fsck import check_partition
from log_tables.segments.rewrite import commit_compaction, commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.table import vacuum as vacuums
from log_tables.table.commit import read_commit
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, vacuum
from log_tables.testing import (
    WRITES,
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    repeated,
)
from tests.kit.partitions import TABLE, another, append, append_each, held, new_partition, values
from tests.kit.support import S3Server

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
NOTHING = VacuumResult(0, 0, 0, 0)
ORPHAN = segment_name(0, "0123abcd")


class World:
    """A partition on a store whose clock is its own, and time that passes for both."""

    def __init__(self, inner: Store | None = None) -> None:
        self.clock, self.store_clock = ManualClock(seed=1), ManualClock(seed=2)
        self.store: Store = ClockedStore(inner or open_store("memory://"), self.store_clock)
        self.partition = new_partition(self.store, self.clock)

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.store_clock.advance(ms)

    def vacuum(self, store: Store | None = None) -> VacuumResult:
        """One by a process that has just opened the table."""
        return vacuum(Table(store or self.store, TABLE, self.clock))

    def merge(self, first: int = 0, end: int | None = None) -> tuple[Segment, ...]:
        """Merge segments at once; returns those that are gone."""
        inputs = self.partition.refresh(wait=True).segments[first:end]
        assert commit_merge(self.partition.table, inputs, self.merged(inputs))
        return inputs

    def merged(self, inputs: tuple[Segment, ...]) -> Segment:
        return merge(self.store, TABLE, inputs, "lz4", self.clock)

    def files(self) -> set[str]:
        """The names of the segment files that there are."""
        names = (item.path.removeprefix(f"{TABLE}/") for item in self.store.list(f"{TABLE}/"))
        return {name for name in names if segment_base_offset(name) is not None}

    def live(self) -> set[str]:
        return {segment.path for segment in another(self.partition).snapshot.segments}

    def ledgers(self) -> list[str]:
        return [item.path for item in self.store.list(f"{vacuum_directory(TABLE)}/")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def merged(world: World) -> World:
    """Three small segments that a merge has taken out of the table six hours ago."""
    append_each(world.partition, [b"0", b"1", b"2"])
    world.merge()
    world.wait(VACUUM_MARK_AGE_MS + 1)
    return world


def before(step: Callable[[], object]) -> Failure:
    """A failure that is none: `step` happens, then what was asked."""

    def perform_after(perform: Callable[[], object]) -> object:
        step()
        return perform()

    return perform_after


# What goes, and when.


def test_removed_files_go_a_day_after_they_were_marked(merged: World) -> None:
    size = sum(remove.size or 0 for remove in merged.partition.snapshot.tombstones.values())
    assert merged.vacuum() == VacuumResult(3, 0, 0, 0)
    assert merged.vacuum() == VacuumResult(0, 3, 0, 0)
    merged.wait(FILE_RETENTION_MS)
    assert merged.vacuum() == VacuumResult(0, 3, 0, 0)
    assert len(merged.files()) == 4
    merged.wait(1)
    assert merged.vacuum() == VacuumResult(0, 0, 3, size)
    assert merged.files() == merged.live()
    assert merged.ledgers() == []
    assert merged.vacuum() == NOTHING
    assert values(another(merged.partition)) == [b"0", b"1", b"2"]


def test_a_file_that_may_be_about_to_be_committed_is_not_marked(world: World) -> None:
    append_each(world.partition, [b"0", b"1"])
    world.merge()
    world.wait(VACUUM_MARK_AGE_MS)
    assert world.vacuum() == NOTHING
    assert world.ledgers() == []
    world.wait(1)
    assert world.vacuum().marked == 2


def test_what_leaders_left_goes_when_the_log_has_grown_beyond_it(world: World) -> None:
    world.store.put_new(f"{TABLE}/{ORPHAN}", b"never committed")
    for _ in range(3):
        world.wait(10 * DAY_MS)
        assert world.vacuum() == NOTHING
    append(world.partition, b"0")
    assert world.vacuum().marked == 1
    world.wait(DAY_MS + 1)
    assert world.vacuum().deleted_bytes == len(b"never committed")
    assert world.files() == world.live()


def test_what_is_not_a_segment_of_the_table_is_left_alone(merged: World) -> None:
    strangers = [
        "README.md",
        "part-00000-c000.snappy.parquet",
        f"copy/{ORPHAN}",
        f"{ORPHAN}.bak",
        "_vacuum/notes.txt",
        f"_delta_log/{ORPHAN}",
    ]
    for name in strangers:
        merged.store.put(f"{TABLE}/{name}", b"a stranger's")
    for _ in range(3):
        merged.vacuum()
        merged.wait(DAY_MS + 1)
    assert len(merged.live()) == 1
    assert all(merged.store.get(f"{TABLE}/{name}") == b"a stranger's" for name in strangers)


def test_a_dry_run_says_what_would_be_and_changes_nothing(merged: World) -> None:
    for _ in range(3):
        watched = FaultyStore(merged.store)
        table = Table(watched, TABLE, merged.clock)
        said = vacuum(table, dry_run=True)
        assert watched.writes() == 0
        assert vacuum(table) == said
        assert (watched.writes() > 0) == (said != VacuumResult(0, 3, 0, 0))
        merged.wait(DAY_MS // 2 + 1)
    assert merged.files() == merged.live()


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 24 hours", 1),
        ("interval 1 week", 7),
        ("INTERVAL 2880 Minutes", 2),
        ("3 days", 3),
        ("interval 1 second", 1),
    ],
)
def test_files_stay_as_long_as_the_table_says_and_a_day_at_least(merged: World, text: str, days: int) -> None:
    merged.partition.set_properties({PROPERTY_FILE_RETENTION: text})
    assert merged.vacuum().marked == 3
    merged.wait(days * DAY_MS)
    assert merged.vacuum().waiting == 3
    merged.wait(1)
    assert merged.vacuum().deleted == 3


def test_a_table_that_does_not_say_keeps_files_for_a_day(merged: World) -> None:
    path = f"{TABLE}/_delta_log/{0:020}.json"
    data = merged.store.get(path)
    merged.store.put(path, data.replace(PROPERTY_FILE_RETENTION.encode(), b"delta.other"))
    assert merged.vacuum().marked == 3
    merged.wait(DAY_MS + 1)
    assert merged.vacuum().deleted == 3


def test_a_time_that_cannot_be_read_ends_a_vacuum_before_it_does_anything(merged: World) -> None:
    merged.partition.set_properties({PROPERTY_FILE_RETENTION: "a while"})
    with pytest.raises(InvalidArgument, match=r"'a while'; set it to `interval 24 hours`"):
        merged.vacuum()
    assert merged.ledgers() == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'["cut'])
def test_a_ledger_that_cannot_be_read_is_named(merged: World, data: bytes) -> None:
    path = ledger_path(TABLE, 1, "0123abcd")
    merged.store.put(path, data)
    with pytest.raises(CorruptLog, match=f"the ledger {path} is not a list of file names"):
        merged.vacuum()
    merged.store.delete(path)
    assert merged.vacuum().marked == 3


def test_many_files_have_several_ledgers(merged: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuums, "LEDGER_NAMES_MAX", 2)
    assert merged.vacuum().marked == 3
    assert len(merged.ledgers()) == 2
    assert merged.vacuum() == VacuumResult(0, 3, 0, 0)
    merged.wait(DAY_MS + 1)
    assert merged.vacuum().deleted == 3
    assert (merged.files(), merged.ledgers()) == (merged.live(), [])


# What must stay.


def test_a_reader_that_planned_before_a_merge_reads_on_for_a_day(world: World) -> None:
    append_each(world.partition, [b"0", b"1", b"2"])
    reader = another(world.partition)
    reader._cache = type(reader._cache)(0)
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
    assert merged.partition.delete_expired_log() > sleepy.snapshot.version
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


# Vacuums that die, fail, and meet.


def due_and_unmarked(world: World) -> None:
    """Let a vacuum have files to mark and files to delete."""
    append_each(world.partition, [b"0", b"1", b"2"])
    world.merge()
    world.wait(VACUUM_MARK_AGE_MS + 1)
    assert world.vacuum().marked == 3
    append_each(world.partition, [b"3", b"4"])
    world.merge(1)
    world.wait(DAY_MS + 1)


def test_a_vacuum_that_dies_anywhere_is_finished_by_the_next() -> None:
    counted = World()
    due_and_unmarked(counted)
    watched = FaultyStore(counted.store)
    done = counted.vacuum(watched)
    assert (done.marked, done.deleted) == (2, 3)
    assert watched.writes() == 6  # a ledger, the commit, three files, a ledger
    for nth in range(1, watched.writes() + 1):
        for failure in (crash_before, crash_after):
            world = World()
            due_and_unmarked(world)
            with pytest.raises(Crash):
                world.vacuum(FaultyStore(world.store, [Fault(nth, failure)]))
            assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}
            world.vacuum()
            world.wait(DAY_MS + 1)
            world.vacuum()
            assert (world.files(), world.ledgers()) == (world.live(), [])
            assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}


@pytest.mark.parametrize("failure", [answer_lost, repeated, nothing_landed])
def test_a_ledger_whose_put_is_answered_wrongly_does_no_harm(merged: World, failure: Failure) -> None:
    faulty = FaultyStore(merged.store, [Fault(1, failure, {"put_if_absent"}, "_vacuum")])
    with suppress(StoreUnavailable):
        merged.vacuum(faulty)
    merged.vacuum()
    assert len(merged.ledgers()) == 1
    merged.wait(DAY_MS + 1)
    assert merged.vacuum().deleted == 3


def test_two_vacuums_at_once_delete_what_one_would() -> None:
    counted = World()
    due_and_unmarked(counted)
    watched = FaultyStore(counted.store)
    counted.vacuum(watched)
    for nth in range(1, len(watched.calls) + 1):
        world = World()
        due_and_unmarked(world)
        fault = Fault(nth, before(world.vacuum), {call.operation for call in watched.calls})
        world.vacuum(FaultyStore(world.store, [fault]))
        assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}
        assert len(world.files()) == 2 + 2
        world.wait(DAY_MS + 1)
        world.vacuum()
        assert (world.files(), world.ledgers()) == (world.live(), [])


# Others on the same files.


def age(root: Path, ms: int) -> None:
    """Make every file below `root` older."""
    for file in (path for path in root.rglob("*") if path.is_file()):
        at = file.stat().st_mtime - ms / 1000
        os.utime(file, (at, at))


def test_others_read_a_table_with_ledgers_on_a_disk(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    append_each(partition, [b"0", b"1", b"2"])
    store, inputs = partition.table.store, partition.snapshot.segments
    assert commit_merge(partition.table, inputs, merge(store, TABLE, inputs, "zstd", partition.clock))
    assert vacuum(partition.table) == NOTHING
    age(store_root, VACUUM_MARK_AGE_MS + 1_000)
    assert vacuum(partition.table).marked == 3
    assert DeltaTable(store.delta_location(TABLE)[0]).to_pyarrow_table().num_rows == 3
    found = check_partition(store, TABLE)
    assert (found.problems, found.unreferenced) == ([], 3)
    age(store_root, DAY_MS + 1_000)
    assert vacuum(partition.table).deleted == 3
    assert not (store_root / vacuum_directory(TABLE)).exists()
    append(partition, b"3")
    assert DeltaTable(store.delta_location(TABLE)[0]).to_pyarrow_table().num_rows == 4
    assert check_partition(store, TABLE).problems == []
    assert check_partition(store, TABLE).unreferenced == 0


def test_a_vacuum_of_a_bucket(s3: S3Server) -> None:
    world = World(open_store(s3.bucket("vacuum"), s3.options))
    due_and_unmarked(world)
    done = world.vacuum()
    assert (done.marked, done.deleted) == (2, 3)
    world.wait(DAY_MS + 1)
    assert world.vacuum().deleted == 2
    assert (world.files(), world.ledgers()) == (world.live(), [])
    assert values(another(world.partition)) == [b"%d" % number for number in range(5)]


def test_the_commit_of_a_vacuum_says_what_it_is(merged: World) -> None:
    merged.vacuum()
    merged.wait(DAY_MS + 1)
    merged.vacuum()
    version = another(merged.partition).snapshot.version
    commit = read_commit(merged.store, TABLE, version)
    assert commit is not None
    assert (commit.info.operation, commit.actions()) == ("VACUUM", [commit.info])
    assert append(merged.partition, b"3") == 3


def test_the_ledgers_of_a_deleted_topic_go_with_it() -> None:
    clock = ManualClock()
    store = ClockedStore(open_store("memory://"), clock)
    cluster = Cluster.open(store, clock, "http://first")
    partition = cluster.create_topic("t").partition(0)
    partition.claim("http://first")
    store.put(f"{partition.directory}/{ORPHAN}", b"never committed")
    append(partition, b"0")
    clock.advance(VACUUM_MARK_AGE_MS + 1)
    assert vacuum(partition.table).marked == 1
    cluster.delete_topic("t")
    clock.advance(LOG_RETENTION_MS)
    sweep(cluster)
    assert [item.path for item in store.list(vacuum_directory(partition.directory))] == []
    clock.advance(LOG_RETENTION_MS)
    assert sweep(cluster) == ["topics/t"]
    assert list(store.list("topics/t/")) == []


# Whatever happens.


class Files(RuleBasedStateMachine):
    """Appends, merges, deletions and vacuums; the model knows since when each file is unreferenced."""

    @initialize()
    def start(self) -> None:
        self.world = World()
        self.log: list[bytes] = []
        self.log_start = 0
        self.since: dict[str, int] = {}
        self.merging: tuple[tuple[Segment, ...], Segment, int] | None = None
        self.vacuuming = Table(self.world.store, TABLE, self.world.clock)

    def _now_ms(self) -> int:
        return self.world.store_clock.now_ms()

    def _look(self) -> None:
        """What is not in the table now is unreferenced since now, if it was not before."""
        live = self.world.live()
        for name in self.world.files():
            if name in live:
                self.since.pop(name, None)
            else:
                self.since.setdefault(name, self._now_ms())

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        made = [b"%d" % (len(self.log) + index) for index in range(count)]
        append_each(self.world.partition, made)
        self.log += made

    @rule(first=st.integers(0, 3), count=st.integers(1, 4))
    def begin_merge(self, first: int, count: int) -> None:
        inputs = self.world.partition.refresh(wait=True).segments[first : first + count]
        if inputs:
            self.merging = inputs, self.world.merged(inputs), self._now_ms()
            self._look()

    @rule()
    def end_merge(self) -> None:
        if self.merging is not None:
            inputs, made, put_ms = self.merging
            if self._now_ms() - put_ms <= REWRITE_MAX_AGE_MS:
                commit_merge(self.world.partition.table, inputs, made)
            self.merging = None
            self._look()

    @rule(first=st.integers(0, 3), count=st.integers(1, 4))
    def merge(self, first: int, count: int) -> None:
        self.begin_merge(first, count)
        self.end_merge()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log_start = self.world.partition.truncate(max(self.log_start, round(part * len(self.log))))
        self._look()

    @rule(ahead=st.integers(-3, 3))
    def leave_a_file(self, ahead: int) -> None:
        base = max(0, len(self.log) + ahead)
        self.world.store.put_new(f"{TABLE}/{segment_name(base, self.world.clock.random_hex(8))}", b"left")
        self._look()

    @rule(minutes=st.integers(1, 2 * 24 * 60))
    def wait(self, minutes: int) -> None:
        self.world.wait(minutes * 60_000)

    @rule(days=st.integers(-10, 10))
    def jump(self, days: int) -> None:
        self.world.clock.jump(days * DAY_MS)

    @rule()
    def tidy_the_log(self) -> None:
        self.world.partition.refresh(wait=True)
        self.world.partition.checkpoint()
        self.world.partition.delete_expired_log()

    @rule(
        crash=st.none() | st.tuples(st.integers(1, 6), st.sampled_from([crash_before, crash_after])),
        opened=st.booleans(),
    )
    def vacuum(self, crash: tuple[int, Failure] | None, opened: bool) -> None:
        there = self.world.files()
        faulty = FaultyStore(self.world.store, [] if crash is None else [Fault(*crash, WRITES)])
        try:
            vacuum(self.vacuuming if opened else Table(faulty, TABLE, self.world.clock))
        except Crash:
            pass
        for name in there - self.world.files():
            assert self._now_ms() - self.since.pop(name) >= DAY_MS

    @invariant()
    def every_file_of_the_table_is_there(self) -> None:
        assert self.world.live() <= self.world.files()

    def teardown(self) -> None:
        self.world.wait(VACUUM_MARK_AGE_MS + 1)
        self.vacuum(None, opened=True)
        self.world.wait(DAY_MS + 1)
        self.vacuum(None, opened=True)
        below = {name for name in self.world.files() if (segment_base_offset(name) or 0) < len(self.log)}
        assert (below, self.world.ledgers()) == (self.world.live(), [])
        expected = {n: value for n, value in enumerate(self.log) if n >= self.log_start}
        assert held(another(self.world.partition)) == expected
        assert check_partition(self.world.store, TABLE).problems == []


def test_no_file_goes_before_its_day() -> None:
    run_state_machine_as_test(Files, settings=settings(max_examples=60, stateful_step_count=30))


@pytest.mark.torture
def test_no_file_goes_before_its_day_for_long() -> None:
    run_state_machine_as_test(
        Files, settings=settings(settings.get_profile("torture"), stateful_step_count=60)
    )
