"""Undo beside the jobs: whoever is amid a write when the other one acts, no record is lost that was said to
be there, and no file that is needed.
"""

from collections.abc import Callable, Collection

import pytest

from log_tables.testing import WRITES, Failure
from tests.kit.failures import READS, after, before, dies, unwritten
from tests.kit.undo_scene import UNDOES, World

BESIDE = ("retention", "vacuum", "make again")

Meeting = Callable[[Callable[[], object]], Failure]


def meet_everywhere(
    first: str,
    second: str,
    late: bool,
    meeting: Meeting = before,
    every: int = 1,
    operations: Collection[str] = WRITES,
) -> list[World]:
    """Let `first` meet `second` at every so many of its calls of `operations`; returns the worlds."""
    worlds = list[World]()
    for nth in range(1, 1_000, every):
        world = World(nth)
        met = world.meet(first, second, late, meeting, nth, operations)
        world.look()
        worlds.append(world)
        if not met:
            return worlds
    raise AssertionError("it never ends")


@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("restore", "retention"),
        ("restore", "vacuum"),
        ("undelete", "vacuum"),
        ("retention", "restore"),
        ("vacuum", "restore"),
        ("vacuum", "undelete"),
    ],
)
def test_nothing_is_lost(first: str, second: str, late: bool) -> None:
    every = 1 if first in UNDOES else 5
    worlds = meet_everywhere(first, second, late, every=every)
    assert any(first in world.done for world in worlds)


@pytest.mark.torture
@pytest.mark.parametrize("meeting", [before, after, dies(before), dies(after), unwritten])
@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("undo", UNDOES)
def test_nothing_is_lost_at_any_write_of_either(
    undo: str, beside: str, late: bool, meeting: Meeting
) -> None:
    for first, second in ((undo, beside), (beside, undo)):
        meet_everywhere(first, second, late, meeting)


@pytest.mark.torture
@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("undo", UNDOES)
def test_nothing_is_lost_at_any_call_of_either(undo: str, beside: str, late: bool) -> None:
    for first, second in ((undo, beside), (beside, undo)):
        meet_everywhere(first, second, late, before, 3, WRITES | READS | {"now_ms"})
