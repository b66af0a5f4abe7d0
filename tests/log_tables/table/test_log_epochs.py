"""The log epochs of a table: which one an offset has, where one ends, and which one is next."""

import pytest

from log_tables.layout import TXN_LEADER, log_epoch_of_txn, log_epoch_txn
from log_tables.table.commit import Commit, Txn
from log_tables.table.invariant import broken_step
from log_tables.table.log_epochs import FIRST_EPOCH, LOG_EPOCH_MAX, LogEpochs
from tests.log_tables.table.test_invariant import BEFORE, OURS

MINUTE_MS = 60_000

NOTED = LogEpochs.of([Txn(TXN_LEADER, 7), Txn(log_epoch_txn(20), 5), Txn(log_epoch_txn(10), 3)])


def test_each_offset_has_the_newest_epoch_that_began_before() -> None:
    assert [NOTED.at(offset) for offset in (0, 2, 3, 4, 5, 99)] == [0, 0, 10, 10, 20, 20]
    nothing_between = LogEpochs.of([Txn(log_epoch_txn(10), 3), Txn(log_epoch_txn(20), 3)])
    assert [nothing_between.at(offset) for offset in (2, 3)] == [0, 20]
    assert FIRST_EPOCH.at(99) == 0


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    asked = (0, 9, 10, 19, 20, 21)
    assert [NOTED.end_of(epoch, 99) for epoch in asked] == [
        *[(0, 3), (0, 3), (10, 5), (10, 5), (20, 99), (20, 99)]
    ]
    assert FIRST_EPOCH.end_of(0, 99) == (0, 99)


def test_the_next_one_is_the_minute_or_one_more() -> None:
    assert FIRST_EPOCH.following(30 * MINUTE_MS) == 30
    assert [NOTED.following(minute * MINUTE_MS) for minute in (5, 20, 21)] == [21, 21, 21]
    assert FIRST_EPOCH.following(0) == 1
    assert FIRST_EPOCH.following(10**15) == LOG_EPOCH_MAX


@pytest.mark.parametrize("name", ["lakelog.epoch.0", "lakelog.epoch.01", "lakelog.epoch.", "lakelog.epoch.x"])
def test_other_txns_note_none(name: str) -> None:
    assert log_epoch_of_txn(name) is None
    assert log_epoch_of_txn(log_epoch_txn(12)) == 12


def claim(*noted: tuple[int, int]) -> Commit:
    """A claim that notes these epochs, with their starts."""
    return Commit(OURS, txns=(Txn(TXN_LEADER, 2), *(Txn(log_epoch_txn(number), at) for number, at in noted)))


def test_an_epoch_is_newer_and_begins_at_the_end_of_the_log() -> None:
    end = BEFORE.high_watermark
    noted = BEFORE.apply(claim((20, end)))
    assert broken_step(BEFORE, claim((20, end))) is None
    again = Commit(OURS, txns=(Txn(TXN_LEADER, 3), Txn(log_epoch_txn(20), end)))
    for before, commit, said in (
        (BEFORE, claim((20, end - 1)), "begins at offset 9, not at the high watermark 10"),
        (BEFORE, claim((20, end), (21, end)), "notes 2 log epochs"),
        (BEFORE, claim((LOG_EPOCH_MAX + 1, end)), "follows 0"),
        (noted, again, "the log epoch 20 follows 20"),
    ):
        assert said in (broken_step(before, commit) or "")
