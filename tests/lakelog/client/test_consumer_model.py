"""A consumer keeps its promises whatever happens, and whichever requests and answers are lost.

Each record is handed out once and in order, from where the consumer began: at the committed offset after
every join and every assignment. No offset is committed beyond the records that were handed out, and without
the program's order none beyond those that it processed. A partition that was taken away is not handed out
until it is assigned again.
"""

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from lakelog.client.consumer.consumer_record import ConsumerRecord, to_consumer_records
from lakelog.client.consumer.consumer_state import Choice
from lakelog.client.consumer.participant import Callbacks, Participant
from lakelog.client.request import Call
from log_tables.clock import ManualClock
from log_tables.errors import Conflict, OutcomeUnknown, Retriable, UnknownMember
from log_tables.topic_partition import TopicPartition
from tests.kit.consumer_model import PARTITIONS, Fault, ModelCoordinator, Offsets, driven

Answer = TypeVar("Answer")
STEPS = 60


class Life:
    """Consumers of one group, one after the other, and what happens to them, drawn at random.

    `expected` are the offsets of the records to hand out next, `processed` those that may be committed,
    `restart` those to go on from after a transaction that failed. `handed_over` is where others must go on.
    """

    def __init__(self, draw: ManualClock, seen: Counter[str]) -> None:
        """`seen` counts what happened, so that a test can ask that enough did."""
        self._draw, self._seen = draw, seen
        self.auto_commit, self.earliest = self._chance(0.5), self._chance(0.5)
        alone = self._chance(0.3)
        self.choice = Choice(partitions=frozenset(PARTITIONS)) if alone else Choice(frozenset({"t"}))
        self.coordinator = ModelCoordinator(
            auto_commit=self.auto_commit, earliest=self.earliest, on_commit=self._check_commit
        )
        self.handed_over: Offsets = {}
        self._produce()
        self._open()

    def run(self, steps: int) -> None:
        """Let something happen `steps` times. Then, with nothing lost any longer, all records must come."""
        acts = [self.poll, self.poll_and_iterate, self.poll_and_be_interrupted, self.iterate, self.seek]
        acts += [self.commit, self.commit_less, self.transact, self.leave, self.evict, self.fence]
        acts += [self.move, self.move, self.others_work, self.others_work, self.others_work]
        acts += [self.transact, self.grow]
        for _ in range(steps):
            acts[self._below(len(acts))]()
        for at in [*self.coordinator.others]:
            self.coordinator.move(at)
        for _ in range(4):
            self._hand_out_all(self._polled(1_000, []))
        assert self.expected == self.coordinator.ends

    # Chance.

    def _below(self, end: int) -> int:
        return int(self._draw.random() * end)

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share

    def _one(self) -> TopicPartition:
        there = sorted(self.coordinator.partitions)
        return there[self._below(len(there))]

    def _faults(self) -> list[Fault | None]:
        """Random faults for the next requests; most have none."""
        kinds = [None, None, None, *Fault]
        return [kinds[self._below(len(kinds))] for _ in range(self._below(4))]

    # The world.

    def grow(self) -> None:
        """The topic gets a partition: all of its records are for the group that is subscribed."""
        if len(self.coordinator.partitions) == len(PARTITIONS) and not self.choice.partitions:
            at = TopicPartition("t", len(self.coordinator.partitions))
            self.coordinator.grow(at)
            self.coordinator.ends[at] = self._below(4)
            self._seen["grown"] += 1

    def _produce(self) -> None:
        for at in sorted(self.coordinator.partitions):
            self.coordinator.ends[at] += self._below(4)

    def evict(self) -> None:
        """The member is silent for longer than its session."""
        if self._chance(0.3):
            self.handed_over.clear()
            self.coordinator.evict()

    def fence(self) -> None:
        """The member does not poll for too long."""
        if self._chance(0.3) and not self.choice.partitions:
            self.handed_over.clear()
            self.coordinator.fence()

    def move(self) -> None:
        """Another member is to have a partition, or none has it any longer."""
        if not self.choice.partitions:
            self.coordinator.move(self._one())
            if self._chance(0.5):
                self.poll()

    def others_work(self) -> None:
        """Let another member work in a partition that the consumer does not own. It goes on where the
        consumer was, after an orderly handover.
        """
        at = self._one()
        if at not in self.coordinator.mine and not self.choice.partitions:
            start = self.coordinator.start(at)
            self._seen["handed over"] += at in self.handed_over
            assert start == self.handed_over.pop(at, start)
            self.coordinator.offsets[at] = min(start + self._below(4), self.coordinator.ends[at])

    # The callbacks.

    def _assigned(self, gained: list[TopicPartition]) -> None:
        self._seen["assigned"] += len(gained)
        assert self.expected.keys().isdisjoint(gained)
        starts = {at: self.coordinator.start(at) for at in gained}
        for offsets in (self.expected, self.processed, self.restart):
            offsets.update(starts)

    def _revoked(self, given_up: list[TopicPartition]) -> None:
        self._seen["revoked"] += len(given_up)
        if self.auto_commit:
            handed_out = self.coordinator.mine & self.consumer.state.next_offsets.keys()
            self.handed_over |= {at: self.processed[at] for at in given_up if at in handed_out}
        self._drop(given_up)

    def _lost(self, lost: list[TopicPartition]) -> None:
        self._seen["lost"] += len(lost)
        self._drop(lost)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            if self.expected[at] > self.restart[at]:
                self.unfinished.add(at)
            for offsets in (self.expected, self.processed, self.restart):
                del offsets[at]

    def _check_commit(self, offsets: Offsets) -> None:
        may_be = self.handed_over | self.processed
        assert all(offset <= may_be[at] for at, offset in offsets.items())

    # The program, with a consumer that does what `lakelog.Consumer` does.

    def _open(self) -> None:
        """A new consumer of the group."""
        self.expected: Offsets = {}
        self.processed: Offsets = {}
        self.restart: Offsets = {}
        self.unfinished: set[TopicPartition] = set()
        callbacks = Callbacks(self._assigned, self._revoked, self._lost)
        self.consumer = Participant(
            self.coordinator, self.choice, callbacks, earliest=self.earliest, auto_commit=self.auto_commit
        )
        self._patiently(self.consumer.join)
        self._assigned([*self.choice.partitions])

    def _patiently(self, attempt: Callable[[], Call[Answer]]) -> Answer:
        while True:
            try:
                return driven(attempt())
            except (Retriable, OutcomeUnknown):
                self._seen["repeated"] += 1  # the faults come to an end

    def _polled(self, records: int, faults: list[Fault | None]) -> pa.Table:
        self.coordinator.commit_due, self.coordinator.faults = self._chance(0.5), faults
        self._process()
        self.consumer.rewind()
        while (table := self._answered(records)) is None:
            driven(self.consumer.lose())
        state = self.consumer.state
        assert state.owned == self.expected.keys()
        assert state.owned == self.coordinator.mine or not state.assignment_is_current
        return table

    def _answered(self, records: int) -> pa.Table | None:
        try:
            return self._patiently(lambda: self.consumer.poll(0, records))
        except UnknownMember:
            return None

    def _process(self) -> None:
        self.consumer.process()
        self.processed = dict(self.expected)

    def _hand_out(self, record: ConsumerRecord) -> None:
        at = TopicPartition(record.topic, record.partition)
        # Nothing here asks for the state: it must hear of many records at once, too.
        assert record.offset == self.expected[at]
        self.expected[at] += 1
        self._seen["handed out"] += 1

    def _hand_out_all(self, table: pa.Table) -> None:
        self.consumer.hand_out()
        for record in to_consumer_records(table):
            self._hand_out(record)

    def _next_table(self) -> pa.Table:
        self._produce()
        return self._polled(1 + self._below(4), self._faults())

    def poll(self) -> None:
        """The program takes a table."""
        self._hand_out_all(self._next_table())

    def poll_and_be_interrupted(self) -> None:
        """The program has nothing of the records that a poll brought."""
        self._next_table()

    def poll_and_iterate(self) -> None:
        """The program takes some of the records that a poll brought."""
        self.consumer.give(self._next_table())
        self.iterate()

    def iterate(self) -> None:
        """The program takes some of the records that wait."""
        for _ in range(self._below(6)):
            record = self.consumer.take()
            if record is not None:
                self.processed = dict(self.expected)
                self._hand_out(record)

    def commit(self) -> None:
        """The program commits all that it has."""
        self._commit(self.consumer.state.next_offsets)

    def commit_less(self) -> None:
        """The program commits a part."""
        if not self.auto_commit:
            offsets = self.consumer.state.next_offsets
            self._commit({at: max(0, offset - self._below(4)) for at, offset in offsets.items()})

    def _commit(self, offsets: Offsets) -> None:
        if not offsets:
            return
        self.coordinator.faults = self._faults()
        self.processed |= {at: max(offset, self.processed[at]) for at, offset in offsets.items()}
        try:
            self._patiently(lambda: self.consumer.commit(offsets))
        except (Conflict, UnknownMember):
            self._seen["refused"] += 1
        else:
            self._committed(offsets)

    def _committed(self, offsets: Offsets) -> None:
        assert offsets.items() <= self.coordinator.offsets.items()
        self.restart |= offsets
        self.unfinished.clear()

    def seek(self) -> None:
        """The program goes on somewhere else."""
        at = self._one()
        if at in self.consumer.state.owned:
            offset = self._below(self.coordinator.ends[at] + 1)
            self.consumer.seek(at, offset)
            self.expected[at] = self.processed[at] = self.restart[at] = offset

    def transact(self) -> None:
        """A transaction commits all that was handed out, or it is handed out again."""
        if self.auto_commit:
            return
        assert self.consumer.state.lost == self.unfinished
        self._seen["unfinished"] += len(self.unfinished)
        self.coordinator.faults = self._faults()
        offsets = self.consumer.state.next_offsets
        try:
            if self.unfinished or self._chance(0.5):
                raise Conflict("it is refused")
            self.processed |= offsets
            self._patiently(lambda: self.coordinator.commit(offsets))
        except (Conflict, UnknownMember):
            self._seen["restarted"] += 1
            self.consumer.restart()
            self.expected, self.processed = dict(self.restart), dict(self.restart)
            self.unfinished.clear()
        else:
            self.consumer.transacted(offsets)
            self._committed(offsets)

    def leave(self) -> None:
        """The consumer closes, or an error ends its block; then another begins."""
        self.coordinator.faults = self._faults()
        if self._chance(0.5):
            self._process()
        owned = self.coordinator.mine & self.consumer.state.next_offsets.keys()
        processed = {at: self.processed[at] for at in owned}
        try:
            self._patiently(self.consumer.leave)
        except UnknownMember:
            driven(self.consumer.lose())
        else:
            self._seen["left"] += 1
            if self.auto_commit:
                assert processed == {at: self.coordinator.start(at) for at in processed}
        self._open()


def live(seed: int, lives: int) -> Counter[str]:
    """Many lives. Returns how often what happened in them."""
    seen = Counter[str]()
    for number in range(lives):
        Life(ManualClock(seed=seed + number), seen).run(STEPS)
    return seen


def test_a_consumer_keeps_its_promises(seed: int) -> None:
    seen = live(seed, 100)
    done = ("handed out", "handed over", "assigned", "revoked", "lost", "repeated", "restarted", "left")
    for what in (*done, "grown"):
        assert seen[what] >= 10, f"the lives did not do enough: {seen}"


@pytest.mark.torture
def test_a_consumer_keeps_its_promises_for_long(seed: int) -> None:
    live(seed, 20_000)
