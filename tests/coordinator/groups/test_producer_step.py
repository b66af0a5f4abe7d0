"""Transactional ids, event by event."""

from dataclasses import replace

import msgspec
import pytest

from coordinator.groups.state.producer_step import EPOCH_MAX, Begin, End, begun, check, ended, fenced
from log_tables.cluster.group_log import ProducerValue
from log_tables.errors import InvalidTransactionState, StaleProducerEpoch, UnknownProducer

NEW = Begin(1_000, 7, 10, principal="User:ann")
VALUE = begun("x", None, NEW)
COMMIT = End(7, 0, True, 8, 20)


def at(value: ProducerValue, **other: object) -> ProducerValue:
    return msgspec.structs.replace(value, **other)


def test_an_id_begins_at_epoch_0() -> None:
    assert ProducerValue(7, 0, 1_000, changed_ms=10, principal="User:ann") == VALUE


def test_an_id_that_is_gone_is_known_to_no_client() -> None:
    with pytest.raises(UnknownProducer):
        begun("x", None, replace(NEW, producer_id=7, epoch=0))
    with pytest.raises(UnknownProducer):
        ended("x", None, COMMIT)
    with pytest.raises(UnknownProducer):
        check("x", VALUE, 8, 0)


def test_the_next_client_fences_the_one_before() -> None:
    after = begun("x", VALUE, NEW)
    assert (after.producer_id, after.epoch, after.number) == (7, 1, 0)
    with pytest.raises(StaleProducerEpoch) as caught:
        check("x", after, 7, 0)
    assert caught.value.details["current"] == 1


def test_a_client_that_was_fenced_does_not_get_the_epoch_of_the_next_one() -> None:
    after = begun("x", VALUE, NEW)
    with pytest.raises(StaleProducerEpoch):
        begun("x", after, replace(NEW, producer_id=7, epoch=0))


def test_a_client_gets_another_epoch_once_however_often_it_asks() -> None:
    asked = replace(NEW, producer_id=7, epoch=0)
    after = begun("x", VALUE, asked)
    assert after.epoch == 1
    assert begun("x", after, asked) is after
    assert begun("x", after, replace(asked, was_open=None)) is after


def test_a_repeat_does_not_abort_what_was_begun_since() -> None:
    asked = replace(NEW, producer_id=7, epoch=0)
    after = begun("x", VALUE, asked)
    with pytest.raises(StaleProducerEpoch):
        begun("x", after, replace(asked, was_open=True))


@pytest.mark.parametrize("was_open", [True, None])
def test_a_transaction_that_is_or_may_be_open_ends_with_its_client(was_open: bool | None) -> None:
    before = at(VALUE, number=3, committed=True, sequences=(("t", 0, 5),), groups=("g",))
    after = begun("x", before, replace(NEW, was_open=was_open, telling=("g",)))
    assert (after.number, after.committed, after.telling) == (4, False, ("g",))
    assert (after.sequences, after.groups) == ((), ())


def test_a_client_of_version_2_gets_another_epoch_with_each_end() -> None:
    event = replace(COMMIT, moves_on=True)
    after = ended("x", VALUE, event)
    assert (after.epoch, after.number, after.committed, after.by_end) == (1, 1, True, True)
    assert ended("x", after, event) is after
    with pytest.raises(InvalidTransactionState, match="was committed"):
        ended("x", after, replace(event, commits=False))


def test_a_client_of_version_2_that_hears_nothing_of_the_end_begins_with_the_new_epoch() -> None:
    after = ended("x", VALUE, replace(COMMIT, moves_on=True))
    assert begun("x", after, replace(NEW, producer_id=7, epoch=0)) is after


def test_a_client_of_version_2_cannot_commit_what_it_has_not_begun() -> None:
    with pytest.raises(InvalidTransactionState, match="no transaction"):
        ended("x", VALUE, replace(COMMIT, moves_on=True, was_open=False))


def test_a_client_of_version_1_keeps_its_epoch_and_its_sequences() -> None:
    after = ended("x", VALUE, replace(COMMIT, sequences=(("t", 0, 5),)))
    assert (after.epoch, after.number, after.sequences) == (0, 1, (("t", 0, 5),))
    assert ended("x", after, replace(COMMIT, was_open=False)) is after


def test_the_end_of_a_transaction_that_was_lost_keeps_the_sequences_before_it() -> None:
    before = at(VALUE, sequences=(("t", 0, 5),))
    assert ended("x", before, replace(COMMIT, was_open=None)).sequences == (("t", 0, 5),)


def test_a_client_of_version_1_cannot_commit_after_an_abort() -> None:
    aborted = ended("x", VALUE, replace(COMMIT, commits=False))
    with pytest.raises(InvalidTransactionState, match="was aborted"):
        ended("x", aborted, replace(COMMIT, was_open=False))
    with pytest.raises(InvalidTransactionState, match="no transaction"):
        ended("x", VALUE, replace(COMMIT, was_open=False))


def test_an_abort_of_what_nobody_knows_keeps_its_late_records_out() -> None:
    before = at(VALUE, number=1, committed=False)
    after = ended("x", before, replace(COMMIT, commits=False, was_open=False))
    assert (after.number, after.committed) == (2, False)


def test_what_is_known_to_be_committed_is_not_said_to_be_aborted() -> None:
    before = at(VALUE, number=1, committed=True)
    with pytest.raises(InvalidTransactionState, match="was committed"):
        ended("x", before, replace(COMMIT, commits=False, was_open=False))


def test_an_id_takes_another_producer_id_after_its_last_epoch() -> None:
    last = at(VALUE, epoch=EPOCH_MAX)
    after = ended("x", last, replace(COMMIT, epoch=EPOCH_MAX, moves_on=True))
    assert (after.producer_id, after.epoch, after.replaced) == (8, 0, (7, EPOCH_MAX))
    assert ended("x", after, replace(COMMIT, epoch=EPOCH_MAX, moves_on=True)) is after
    assert begun("x", last, replace(NEW, new_producer_id=8)).producer_id == 8
    assert fenced(last, 8, 0, ()).producer_id == 8


def test_a_transaction_that_takes_too_long_fences_its_client_which_may_begin_again() -> None:
    late = fenced(at(VALUE, number=2, committed=True), 8, 30, ("g",))
    assert (late.epoch, late.number, late.committed, late.telling) == (1, 3, False, ("g",))
    with pytest.raises(StaleProducerEpoch):
        ended("x", late, COMMIT)
    assert begun("x", late, replace(NEW, producer_id=7, epoch=0)) is late  # KIP-588


@pytest.mark.parametrize("epoch", [0, EPOCH_MAX])
def test_a_client_of_version_2_may_abort_what_took_too_long_and_go_on(epoch: int) -> None:
    late = fenced(at(VALUE, epoch=epoch), 8, 30, ())
    asked = replace(COMMIT, epoch=epoch, moves_on=True, was_open=False)
    assert ended("x", late, replace(asked, commits=False)) is late
    with pytest.raises(InvalidTransactionState, match="was aborted"):
        ended("x", late, asked)
    other = begun("x", late, NEW)
    with pytest.raises((StaleProducerEpoch, UnknownProducer)):
        ended("x", other, replace(asked, commits=False))
