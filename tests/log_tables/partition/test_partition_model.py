"""A partition against a plain Python model of it: whatever is done, in whatever order, the two agree.

Three processes share a table, on stores that fail and on a clock that sleeps and jumps. Clients with an
idempotent producer each send their batches until they are acknowledged; others send once. The model is a list
of values, the log start, who has claimed last, and what each client was told.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from log_tables import errors
from log_tables.clock import ManualClock
from log_tables.limits import TOMBSTONE_RETENTION_MS
from log_tables.partition.partition import Partition, SequencedAppend
from log_tables.partition.reader import PartitionConfig
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.table.table import create_table
from log_tables.table.vacuum import vacuum
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
    refused,
    repeated,
    unavailable,
)
from tests.kit.models import short_form
from tests.kit.partition_model import Client, Process, values_of
from tests.kit.partitions import TABLE, entry, held, problems_of, thin_out

PROCESSES = 3
CLIENTS = 2
LOST = object()
"""What an attempt gives whose outcome its process does not know."""

# Only the put of a commit may meet these: a segment's name is nobody else's.
OF_COMMITS = (repeated, nothing_landed)

who = st.integers(0, PROCESSES - 1)
counts = st.integers(1, 3)
failures = st.sampled_from(
    [answer_lost, repeated, nothing_landed, unavailable, refused, crash_before, crash_after]
)


class Log(RuleBasedStateMachine):
    """A model of the table: random steps, and the records that must be in it after each."""

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        # The clock of the store does not jump: what that costs is in docs/guarantees.md.
        self.store_clock = ManualClock()
        self.store: Store = ClockedStore(open_store("memory://"), self.store_clock)
        create_table(self.store, TABLE, self.clock)
        self.processes = [self._opened() for _ in range(PROCESSES)]
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.leader: int | None = None
        self.epoch = 0
        self.log: list[bytes] = []
        self.log_start = 0
        self.compacted: set[int] = set()
        self.made, self.was_ahead = 0, False

    def _opened(self) -> Process:
        store = FaultyStore(self.store)
        # Producers are forgotten in a test of their own: the clock of this one jumps by days.
        config = PartitionConfig(producer_expiration_ms=10**15)
        return Process(Partition(store, TABLE, self.clock, config), store)

    def _values(self, count: int) -> list[bytes]:
        self.made += count
        return [b"%d" % number for number in range(self.made - count, self.made)]

    def _attempt(self, process: int, action: Callable[[], object]) -> object:
        """The result of `action` by a process, or LOST if the process died or does not know the outcome."""
        try:
            return action()
        except Crash:
            self._die(process)
        except (errors.StoreUnavailable, errors.OutcomeUnknown):
            pass
        found = self.processes[process]
        if not found.partition.leading:
            found.pending.clear()
            if self.leader == process:
                self.leader = None
        return LOST

    def _sleep(self, seconds: int) -> None:
        self.clock.advance(seconds * 1000)
        self.store_clock.advance(seconds * 1000)

    def _die(self, process: int) -> None:
        self.processes[process] = self._opened()
        if self.leader == process:
            self.leader = None

    def _look(self, possible: list[bytes]) -> bool:
        """After a LOST commit: whether its values `possible` are in the log, all of them or none."""
        fresh = Partition(self.store, TABLE, self.clock)
        written = fresh.high_watermark - len(self.log)
        assert written in (0, len(possible))
        assert fresh.fetch(len(self.log), 1 << 20).column("value").to_pylist() == possible[:written]
        self.log += possible[:written]
        return written > 0

    # Leading and appending.

    @rule(process=who)
    def claim(self, process: int) -> None:
        result = self._attempt(process, lambda: self.processes[process].partition.claim(f"http://{process}"))
        epoch = Partition(self.store, TABLE, self.clock).snapshot.leader_epoch
        if result is LOST:
            self.leader = self.leader if epoch == self.epoch else None
        else:
            assert epoch > self.epoch
            self.leader = process
            self.processes[process].pending.clear()
        self.epoch = epoch

    def _leads(self, process: int) -> bool:
        """Claim the partition for the process unless it leads. Returns whether it leads then."""
        if self.leader != process:
            self.claim(process)
        return self.leader == process

    @rule(process=who, count=counts)
    def sequence(self, process: int, count: int) -> None:
        found = self.processes[process]
        made = entry(*self._values(count))
        if not found.partition.leading:
            assert self.leader != process
            with pytest.raises(errors.NotLeader):
                found.partition.sequence(made)
            found.pending.clear()
            return
        sequenced = found.partition.sequence(made)
        if self.leader == process:
            assert sequenced.base_offset == len(self.log) + len(values_of(found.pending))
        found.pending.append(sequenced)

    @rule(process=who, share=st.floats(0, 1))
    def commit(self, process: int, share: float) -> None:
        """Commit some of what was sequenced, from the oldest on."""
        pending = self.processes[process].pending
        self._commit(process, pending[: round(share * len(pending))] or pending[:1])

    def _commit(self, process: int, batch: list[SequencedAppend]) -> bool:
        """Commit `batch`; True if it was acknowledged, to the leader or because it has only repeats."""
        found = self.processes[process]
        values = values_of(batch)
        leads = self.leader == process
        try:
            result = self._attempt(process, lambda: found.partition.commit(batch))
        except errors.NotLeader:
            assert not leads
            assert not self._look(values)
            found.pending.clear()
            return False
        if result is LOST:
            self._look(values)
            return False
        assert leads or not values
        assert not batch or found.partition.high_watermark <= len(self.log) + len(values)
        self.log += values
        del found.pending[: len(batch)]
        return True

    @rule(process=who, client=st.integers(0, CLIENTS - 1), count=counts)
    def send(self, process: int, client: int, count: int) -> None:
        """A client sends its next batch, or the one whose outcome it does not know."""
        if not self._leads(process):
            return
        sender, found = self.clients[client], self.processes[process]
        batch = sender.next_batch(self._values(count))
        there = batch[1][0] in self.log
        sequenced = found.partition.sequence(sender.entry(batch))
        assert sequenced.duplicate == there
        if there:
            assert sequenced.base_offset == self.log.index(batch[1][0])
        found.pending.append(sequenced)
        if self._commit(process, list(found.pending)):
            sender.told[batch[0]] = sequenced.base_offset

    @rule(process=who, client=st.integers(0, CLIENTS - 1), which=st.integers(0, 100))
    def send_again(self, process: int, client: int, which: int) -> None:
        """A client repeats a batch that it was told of, or that is on its way."""
        if not self.clients[client].told or not self._leads(process):
            return
        sender, found = self.clients[client], self.processes[process]
        batch = sender.batches[which % len(sender.told)]
        sequenced = found.partition.sequence(sender.entry(batch))
        assert sequenced.duplicate
        found.pending.append(sequenced)
        self._commit(process, list(found.pending))
        assert sequenced.base_offset in (None, sender.told[batch[0]], self.log.index(batch[1][0]))

    @rule(process=who, off=st.integers(-1, 1))
    def append_conditionally(self, process: int, off: int) -> None:
        if not self._leads(process):
            return
        found = self.processes[process]
        end = len(self.log) + len(values_of(found.pending))
        made = entry(*self._values(1), expected_offset=end + off)
        if off:
            with pytest.raises(errors.OffsetMismatch) as raised:
                found.partition.sequence(made)
            assert raised.value.details == {"log_end_offset": end}
        else:
            found.pending.append(found.partition.sequence(made))

    @rule(process=who, late=st.booleans(), minutes=st.integers(1, 200), seen=st.lists(who, min_size=1))
    def sleep_in_a_put(self, process: int, late: bool, minutes: int, seen: list[int]) -> None:
        """A leader sleeps before its put or before the answer; others claim, write, and clean the log."""
        if not self._leads(process) or self.processes[process].store.faults:
            return
        sleeper = self.processes[process]
        if not sleeper.pending:
            sleeper.pending.append(sleeper.partition.sequence(entry(*self._values(1))))
        batch, values = list(sleeper.pending), values_of(sleeper.pending)
        sleeper.partition.refresh()  # so that its first put is the one that counts
        others = [other for other in seen if other != process and not self.processes[other].store.faults]

        def asleep() -> None:
            for other in others:
                self._sleep(minutes * 30)
                self.claim(other)
                self.sequence(other, 1)
                self.commit(other, 1.0)
            self._sleep(minutes * 60)
            for other in others:
                self.processes[other].partition.refresh()
                self.checkpoint(other)
                self.sleep_and_clean(other, 0)

        def put(perform: Callable[[], object]) -> object:
            if not late:
                asleep()
                return perform()
            result = perform()
            self.log += values
            asleep()
            return result

        sleeper.store.faults.append(Fault(1, put, ("put_if_absent",)))
        if late or not others:
            sleeper.partition.commit(batch)
            if not late:
                self.log += values
            sleeper.pending.clear()
        else:
            with pytest.raises((errors.NotLeader, errors.OutcomeUnknown)):
                sleeper.partition.commit(batch)
            sleeper.pending.clear()
            assert not sleeper.partition.leading

    # Maintenance, by anybody.

    @rule(process=who, part=st.floats(0, 1))
    def delete_records(self, process: int, part: float) -> None:
        before = round(part * len(self.log))
        expected = max(self.log_start, before)
        result = self._attempt(process, lambda: self.processes[process].partition.truncate(before))
        if result is LOST:
            assert Partition(self.store, TABLE, self.clock).log_start in (self.log_start, expected)
            self.log_start = Partition(self.store, TABLE, self.clock).log_start
            return
        assert result == expected
        self.log_start = expected

    @rule(process=who, first=st.integers(0, 5), count=st.integers(1, 4))
    def merge(self, process: int, first: int, count: int) -> None:
        partition = self.processes[process].partition

        def merged() -> None:
            inputs = partition.snapshot.segments[first : first + count]
            newest = Partition(self.store, TABLE, self.clock).snapshot.segments
            done = not inputs
            with suppress(errors.CorruptSegment, errors.InvalidArgument):  # a file is gone, or there is none
                made = rewrite.merge(partition.table.store, TABLE, inputs, "lz4", self.clock)
                done = rewrite.commit_merge(partition.table, inputs, made)
            assert done is ({item.path for item in inputs} <= {item.path for item in newest})

        self._attempt(process, merged)

    @rule(process=who, first=st.integers(0, 5), count=st.integers(1, 3), step=st.integers(2, 3))
    def compact(self, process: int, first: int, count: int, step: int) -> None:
        """Keep only some records, as a compaction by key does, and always the last of a segment."""
        partition = self.processes[process].partition
        if self.processes[process].store.faults:
            return
        partition.refresh()
        inputs = partition.snapshot.segments[first : first + count]
        lasts = {item.last_offset for item in inputs}
        if inputs:
            thin_out(partition, inputs, lambda offset: offset % step == 0 or offset in lasts)
            ranges = range(inputs[0].base_offset, inputs[-1].last_offset + 1)
            self.compacted |= {offset for offset in ranges if offset % step and offset not in lasts}

    @rule(process=who)
    def checkpoint(self, process: int) -> None:
        self._attempt(process, self.processes[process].partition.checkpoint)

    @rule(process=who, minutes=st.integers(0, 90))
    def sleep_and_clean(self, process: int, minutes: int) -> None:
        self._sleep(minutes * 60)
        table = self.processes[process].partition.table
        self._attempt(process, lambda: (table.delete_expired_log(), vacuum(table)))

    # What happens to processes.

    @rule(milliseconds=st.integers(-86_400_000, 86_400_000))
    def jump(self, milliseconds: int) -> None:
        self.clock.jump(milliseconds)
        self.was_ahead |= self.clock.now_ms() - self.store_clock.now_ms() > TOMBSTONE_RETENTION_MS // 2

    @rule(process=who)
    def refresh(self, process: int) -> None:
        found = self.processes[process]
        found.partition.refresh()
        assert (found.partition.high_watermark, found.partition.log_start) == (len(self.log), self.log_start)
        assert found.partition.leading == (self.leader == process)

    @rule(process=who)
    def restart(self, process: int) -> None:
        self._die(process)

    @rule(
        process=who,
        nth=st.integers(1, 4),
        failure=failures,
        client=st.none() | st.integers(0, CLIENTS - 1),
        count=counts,
    )
    def fail(self, process: int, nth: int, failure: Failure, client: int | None, count: int) -> None:
        """A write of this process fails: one of an append, or of what it does later."""
        operations = ("put_if_absent",) if failure in OF_COMMITS else WRITES
        self.processes[process].store.faults[:] = [Fault(nth, failure, operations)]
        if client is not None:
            self.send(process, client, count)
        elif self._leads(process):
            self.sequence(process, count)
            self.commit(process, 1.0)

    @rule(process=who, max_bytes=st.integers(0, 60))
    def read(self, process: int, max_bytes: int) -> None:
        """A read may show an old state, never a wrong one; where its files are gone, it shows the present
        one.
        """
        partition = self.processes[process].partition
        begin = partition.log_start
        try:
            found = held(partition, max_bytes)
        except errors.OffsetOutOfRange:
            assert begin < partition.log_start == self.log_start
            return
        assert all(value == self.log[offset] for offset, value in found.items() if offset is not None)
        expected = set(range(partition.log_start, partition.high_watermark))
        assert expected - self.compacted <= found.keys() <= expected | set(range(begin, partition.log_start))

    @invariant()
    def nobody_knows_more_than_there_is(self) -> None:
        for process, found in enumerate(self.processes):
            assert found.partition.high_watermark <= len(self.log)
            assert found.partition.leading or self.leader != process

    def teardown(self) -> None:
        fresh = Partition(self.store, TABLE, self.clock)
        expected = {offset: value for offset, value in enumerate(self.log) if offset >= self.log_start}
        assert held(fresh) == {o: value for o, value in expected.items() if o not in self.compacted}
        assert problems_of(self.store, self.was_ahead) == []
        assert len(set(self.log)) == len(self.log)
        for client in self.clients:
            for sequence, values in client.batches[: len(client.told)]:
                base = self.log.index(values[0])
                assert self.log[base : base + len(values)] == values
                assert client.told[sequence] in (base, None)


def test_a_partition_does_what_its_model_does() -> None:
    run_state_machine_as_test(Log, settings=short_form(100, 40))


@pytest.mark.torture
def test_a_partition_does_what_its_model_does_for_long() -> None:
    run_state_machine_as_test(Log, settings=settings(max_examples=2_000, stateful_step_count=60))
