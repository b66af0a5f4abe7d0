"""A tiered partition against a plain model of it: movers that die, merges on both sides, deletes, readers.

The model is the list of values and the log start. Whatever is done, every reader finds each record that it
may read once, in one tier or the other, also one of another program that joins the two tables over the topic;
and in the end the check of both tables finds nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold, fold_remote
from log_tables.errors import OutcomeUnknown, StoreUnavailable
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import commit_copies, copy, release, remove_expired
from log_tables.root import fsck
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    unavailable,
)
from log_tables.topic_table.topic_snapshot import TopicSnapshot
from tests.kit.joined import joined, tables_of
from tests.kit.models import short_form
from tests.kit.partitions import append, held
from tests.kit.tiers import tiered_cluster

TOPIC = "topics/t"
READERS = 2
MOVERS = 2

who = st.integers(0, MOVERS - 1)
failures = st.none() | st.tuples(
    st.sampled_from([crash_before, crash_after, unavailable, answer_lost]),
    st.integers(1, 4),
    st.booleans(),
)


class Tiers(RuleBasedStateMachine):
    """A model of the two tables of a partition: random steps, and the records that must be in them."""

    directory: Path

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.cluster = tiered_cluster(Path(mkdtemp(dir=self.directory)), self.clock)
        topic = create_topic(self.cluster, "t", configs={"remote.storage.enable": "true"})
        self.partition = self.cluster.claim(topic, 0)
        self.readers = [self._opened() for _ in range(READERS)]
        self.copied: list[tuple[Segment, ...]] = [()] * MOVERS
        self.log: list[bytes] = []
        self.log_start = 0
        self.jobs = Cluster.open(open_store(self.cluster.store.url), self.clock, create=False)
        self.write([1, 2, 1, 3, 1, 2])
        self.copy_and_move(1, None)

    def _opened(self) -> Partition:
        root = self.cluster.store.url
        return Cluster.open(open_store(root), self.clock, create=False).topic("t").partition(0)

    def _remote(self) -> RemoteRoot:
        assert self.cluster.remote is not None
        return self.cluster.remote

    def _tables(self, failure: tuple[Failure, int, bool] | None) -> tuple[Table, Table]:
        """The two tables as a process opens them that meets `failure` in one of its writes, here or there."""
        here: Store = self.cluster.store
        there: Store = self._remote().store
        directory = self.partition.directory
        if failure is not None:
            kind, nth, local = failure
            fault = [Fault(nth, kind)]
            here = FaultyStore(here, fault) if local else here
            there = there if local else FaultyStore(there, fault)
        return Table(here, directory, self.clock), Table(there, directory, self.clock)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def write(self, counts: list[int]) -> None:
        """One commit, and so one segment, for each of `counts`."""
        for count in counts:
            values = [b"%d" % (len(self.log) + number) for number in range(count)]
            append(self.partition, *values)
            self.log += values

    @rule(mover=who, count=st.integers(1, 4))
    def copy(self, mover: int, count: int) -> None:
        """A mover copies; what it does with it comes later, or never."""
        here, there = self._tables(None)
        self.copied[mover] = self._copied(here, there, count)

    @rule(mover=who, hole=st.none() | st.integers(0, 2))
    def move(self, mover: int, hole: int | None) -> None:
        """Commit the copies of a move; a failed task may have left one out."""
        given = [item for at, item in enumerate(self.copied[mover]) if at != hole]
        self._commit(*self._tables(None), given)

    @rule(count=st.integers(0, 3), failure=failures)
    def copy_and_move(self, count: int, failure: tuple[Failure, int, bool] | None) -> None:
        here, there = self._tables(failure)
        with suppress(Crash, StoreUnavailable, OutcomeUnknown):
            self._commit(here, there, self._copied(here, there, count))

    def _copied(self, here: Table, there: Table, count: int) -> tuple[Segment, ...]:
        """The first `count` segments of `here`, as a maintenance run copies them: it folds first."""
        end = self._end(local=True)
        first = here.snapshot.first_segment(here.snapshot.log_start)
        wanted = [item for item in here.snapshot.segments[first:][:count] if item.last_offset < end]
        held_there = there.snapshot.high_watermark
        return copy(here.store, there.store, here.directory, wanted, held_there, "lz4", here.clock)

    def _commit(self, here: Table, there: Table, made: Sequence[Segment]) -> None:
        """Commit a move as maintenance does: to the remote table, to the table over the topic, and to the
        local one.
        """
        commit_copies(here, there, made)
        release(here, there, made, self._fold_there(there).end(0))

    def _fold_there(self, there: Table) -> TopicSnapshot:
        root = RemoteRoot("away", self.cluster.cluster_id, self.clock, lambda: there.store)
        there.make_durable()
        return fold_remote(root, TOPIC, {0: there.snapshot})

    def _end(self, local: bool) -> int:
        """The end of one of the tables over the topic, which a maintenance run folds before it plans."""
        if not local:
            return self._fold_there(self._tables(None)[1]).end(0)
        topic = self.jobs.topic("t")
        fold(topic)
        return topic.table().snapshot.end(0)

    @rule()
    def fold(self) -> None:
        """As the gateway does."""
        fold(self.cluster.topic("t"))

    @rule(count=st.integers(1, 3))
    def move_half(self, count: int) -> None:
        """Killed between the two commits."""
        self.copy_and_move(count, (crash_before, 1, True))

    @rule(local=st.booleans(), first=st.integers(0, 3), count=st.integers(2, 3))
    def merge(self, local: bool, first: int, count: int) -> None:
        end, table = self._end(local), self._tables(None)[0 if local else 1]
        folded = [item for item in table.snapshot.segments if item.last_offset < end]
        inputs: Sequence[Segment] = folded[first : first + count]
        if len(inputs) > 1:
            made = rewrite.merge(table.store, table.directory, inputs, "lz4", self.clock)
            assert rewrite.commit_merge(table, inputs, made)

    @rule(count=st.integers(1, 4))
    def delete_records(self, count: int) -> None:
        self.log_start = min(self.log_start + count, len(self.log))
        assert self.partition.truncate(self.log_start) == self.log_start

    @rule(failure=failures)
    def expire(self, failure: tuple[Failure, int, bool] | None) -> None:
        _, there = self._tables(failure)
        with suppress(Crash, StoreUnavailable, OutcomeUnknown):
            remove_expired(there, self.log_start)

    @rule(reader=st.integers(0, READERS - 1), max_bytes=st.integers(0, 60), follow=st.booleans())
    def read(self, reader: int, max_bytes: int, follow: bool) -> None:
        """A reader may know an old state; it lacks only records that were deleted since."""
        partition = self.readers[reader]
        if follow:
            partition.refresh()
            assert (partition.high_watermark, partition.log_start) == (len(self.log), self.log_start)
        found = held(partition, max_bytes)
        assert all(value == self.log[offset] for offset, value in found.items() if offset is not None)
        assert set(range(self.log_start, partition.high_watermark)) <= found.keys()
        assert found.keys() <= set(range(partition.log_start, partition.high_watermark))

    @invariant()
    def what_is_new_to_everything_reads_all(self) -> None:
        there = range(self.log_start, len(self.log))
        assert held(self._opened()) == {offset: self.log[offset] for offset in there}

    @invariant()
    def who_joins_both_tables_over_the_topic_has_each_record_once(self) -> None:
        """But for those that are not folded; and some that were deleted may show."""
        first, remote = tables_of(self.cluster, self.cluster.topic("t"))
        found = joined(first, remote)
        assert {*found.values()} <= {1}
        assert {(0, at) for at in range(self.log_start, first.end(0))} <= found.keys()
        assert found.keys() <= {(0, at) for at in range(first.end(0))}

    def teardown(self) -> None:
        assert fsck.check(self.cluster.store).problems == []


def run(directory: Path, runs: settings) -> None:
    machine = type("Tiers", (Tiers,), {"directory": directory})
    run_state_machine_as_test(machine, settings=runs)


def test_a_tiered_partition_does_what_its_model_does(tmp_path: Path) -> None:
    run(tmp_path, short_form(40, 30))


@pytest.mark.torture
def test_a_tiered_partition_does_what_its_model_does_for_long(tmp_path: Path) -> None:
    run(tmp_path, settings(max_examples=1_000, stateful_step_count=60))
