"""The table of KIP-98, and conditional appends: who gets which offsets, before anything is durable."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.errors import OffsetMismatch, ProducerTaken, SequenceGap, StaleProducerEpoch
from log_tables.layout import TXN_HIGH_WATERMARK, producer_end_txn, producer_sequence_txn
from log_tables.limits import KEPT_PRODUCER_ID_MIN, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS
from log_tables.partition.sequencer import (
    AppendRequest,
    ProducerStamp,
    SequencedAppend,
    Sequencer,
    producers_of,
)
from log_tables.table.commit import Metadata, Protocol, Txn
from log_tables.table.snapshot import Snapshot
from log_tables.table.txns import ProducerState, Txns
from tests.kit.partitions import entry

LAST = SEQUENCE_MODULUS - 1


def sequencer(log_end: int = 0, **known: ProducerState) -> Sequencer:
    """On a log that ends at `log_end` and knows producers by `p7=ProducerState(…)`."""
    txns = [Txn(TXN_HIGH_WATERMARK, log_end)]
    for name, state in known.items():
        number, time = int(name[1:]), None if state.kept else 1
        txns.append(Txn(producer_sequence_txn(number), state.packed, time))
        txns.append(Txn(producer_end_txn(number), state.end_offset, time))
    return Sequencer(Snapshot(3, Protocol(1, 2), Metadata("id", "{}"), (), Txns(txns)), term=4)


def batch(sequence: int, count: int = 1, epoch: int = 0, number: int = 7) -> AppendRequest:
    return entry(*[b"x"] * count, producer=ProducerStamp(number, epoch, sequence))


def place(found: SequencedAppend) -> tuple[int | None, bool]:
    return found.base_offset, found.duplicate


def test_entries_get_consecutive_offsets_from_the_log_end_on() -> None:
    leader = sequencer(100)
    assert leader.sequence(entry(b"a", b"b")).base_offset == 100
    assert leader.sequence(entry(b"c")).base_offset == 102
    assert leader.log_end == 103


def test_what_is_given_names_its_term() -> None:
    assert sequencer().sequence(entry(b"a")).term == 4
    assert sequencer(9, p7=ProducerState(0, 1, 9)).sequence(batch(0)).term == 4


def test_the_last_batch_again_gets_its_offsets_again() -> None:
    leader = sequencer(10)
    assert place(leader.sequence(batch(0, 3))) == (10, False)
    leader.sequence(entry(b"from", b"others"))
    assert place(leader.sequence(batch(0, 3))) == (10, True)
    assert leader.log_end == 15
    assert place(leader.sequence(batch(3, 2))) == (15, False)


def test_the_last_five_batches_again_get_their_offsets_again() -> None:
    leader = sequencer(10)
    for sequence in range(0, 14, 2):
        leader.sequence(batch(sequence, 2))
        leader.sequence(entry(b"of others"))
    assert [place(leader.sequence(batch(sequence, 2))) for sequence in range(0, 14, 2)] == [
        (None, True), (None, True), (16, True), (19, True), (22, True), (25, True), (28, True),
    ]  # fmt: skip
    assert leader.log_end == 31


def test_what_was_sent_as_several_batches_has_no_single_place() -> None:
    leader = sequencer(10)
    leader.sequence(batch(0, 2))
    leader.sequence(entry(b"of others"))
    leader.sequence(batch(2, 1))
    assert place(leader.sequence(batch(0, 3))) == (None, True)
    assert place(leader.sequence(batch(1, 2))) == (None, True)
    assert place(leader.sequence(batch(2, 1))) == (13, True)


def test_the_end_of_the_last_batch_has_its_place() -> None:
    leader = sequencer(10)
    leader.sequence(batch(0, 3))
    assert place(leader.sequence(batch(1, 2))) == (11, True)


def test_batches_of_an_older_epoch_are_not_those_of_the_newer() -> None:
    leader = sequencer(10)
    for epoch in range(2):
        for sequence in range(3):
            leader.sequence(batch(sequence, epoch=epoch))
    assert [place(leader.sequence(batch(sequence, epoch=1))) for sequence in range(3)] == [
        (13, True), (14, True), (15, True),
    ]  # fmt: skip


def test_what_the_log_has_is_not_kept_twice_and_what_it_forgot_not_at_all() -> None:
    leader = sequencer(0)
    for number in range(3):
        leader.sequence(batch(0, number=number))
    known = sequencer(2, p0=ProducerState(0, 1, 1)).snapshot
    leader.forget(known, {0})
    assert place(leader.sequence(batch(0, number=0))) == (0, True)
    assert place(leader.sequence(batch(0, number=2))) == (2, True)  # it is not durable yet
    assert place(leader.sequence(batch(0, number=1))) == (3, False)
    assert leader._producers.keys() == {1, 2}
    assert not leader._batches  # each is told by the state of its producer


def test_batches_stay_known_as_long_as_their_producer() -> None:
    leader = sequencer(0)
    for number in range(2):
        for sequence in range(3):
            leader.sequence(batch(sequence, number=number))
    leader.forget(sequencer(6, p0=ProducerState(0, 3, 3)).snapshot, {0})
    assert [place(leader.sequence(batch(sequence, number=0))) for sequence in range(3)] == [
        (0, True), (1, True), (2, True),
    ]  # fmt: skip
    assert place(leader.sequence(batch(3, number=0))) == (6, False)
    assert place(leader.sequence(batch(0, 3, number=0))) == (None, True)
    assert leader._batches.keys() == {0}
    assert place(leader.sequence(batch(0, number=1))) == (7, False)


@pytest.mark.parametrize("sequence", [3, 5, 1000])
def test_a_gap_is_refused_and_names_what_is_next(sequence: int) -> None:
    leader = sequencer()
    leader.sequence(batch(0, 2))
    with pytest.raises(SequenceGap) as raised:
        leader.sequence(batch(sequence))
    assert raised.value.details == {"expected": 2}
    assert leader.log_end == 2


def test_a_batch_that_only_begins_as_a_repeat_is_refused() -> None:
    leader = sequencer(0)
    leader.sequence(batch(0, 3))
    with pytest.raises(SequenceGap):
        leader.sequence(batch(0, 4))
    with pytest.raises(SequenceGap):
        leader.sequence(batch(2, 2))


@pytest.mark.parametrize("sequence", [1, LAST])
def test_an_unknown_producer_begins_at_zero(sequence: int) -> None:
    with pytest.raises(SequenceGap) as raised:
        sequencer().sequence(batch(sequence))
    assert raised.value.details == {"expected": 0}
    assert place(sequencer().sequence(batch(0))) == (0, False)


def test_a_newer_epoch_begins_at_zero_and_fences_the_older() -> None:
    leader = sequencer(5, p7=ProducerState(2, 40, 5))
    with pytest.raises(SequenceGap) as gap:
        leader.sequence(batch(40, epoch=3))
    assert gap.value.details == {"expected": 0, "current": 2}
    assert place(leader.sequence(batch(0, epoch=3))) == (5, False)
    with pytest.raises(StaleProducerEpoch) as stale:
        leader.sequence(batch(40, epoch=2))
    assert stale.value.details == {"current": 3}
    assert place(leader.sequence(batch(0, epoch=3))) == (5, True)


def test_a_repeat_of_a_newer_epochs_first_batch_is_no_repeat_of_the_older() -> None:
    leader = sequencer(5, p7=ProducerState(2, 1, 5))
    assert place(leader.sequence(batch(0, epoch=3))) == (5, False)


def test_sequences_wrap_around_as_an_int32_does() -> None:
    leader = sequencer(9, p7=ProducerState(0, LAST - 1, 9))
    assert place(leader.sequence(batch(LAST - 1, 5))) == (9, False)
    assert place(leader.sequence(batch(LAST - 1, 5))) == (9, True)
    assert place(leader.sequence(batch(3, 1))) == (14, False)
    assert place(leader.sequence(batch(LAST - 1, 5))) == (9, True)
    with pytest.raises(SequenceGap) as raised:
        leader.sequence(batch(5))
    assert raised.value.details == {"expected": 4}


def test_a_wrap_ends_exactly_at_the_last_sequence() -> None:
    leader = sequencer(9, p7=ProducerState(0, LAST, 9))
    assert place(leader.sequence(batch(LAST))) == (9, False)
    assert place(leader.sequence(batch(0))) == (10, False)


def test_producers_do_not_know_of_each_other() -> None:
    leader = sequencer(0)
    leader.sequence(batch(0, 2, number=1))
    assert place(leader.sequence(batch(0, 1, number=2))) == (2, False)
    assert place(leader.sequence(batch(2, 1, number=1))) == (3, False)


def test_the_largest_epoch_and_sequence_fit_a_txn() -> None:
    state = ProducerState(PRODUCER_EPOCH_MAX, LAST, 2**62)
    assert state.packed < 2**63
    assert sequencer(0, p7=state).snapshot.producer(7) == state


@pytest.mark.parametrize("expected", [0, 4, 6, 100])
def test_a_conditional_append_at_another_end_is_refused_and_names_it(expected: int) -> None:
    leader = sequencer(5)
    with pytest.raises(OffsetMismatch) as raised:
        leader.sequence(entry(b"a", expected_offset=expected))
    assert raised.value.details == {"log_end_offset": 5}
    assert leader.sequence(entry(b"a", expected_offset=5)).base_offset == 5
    assert leader.sequence(entry(b"a", expected_offset=6)).base_offset == 6


def test_a_repeat_of_a_conditional_append_is_a_repeat_not_a_mismatch() -> None:
    leader = sequencer(5)
    once = entry(b"a", producer=ProducerStamp(7, 0, 0), expected_offset=5)
    assert place(leader.sequence(once)) == (5, False)
    assert place(leader.sequence(once)) == (5, True)


def test_a_refused_entry_changes_nothing() -> None:
    leader = sequencer(5)
    with pytest.raises(OffsetMismatch):
        leader.sequence(entry(b"a", producer=ProducerStamp(7, 0, 0), expected_offset=9))
    assert place(leader.sequence(batch(0))) == (5, False)


def test_the_txns_of_a_commit_say_what_the_sequencer_knows() -> None:
    leader = sequencer(5)
    sequenced = [
        leader.sequence(each) for each in (batch(0, 2), batch(2), entry(b"a"), batch(0, 3, number=8))
    ]
    assert producers_of(sequenced) == {7: ProducerState(0, 3, 8), 8: ProducerState(0, 3, 12)}
    assert producers_of(sequenced) == leader._producers


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(["next", "again", "checkpoint"])),
        max_size=30,
    ),
    st.integers(0, 5),
)
def test_whatever_is_repeated_each_batch_gets_offsets_once(
    sends: list[tuple[int, int, str]], before_wrap: int
) -> None:
    """Producers that begin near the wrap send batches in order, and now and then an older one again, before
    and after a checkpoint.
    """
    start = (SEQUENCE_MODULUS - before_wrap) % SEQUENCE_MODULUS
    leader = sequencer(0, **{f"p{n}": ProducerState(0, start, 0) for n in range(3)})
    following = [start] * 3
    sent: list[tuple[AppendRequest, int | None]] = []
    newest = [deque[AppendRequest](maxlen=5) for _ in range(3)]
    for number, count, what in sends:
        if what == "checkpoint":
            states = {f"p{n}": state for n in range(3) if (state := leader._known(n)) is not None}
            leader.forget(sequencer(leader.log_end, **states).snapshot, {0, 1, 2})
        elif what == "again" and sent:
            old, base = sent[(number * 7 + count) % len(sent)]
            found = leader.sequence(old)
            assert old.producer is not None
            assert place(found) == (base if old in newest[old.producer.id] else None, True)
        else:
            end = leader.log_end
            made = batch(following[number], count, number=number)
            found = leader.sequence(made)
            assert place(found) == (end, False)
            following[number] = (following[number] + count) % SEQUENCE_MODULUS
            sent.append((made, found.base_offset))
            newest[number].append(made)
    assert leader.log_end == sum(made.count for made, _ in sent)


@pytest.mark.parametrize(
    ("known", "stamp"),
    [
        (ProducerState(1, 1, 5, kept=True), ProducerStamp(7, 1, 1)),
        (ProducerState(1, 1, 5, kept=True), ProducerStamp(7, 1, 0)),  # not as a repeat either
        (ProducerState(1, 1, 5, kept=True), ProducerStamp(7, 2, 0)),
        (ProducerState(1, 1, 5), ProducerStamp(7, 1, 1, kept=True)),
        (ProducerState(1, 1, 5), ProducerStamp(7, 1, 0, kept=True)),
        (ProducerState(1, 1, 5), ProducerStamp(7, 2, 0, kept=True)),
        (None, ProducerStamp(KEPT_PRODUCER_ID_MIN, 0, 0)),
        (None, ProducerStamp(2**63 - 1, 0, 0)),
    ],
)
def test_producers_of_lakelog_and_of_clients_never_meet(
    known: ProducerState | None, stamp: ProducerStamp
) -> None:
    leader = sequencer(5) if known is None else sequencer(5, p7=known)
    with pytest.raises(ProducerTaken, match=str(stamp.id)):
        leader.sequence(entry(b"x", producer=stamp))
    assert leader.log_end == 5


def test_what_is_sequenced_and_not_committed_yet_has_an_owner_too() -> None:
    leader = sequencer(5)
    leader.sequence(entry(b"x", producer=ProducerStamp(7, 0, 0, kept=True)))
    with pytest.raises(ProducerTaken):
        leader.sequence(entry(b"x", producer=ProducerStamp(7, 1, 0)))
