"""Undo beside the jobs: whoever is amid a write when the other one acts, no record is lost that was said to
be there, and no file that is needed.
"""

from collections.abc import Callable, Collection
from functools import partial

import pytest

from log_tables.testing import WRITES, Failure, Fault
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
    path: str = "",
) -> list[World]:
    """Let `first` meet `second` at every so many of its calls of `operations` on a path that contains `path`;
    returns the worlds.
    """
    worlds = list[World]()
    for nth in range(1, 1_000, every):
        world = World(nth)
        met = world.meet(first, second, late, partial(Fault, nth, operations=operations, path=path), meeting)
        world.look()
        worlds.append(world)
        if not met:
            return worlds
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("first", "second", "late", "every", "path"),
    [
        ("restore", "retention", False, 1, "topics/t"),
        ("restore", "vacuum", True, 1, "topics/t"),
        ("undelete", "vacuum", True, 2, ""),
        ("retention", "restore", False, 1, "topics/t"),
        ("vacuum", "restore", False, 1, "topics/t"),
        ("vacuum", "undelete", True, 3, "topics/__cluster_metadata"),
    ],
)
def test_nothing_is_lost(first: str, second: str, late: bool, every: int, path: str) -> None:
    worlds = meet_everywhere(first, second, late, every=every, path=path)
    assert len(worlds) > 2
    assert any(first in world.done for world in worlds)


@pytest.mark.torture
@pytest.mark.parametrize("meeting", [before, after, dies(before), dies(after), unwritten])
@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("undo", UNDOES)
def test_nothing_is_lost_at_any_write_of_either(undo: str, beside: str, late: bool, meeting: Meeting) -> None:
    for first, second in ((undo, beside), (beside, undo)):
        meet_everywhere(first, second, late, meeting)


@pytest.mark.torture
@pytest.mark.parametrize("late", [False, True], ids=["soon", "late"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("undo", UNDOES)
def test_nothing_is_lost_at_any_call_of_either(undo: str, beside: str, late: bool) -> None:
    for first, second in ((undo, beside), (beside, undo)):
        meet_everywhere(first, second, late, before, 3, WRITES | READS | {"now_ms"})
