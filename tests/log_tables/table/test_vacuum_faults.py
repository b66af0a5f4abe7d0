"""Vacuums that die, fail, and meet."""

from contextlib import suppress

import pytest

from log_tables.errors import OutcomeUnknown
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    repeated,
)
from tests.kit.failures import before
from tests.kit.partitions import another, held
from tests.kit.vacuums import DAY_MS, World, due_and_unmarked


def test_a_vacuum_that_dies_anywhere_is_finished_by_the_next() -> None:
    counted = World()
    due_and_unmarked(counted)
    watched = FaultyStore(counted.store)
    done = counted.vacuum(watched)
    assert (done.marked, done.deleted) == (2, 3)
    assert watched.writes() == 6  # a ledger, the commit, three files, a ledger
    for nth in range(1, watched.writes() + 1):
        for failure in (crash_before, crash_after):
            world = World()
            due_and_unmarked(world)
            with pytest.raises(Crash):
                world.vacuum(FaultyStore(world.store, [Fault(nth, failure)]))
            assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}
            world.vacuum()
            world.wait(DAY_MS + 1)
            world.vacuum()
            assert (world.files(), world.ledgers()) == (world.live(), [])
            assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}


@pytest.mark.parametrize("failure", [answer_lost, repeated, nothing_landed])
def test_a_ledger_whose_put_is_answered_wrongly_does_no_harm(merged: World, failure: Failure) -> None:
    faulty = FaultyStore(merged.store, [Fault(1, failure, {"put_if_absent"}, "_vacuum")])
    with suppress(OutcomeUnknown):
        merged.vacuum(faulty)
    merged.vacuum()
    assert len(merged.ledgers()) == 1
    merged.wait(DAY_MS + 1)
    assert merged.vacuum().deleted == 3


def test_two_vacuums_at_once_delete_what_one_would() -> None:
    counted = World()
    due_and_unmarked(counted)
    watched = FaultyStore(counted.store)
    counted.vacuum(watched)
    for nth in range(1, len(watched.calls) + 1):
        world = World()
        due_and_unmarked(world)
        fault = Fault(nth, before(world.vacuum), {call.operation for call in watched.calls})
        world.vacuum(FaultyStore(world.store, [fault]))
        assert held(another(world.partition)) == {n: b"%d" % n for n in range(5)}
        assert len(world.files()) == 2 + 2
        world.wait(DAY_MS + 1)
        world.vacuum()
        assert (world.files(), world.ledgers()) == (world.live(), [])
