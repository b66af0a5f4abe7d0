"""A segment and its commit, whose fsyncs stand in one of two orders, on a disk that promises little or more.

`strict` is the order that needs nothing but POSIX, by which a name is durable once its directory is fsynced;
`fast` the one for disks that keep order, where the fsync of a new file makes its name durable too.
"""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from log_tables.errors import ObjectMissing
from tests.kit.commit_order import Appending, Fate
from tests.kit.disk import death
from tests.kit.models import short_form
from tests.kit.partitions import TABLE, another, append, new_partition
from tests.kit.power import World, everything, nothing


class Strict(Appending):
    """The order for every disk, on one that promises only what POSIX does."""


class Fast(Appending):
    """The order for disks that keep order, on such a disk."""

    ordered = fast = True


class Misplaced(Appending):
    """The order for disks that keep order, on one that does not."""

    fast = True


machines = pytest.mark.parametrize("machine", [Strict, Fast])


@machines
def test_in_either_order_nothing_is_lost_on_the_disk_that_it_is_for(machine: type[Appending]) -> None:
    run_state_machine_as_test(machine, settings=short_form(30, 12))


@pytest.mark.torture
@machines
def test_in_either_order_nothing_is_lost_for_long(machine: type[Appending]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(settings.get_profile("torture"), max_examples=500, stateful_step_count=40)
    )


def die_between_the_name_and_the_directories(machine: Appending) -> None:
    """A process appends a record, and dies when the commit of the next one has its name."""
    machine.start(0)
    machine.append(0, None, looks=True)
    machine.append(0, Fate(3, death), looks=True)


def look_at_many_cuts(machine: Appending) -> None:
    for cut in range(64):
        machine.look(cut)
    machine.append(1, None, looks=True)
    machine.cut(0)
    machine.teardown()


def test_on_a_disk_that_keeps_no_order_the_fast_one_leaves_a_commit_without_its_segment() -> None:
    machine = Misplaced()
    die_between_the_name_and_the_directories(machine)
    with pytest.raises(ObjectMissing):
        look_at_many_cuts(machine)


@machines
def test_where_it_belongs_either_order_leaves_none(machine: type[Appending]) -> None:
    right = machine()
    die_between_the_name_and_the_directories(right)
    look_at_many_cuts(right)


def test_when_another_commit_was_first_the_segment_is_not_put_again(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _: None, ordered=True)
    partition = new_partition(world.stores()[0], world.clock)
    another(partition, world.stores()[0]).set_properties({"owner": "somebody"})
    append(partition, b"0")
    world.holds(0, b"0")
    world.check(nothing, everything)
    files = [item.path for item in partition.table.store.list(TABLE) if item.path.endswith(".parquet")]
    assert files == [f"{TABLE}/{segment.path}" for segment in partition.snapshot.segments]
    assert partition.snapshot.metadata.configuration["owner"] == "somebody"
    world.disk.close()
