"""A topic's table against a model: it ends as its partitions are, and a stream of it has each record once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from log_tables.clock import ManualClock
from log_tables.columns.declaration import Declaration, parse
from log_tables.segments import rewrite
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.folds import DeltaStream, FoldedTopic
from tests.kit.models import short_form
from tests.kit.partitions import thin_out

PARTITIONS = 2
DECLARATIONS = [parse("n bigint"), parse("n bigint, s string")]
NUMBERS = st.integers(0, PARTITIONS - 1)


class Folding(RuleBasedStateMachine):
    """Appends, merges, deletions, compactions, retypes, and folds that stop early or are killed at a put."""

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.world = FoldedTopic(open_store("memory://"), self.clock, PARTITIONS)
        self.stream = DeltaStream(self.world.cluster.store, self.world.topic.directory)
        self.appended: set[tuple[int, int]] = set()
        self.unseen: set[tuple[int, int]] = set()
        """Records that were deleted before they were folded: no stream has to have them."""
        self.old = self.world.snapshots()

    @rule(number=NUMBERS, count=st.integers(1, 4))
    def append(self, number: int, count: int) -> None:
        begin = self.world.topic.partition(number).high_watermark
        self.world.append(number, count)
        self.appended |= {(number, offset) for offset in range(begin, begin + count)}

    @rule(number=NUMBERS, first=st.integers(0, 3), count=st.integers(1, 4))
    def merge(self, number: int, first: int, count: int) -> None:
        """Merge folded segments, as jobs do."""
        partition = self.world.topic.partition(number)
        end = self.world.table.snapshot.end(number)
        old = [item for item in partition.snapshot.segments if item.last_offset < end]
        inputs = [item for item in old[first : first + count] if item.columns == old[first].columns]
        if inputs:
            store, directory = partition.table.store, partition.directory
            made = rewrite.merge(store, directory, inputs, "zstd", self.clock)
            assert rewrite.commit_merge(partition.table, inputs, made)

    @rule(number=NUMBERS, count=st.integers(1, 3), every=st.integers(2, 3))
    def compact(self, number: int, count: int, every: int) -> None:
        partition = self.world.topic.partition(number)
        end = self.world.table.snapshot.end(number)
        inputs = [item for item in partition.snapshot.segments if item.last_offset < end][:count]
        if inputs:
            thin_out(partition, inputs, lambda offset: offset % every == 0)

    @rule(
        number=NUMBERS,
        first=st.integers(0, 3),
        count=st.integers(1, 4),
        columns=st.sampled_from(DECLARATIONS),
    )
    def retype(self, number: int, first: int, count: int, columns: Declaration) -> None:
        partition = self.world.topic.partition(number)
        end = self.world.table.snapshot.end(number)
        old = [item for item in partition.snapshot.segments if item.last_offset < end]
        inputs = [item for item in old[first : first + count] if item.columns != columns.id]
        if inputs:
            store, directory = partition.table.store, partition.directory
            made = [rewrite.retype(store, directory, item, columns, "zstd", self.clock) for item in inputs]
            assert rewrite.commit_retype(partition.table, inputs, made, columns)

    @rule(number=NUMBERS, records=st.integers(0, 5))
    def delete(self, number: int, records: int) -> None:
        partition = self.world.topic.partition(number)
        partition.truncate(min(partition.log_start + records, partition.high_watermark))
        end = self.world.table.snapshot.end(number)
        self.unseen |= {(number, offset) for offset in range(end, partition.log_start)}

    @rule()
    def remember(self) -> None:
        """The snapshots of a process that sleeps from now on."""
        self.old = self.world.snapshots()

    @rule(most=st.integers(1, 5))
    def fold_what_is_old(self, most: int) -> None:
        self.world.table.fold(self.old, most)
        self._check_stream()

    @rule(most=st.integers(1, 5))
    def fold(self, most: int) -> None:
        self.world.fold(most)
        self._check()

    @rule(most=st.integers(1, 3), at=st.integers(1, 3), after=st.booleans())
    def fold_and_die(self, most: int, at: int, after: bool) -> None:
        crash = crash_after if after else crash_before
        directory = self.world.topic.directory
        store = FaultyStore(
            self.world.cluster.store, [Fault(at, crash, {"put_if_absent"}, f"{directory}/_delta_log")]
        )
        table = TopicTable(store, directory, self.clock)
        try:
            table.fold(self.world.snapshots(), most)
        except Crash:
            self._check_stream()
        self.world.table.fold(self.old, most)
        self._check_stream()
        self.world.fold(most)
        self._check()

    @rule()
    def open_again(self) -> None:
        self.world.table.checkpoint(0)
        self.world.topic.forget_table()

    def _check(self) -> None:
        folded = TopicTable(self.world.cluster.store, self.world.topic.directory, self.clock).snapshot
        for number, snapshot in self.world.snapshots().items():
            assert [item.path for item in folded.of(number)] == [item.path for item in snapshot.segments]
            assert folded.is_level(number, snapshot)
        self._check_stream()
        for number, snapshot in self.world.snapshots().items():
            for item in snapshot.segments:
                for offset in (item.base_offset, item.last_offset):
                    assert self.stream.columns[number, offset] == item.columns
        assert self.appended - self.unseen <= {*self.stream.seen} <= self.appended

    def _check_stream(self) -> None:
        self.stream.read()
        assert len(self.stream.seen) == len({*self.stream.seen})


def test_a_fold_ends_where_its_partitions_are() -> None:
    run_state_machine_as_test(Folding, settings=short_form(60, 30))


@pytest.mark.torture
def test_a_fold_ends_where_its_partitions_are_for_long() -> None:
    run_state_machine_as_test(
        Folding, settings=settings(settings.get_profile("torture"), stateful_step_count=60)
    )
