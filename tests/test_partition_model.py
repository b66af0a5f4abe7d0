"""A partition against a plain Python model of it: whatever is done, in whatever order, the two agree."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from log_tables import rewrite
from log_tables.clock import ManualClock
from log_tables.errors import NotLeader, StoreUnavailable
from log_tables.fsck import check_partition
from log_tables.partition import Partition, Producer
from log_tables.store import open_store
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
    repeated,
    unavailable,
)
from tests.partitions import TABLE, another, append, held, new_partition

PRODUCER = 7

who = st.integers(0, 1)
counts = st.integers(1, 4)
faults = st.sampled_from([answer_lost, repeated, unavailable, crash_before, crash_after])


class Log(RuleBasedStateMachine):
    """Two processes on one table, and what the log must hold."""

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.store = ClockedStore(open_store("memory://"), self.clock)
        first = new_partition(self.store, self.clock)
        self.processes = [first, another(first)]
        self.leader: int | None = 0
        self.log: list[bytes] = []
        self.log_start = 0
        self.sequence = 0
        self.last: tuple[int, int, int] | None = None
        self.made = 0

    def _values(self, count: int) -> list[bytes]:
        self.made += count
        return [b"%d" % number for number in range(self.made - count, self.made)]

    @rule(process=who)
    def claim(self, process: int) -> None:
        self.processes[process].claim(f"http://{process}")
        self.leader = process

    @rule(process=who, count=counts)
    def append(self, process: int, count: int) -> None:
        values = self._values(count)
        if process != self.leader:
            with pytest.raises(NotLeader):
                append(self.processes[process], *values)
            return
        assert append(self.processes[process], *values) == len(self.log)
        self.log += values

    @rule(process=who, count=counts)
    def append_idempotently(self, process: int, count: int) -> None:
        if process != self.leader:
            return
        values = self._values(count)
        stamp = Producer(PRODUCER, 0, self.sequence)
        base = append(self.processes[process], *values, producer=stamp)
        assert base == len(self.log)
        self.last = (self.sequence, base, count)
        self.sequence += count
        self.log += values

    @rule(process=who)
    def repeat_the_last_batch(self, process: int) -> None:
        if process != self.leader or self.last is None:
            return
        sequence, base, count = self.last
        stamp = Producer(PRODUCER, 0, sequence)
        again = append(self.processes[process], *[b"never written"] * count, producer=stamp)
        assert again == base

    @rule(process=who, part=st.floats(0, 1))
    def delete_records(self, process: int, part: float) -> None:
        before = int(part * len(self.log))
        self.log_start = max(self.log_start, before)
        assert self.processes[process].truncate(before) == self.log_start

    @rule(process=who, first=st.integers(0, 5), count=st.integers(1, 4))
    def merge(self, process: int, first: int, count: int) -> None:
        partition = self.processes[process]
        inputs = partition.refresh().segments[first : first + count]
        if inputs:
            made = rewrite.merge(self.store, TABLE, inputs, "lz4", self.clock)
            assert rewrite.commit_merge(partition.table, inputs, made)

    @rule(process=who)
    def checkpoint(self, process: int) -> None:
        self.processes[process].checkpoint()

    @rule(process=who, minutes=st.integers(1, 90))
    def sleep_and_clean(self, process: int, minutes: int) -> None:
        self.clock.advance(minutes * 60_000)
        self.processes[process].clean_log()

    @rule(milliseconds=st.integers(-86_400_000, 86_400_000))
    def jump(self, milliseconds: int) -> None:
        self.clock.jump(milliseconds)

    @rule(process=who)
    def restart(self, process: int) -> None:
        self.processes[process] = another(self.processes[process])
        if self.leader == process:
            self.leader = None

    @rule(process=who, nth=st.integers(1, 5), failure=faults, count=counts)
    def append_on_a_store_that_fails(self, process: int, nth: int, failure: Failure, count: int) -> None:
        """A process claims and appends while its store fails, and dies: all of it is there, or nothing."""
        values = self._values(count)
        # Only the put of a commit can be repeated by the client below: a segment's name is its own.
        fault = Fault(nth, failure, ("put_if_absent",) if failure is repeated else WRITES)
        failing = another(self.processes[process], FaultyStore(self.store, [fault]))
        possible: tuple[int, ...] = (count,)
        try:
            failing.claim("http://failing")
            assert append(failing, *values) == len(self.log)
        except StoreUnavailable:
            possible = (0,)  # said of a write, it means that nothing was written
        except Crash:
            possible = (0, count)
        self.restart(process)
        self.leader = None
        written = self.processes[process].high_watermark - len(self.log)
        assert written in possible
        self.log += values[:written]

    @invariant()
    def every_process_reads_the_same(self) -> None:
        expected = dict(enumerate(self.log[self.log_start :], self.log_start))
        for partition in self.processes:
            partition.refresh()
            assert partition.high_watermark == len(self.log)
            assert partition.log_start == self.log_start
            assert held(partition, max_bytes=3) == expected

    def teardown(self) -> None:
        assert check_partition(self.store, TABLE).problems == []
        assert held(Partition(self.store, TABLE, self.clock)) == dict(
            enumerate(self.log[self.log_start :], self.log_start)
        )


def test_a_partition_does_what_its_model_does() -> None:
    run_state_machine_as_test(Log, settings=settings(max_examples=200, stateful_step_count=30))


@pytest.mark.torture
def test_a_partition_does_what_its_model_does_for_long() -> None:
    run_state_machine_as_test(Log, settings=settings(max_examples=1_500, stateful_step_count=50))
