"""A process that dies in one of its fsyncs, and another one that acts on what it left visible."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from log_tables.errors import LakelogError, OutcomeUnknown
from log_tables.partition.remote import RemoteRoot
from log_tables.store.store import Store
from log_tables.testing import Crash
from tests.kit.disk import death
from tests.kit.power import World, nothing
from tests.kit.tiers import CLUSTER

Step = Callable[[], object]
Case = Callable[[World], tuple[Step, Step]]
"""Sets the scene; gives what a process does that dies, and what another one does then."""


def here(world: World) -> Store:
    """The root as a new process opens it."""
    return world.stores()[0]


def remote(world: World) -> RemoteRoot:
    """The remote root as a new process opens it."""
    return RemoteRoot("file:///away", CLUSTER, world.clock, lambda: world.stores()[1])


def ignoring(step: Step, *errors: type[LakelogError]) -> None:
    with suppress(*errors):
        step()


def died_in(root: Path, case: Case, number: int) -> bool:
    """Run a case in which one process dies in fsync `number`, and another goes on. False if it had fewer
    fsyncs.
    """
    world = World(root, lambda _: None)
    try:
        die, go_on = case(world)
        world.disk.fails = death(world.disk.syncs + number)
        with suppress(Crash):
            die()
        world.disk.fails, world.watched = lambda _: None, True
        with suppress(OutcomeUnknown):
            go_on()
        world.check(nothing)
        return world.disk.failed
    except BaseException as error:
        error.add_note(f"fsync {number}")
        raise
    finally:
        world.disk.close()
