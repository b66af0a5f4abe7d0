"""No file goes before its time, whatever happens: vacuums against a model.

What a merge replaced stays for an hour, what was deleted for a day. Readers read what they planned long ago:
each record once, from whichever files have it now.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from log_tables.clock import ManualClock
from log_tables.errors import OffsetOutOfRange
from log_tables.layout import segment_base_offset, segment_name
from log_tables.limits import REWRITE_MAX_AGE_MS, TOMBSTONE_RETENTION_MS, VACUUM_MARK_AGE_MS
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader
from log_tables.record import to_records
from log_tables.segments.rewrite import commit_merge
from log_tables.segments.segment_cache import SegmentCache
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from log_tables.table.vacuum import vacuum
from log_tables.testing import WRITES, Crash, Failure, Fault, FaultyStore, crash_after, crash_before
from tests.kit.models import short_form
from tests.kit.partitions import TABLE, another, append_each, held, problems_of
from tests.kit.vacuums import DAY_MS, HOUR_MS, World


class Files(RuleBasedStateMachine):
    """Appends, merges, deletions and vacuums; the model knows since when each file is unreferenced."""

    @initialize()
    def start(self) -> None:
        self.world = World()
        self.log: list[bytes] = []
        self.log_start = 0
        self.since: dict[str, tuple[int, int]] = {}
        """Since when (by the store's clock) a file is unreferenced, and how long it has to stay."""
        self.planned: list[tuple[PartitionReader, ReadPlan]] = []
        self.merging: tuple[tuple[Segment, ...], Segment, int] | None = None
        self.vacuuming = Table(self.world.store, TABLE, self.world.clock)
        self.was_ahead = False
        """Whether a gateway's clock was so far ahead of the store's that a checkpoint forgot early."""

    def _now_ms(self) -> int:
        return self.world.store_clock.now_ms()

    def _look(self) -> None:
        """Note since when each file is unreferenced.

        An hour of that is enough if the table still has the offset at which the file begins, otherwise a day.
        """
        live = self.world.live()
        for name in self.world.files():
            if name in live:
                self.since.pop(name, None)
            else:
                replaced = (segment_base_offset(name) or 0) >= self.log_start
                self.since.setdefault(name, (self._now_ms(), HOUR_MS if replaced else DAY_MS))

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

    @rule(minutes=st.integers(1, 120) | st.integers(1, 2 * 24 * 60))
    def wait(self, minutes: int) -> None:
        self.world.wait(minutes * 60_000)

    @rule(days=st.integers(-10, 10))
    def jump(self, days: int) -> None:
        self.world.clock.jump(days * DAY_MS)
        self.was_ahead |= self.world.clock.now_ms() - self._now_ms() > TOMBSTONE_RETENTION_MS // 2

    @rule()
    def tidy_the_log(self) -> None:
        self.world.partition.refresh(wait=True)
        self.world.partition.checkpoint()
        self.world.partition.table.delete_expired_log()

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
            since_ms, stay_ms = self.since.pop(name)
            assert self._now_ms() - since_ms >= stay_ms

    @rule(part=st.floats(0, 1), awake=st.booleans())
    def plan(self, part: float, awake: bool) -> None:
        """A reader plans; its clock may stand still from now on."""
        clock = self.world.clock if awake else ManualClock()
        reader = PartitionReader(self.world.store, TABLE, clock, cache=SegmentCache(0))
        start = max(self.log_start, round(part * len(self.log)))
        self.planned.append((reader, reader.plan_read(start, 1 << 20)))

    @rule(which=st.integers(0, 9))
    def read_what_was_planned(self, which: int) -> None:
        if not self.planned:
            return
        reader, plan = self.planned[which % len(self.planned)]
        found: list[tuple[int | None, bytes | None]] = []
        try:
            for batch in reader.read(plan):
                found += ((record.offset, record.value) for record in to_records(batch))
        except OffsetOutOfRange:
            assert plan.start + len(found) < self.log_start
        else:
            assert len(found) == plan.end - plan.start
        end = plan.start + len(found)
        assert found == [(offset, self.log[offset]) for offset in range(plan.start, end)]

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
        assert problems_of(self.world.store, self.was_ahead) == []


def test_no_file_goes_before_its_time_and_no_reader_notices() -> None:
    run_state_machine_as_test(Files, settings=short_form(60, 30))


@pytest.mark.torture
def test_no_file_goes_before_its_time_for_long() -> None:
    run_state_machine_as_test(
        Files, settings=settings(settings.get_profile("torture"), stateful_step_count=60)
    )
