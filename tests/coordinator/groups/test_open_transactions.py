"""Open transactions, and what is staged for them."""

import msgspec
import pytest

from coordinator.groups.events import TopicState, Transact
from coordinator.groups.open_transactions import SEQUENCES_KEPT, OpenTransactions
from coordinator.groups.state.group import Group
from coordinator.groups.state.step import step
from log_tables.clock import SystemClock
from log_tables.cluster.group_log import ProducerValue, encode
from log_tables.errors import (
    InvalidTransactionState,
    LakelogError,
    Retriable,
    SequenceGap,
    StaleProducerEpoch,
)
from log_tables.limits import KEPT_PRODUCER_ID_MIN, SEQUENCE_MODULUS
from log_tables.segments.producer_staging import ProducerFile, ProducerRun
from log_tables.segments.staging import StagedFile, StagedRun
from tests.kit.loop_holds import HELD_MAX_S, Hold, shortest

VALUE = ProducerValue(7, 0, 1_000)


def run(sequence: int, records: int = 5, start: int = 0, number: int = 1, epoch: int = 0) -> ProducerRun:
    return ProducerRun("x", 7, epoch, number, sequence, StagedRun("t", "id-t", 0, start, 10, records))


class Coordinator:
    """One that has begun the transaction of an id, or (`knows` is False) has taken over."""

    def __init__(self, value: ProducerValue = VALUE) -> None:
        self.open, self.value = OpenTransactions(), value

    def add(self, file: str, entry: ProducerRun) -> LakelogError | None:
        return self.open.add("x", file, entry, self.value, 0.0)

    def remember(self, **files: ProducerRun) -> list[str]:
        named = [ProducerFile(path, (entry,)) for path, entry in files.items()]
        return self.open.remember(named, {"x": self.value}, 0.0)

    def staged(self) -> list[str]:
        found = self.open.find("x")
        return [] if found is None else [path for path, _ in found.runs]


def test_runs_follow_one_another_and_a_repeat_counts_once() -> None:
    one = Coordinator()
    assert one.add("a", run(0)) is None
    assert one.add("b", run(5)) is None
    assert one.add("c", run(0)) is None
    assert one.add("d", run(0, 10)) is None
    assert one.staged() == ["a", "b"]


def test_a_partition_begins_at_the_first_sequence_of_its_producer() -> None:
    one = Coordinator()
    assert isinstance(one.add("b", run(5)), SequenceGap)
    assert one.add("a", run(0)) is None
    assert one.add("b", run(5)) is None


def test_a_gap_is_refused_with_what_is_expected() -> None:
    one = Coordinator()
    one.add("a", run(0))
    error = one.add("c", run(10))
    assert isinstance(error, SequenceGap)
    assert error.details["expected"] == 5


def test_a_run_of_which_a_part_is_a_repeat_is_sent_again() -> None:
    one = Coordinator()
    one.add("a", run(0))
    assert isinstance(one.add("b", run(0, 10)), Retriable)
    assert one.staged() == ["a"]


def test_sequences_wrap() -> None:
    last = SEQUENCE_MODULUS - 3
    one = Coordinator(msgspec.structs.replace(VALUE, sequences=(("id-t", 0, last),)))
    assert one.add("a", run(last)) is None
    assert one.add("b", run(2)) is None
    assert one.add("c", run(last)) is None
    assert one.staged() == ["a", "b"]
    two = Coordinator(one.value)
    assert two.remember(b=run(2), a=run(last)) == []
    assert two.staged() == ["a", "b"]


def test_what_comes_late_does_not_join_the_next_transaction() -> None:
    one = Coordinator(msgspec.structs.replace(VALUE, number=1))
    assert isinstance(one.add("a", run(0)), InvalidTransactionState)
    fenced = one.add("a", run(0, number=2, epoch=1))
    assert isinstance(fenced, StaleProducerEpoch), "it is told so whether it was before or amid the put"
    assert one.open.find("x") is None
    assert not one.open.uses("a")


def test_a_transaction_that_another_coordinator_has_begun_begins_here_too() -> None:
    one = Coordinator()
    assert one.add("a", run(0)) is None
    assert one.staged() == ["a"]


def test_a_partition_of_which_nothing_is_kept_may_begin_anywhere() -> None:
    many = tuple(("id-u", partition, 1) for partition in range(SEQUENCES_KEPT))
    one = Coordinator(msgspec.structs.replace(VALUE, sequences=many))
    assert one.add("a", run(90)) is None


def test_a_new_coordinator_knows_the_runs_up_to_a_gap() -> None:
    one = Coordinator()
    assert one.remember(c=run(10), a=run(0), e=run(20)) == []
    assert one.staged() == ["a"]
    assert one.add("b", run(5)) is None


def test_a_new_coordinator_takes_the_runs_that_reach_farthest() -> None:
    one = Coordinator()
    one.remember(a=run(0), b=run(0, 10), c=run(10))
    assert one.staged() == ["b", "c"]
    two = Coordinator()
    two.remember(b=run(0, 10), a=run(0), c=run(5, 10), d=run(15))
    assert two.staged() == ["a", "c", "d"]


def test_a_new_coordinator_leaves_what_has_ended_or_is_of_another_epoch() -> None:
    one = Coordinator(msgspec.structs.replace(VALUE, number=1))
    assert one.remember(a=run(0), b=run(0, number=2, epoch=1), c=run(0, number=3)) == ["a", "b", "c"]


def test_runs_stay_in_order_where_files_interleave() -> None:
    one = Coordinator()
    for file, start, sequence in (("a", 0, 0), ("b", 0, 5), ("a", 10, 10)):
        one.add(file, run(sequence, start=start))
    found = one.open.find("x")
    assert found is not None
    staged = found.staged()
    assert [(file.path, [each.start for each in file.runs]) for file in staged] == [
        ("a", [0]),
        ("b", [0]),
        ("a", [10]),
    ]
    assert one.open.end("x", staged) == []
    assert one.open.release(staged) == ["b", "a"]


def test_files_with_refused_runs_stay_until_their_transaction_ends() -> None:
    one = Coordinator()
    one.add("a", run(0))
    one.add("c", run(10))
    assert one.open.uses("c")
    found = one.open.find("x")
    assert found is not None
    assert one.open.end("x", found.staged()) == ["c"]
    assert one.open.uses("a")


def test_a_report_that_comes_twice_holds_its_file_once() -> None:
    one = Coordinator()
    one.add("a", run(0))
    one.add("a", run(0))
    assert one.open.end("x") == ["a"]


def test_a_file_is_needed_while_any_transaction_in_it_is_committed() -> None:
    one = Coordinator()
    one.open.hold([StagedFile("a", (run(0).run,))])
    one.add("a", run(0, start=10))
    assert one.open.end("x") == []
    assert one.open.release([StagedFile("a", (run(0).run,))]) == ["a"]


@pytest.mark.parametrize(("sequence", "repeat"), [(0, True), (1, False), (5, False), (10, False)])
def test_a_batch_is_a_repeat_if_all_its_records_are_staged(sequence: int, repeat: bool) -> None:
    one = Coordinator()
    one.add("a", run(0))
    assert one.open.is_repeat("x", run(0).at, sequence, 5) is repeat


def test_nothing_is_a_repeat_in_a_partition_that_has_not_begun() -> None:
    one, before = Coordinator(), run(SEQUENCE_MODULUS - 5)
    one.open.begin("x", VALUE, 0.0)
    assert not one.open.is_repeat("x", before.at, before.sequence, 5)
    assert isinstance(one.add("a", before), SequenceGap)


def test_what_was_refused_counts_while_it_stays() -> None:
    one = Coordinator()
    for start in (0, 10):
        assert isinstance(one.add("a", run(5, start=start)), SequenceGap)
    assert (one.open.size_bytes, one.open.sizes[""]) == (20, 20)
    assert one.open.end("x") == ["a"]
    assert (one.open.size_bytes, one.open.sizes[""]) == (0, 0)


def test_a_transaction_of_very_many_requests_ends_in_one_short_turn() -> None:
    used_s = SystemClock().processor_s
    group = Group("ids", topics={"t": TopicState("id-t", 16)})

    def turn() -> Hold:
        one = Coordinator()
        for number in range(20_000):
            place, partition = divmod(number, 16)
            staged = StagedRun("t", "id-t", partition, partition * 1_000, 1_000, 5, "d" * 32)
            one.add(f"staging/0/{place:032x}.arrow", ProducerRun("x", 7, 0, 1, place * 5, staged))
        transaction = one.open.find("x")
        assert transaction is not None
        began = used_s()
        files = transaction.staged()
        event = Transact(offsets={}, staged=files, producer_id=KEPT_PRODUCER_ID_MIN, at_ms=1)
        _, records = step(group, event, 0)
        assert [encode(*each) for each in records]
        assert one.open.end("x", files) == []
        return used_s() - began, "the turn"

    assert shortest(turn)[0] < HELD_MAX_S
