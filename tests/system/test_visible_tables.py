"""Changes of a table that one process left visible but not durable, and on which another process acts."""

import os
import stat
from pathlib import Path

import pytest

from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold, fold_remote
from log_tables.errors import AlreadyExists
from log_tables.layout import checkpoint_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S
from log_tables.partition.tier import commit_copies
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.local import LocalStore
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table, create_table
from log_tables.table.vacuum import vacuum
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.partitions import TABLE, another, append, append_each, new_partition
from tests.kit.power import HERE, Left, World, nothing
from tests.kit.tiers import commit_move, copied
from tests.kit.visible import Case, Step, died_in, here, ignoring, remote

TOPIC = "topics/t"

# Tables


def a_table_that_is_there_already(world: World) -> tuple[Step, Step]:
    def make() -> None:
        create_table(here(world), TABLE, world.clock)

    def find() -> None:
        ignoring(make, AlreadyExists)
        world.told("made", lambda left: Table(left.here, TABLE, ManualClock()))

    return make, find


def what_a_commit_is_decided_by(world: World) -> tuple[Step, Step]:
    """A commit, or the decision that none is needed, depends on a commit of another process."""
    partition = new_partition(here(world), world.clock)
    append(partition, b"0")

    def claim_and_append() -> None:
        other = another(partition, here(world))
        other.claim("http://other")
        append(other, b"1")

    def decide(snapshot: Snapshot) -> None:
        world.told("decided", lambda left: _reaches(left, snapshot.version))

    return claim_and_append, lambda: partition.table.transact(decide)


def _reaches(left: Left, version: int) -> None:
    assert left.partition().snapshot.version >= version


def what_a_commit_is_decided_by_after_a_sleep(world: World) -> tuple[Step, Step]:
    die, decide = what_a_commit_is_decided_by(world)

    def sleep_and_decide() -> None:
        world.clock.sleep(2_000 * CONFIRMATION_MAX_AGE_S)
        decide()

    return die, sleep_and_decide


def a_checkpoint_behind_which_commits_are_deleted(world: World) -> tuple[Step, Step]:
    """These deletions may last, though nobody has fsynced them."""
    partition = new_partition(here(world), world.clock)
    append(partition, b"0")
    world.holds(0, b"0")

    def clean() -> None:
        world.age()
        another(partition, here(world)).table.delete_expired_log()
        world.check(lambda path: "checkpoint" not in path)

    return another(partition, here(world)).checkpoint, clean


def a_checkpoint_behind_which_an_older_one_is_deleted(world: World) -> tuple[Step, Step]:
    """The older checkpoint may come back, with the commit of its version, and the hint may name it."""
    partition = new_partition(here(world), world.clock)
    append(partition, b"0")
    partition.checkpoint()
    older = checkpoint_path(TABLE, partition.snapshot.version).partition(".")[0]
    append_each(partition, [b"1", b"2"])
    for offset in range(3):
        world.holds(offset, b"%d" % offset)

    def clean() -> None:
        world.age()
        another(partition, here(world)).table.delete_expired_log()
        world.check(lambda path: older not in path)

    return another(partition, here(world)).checkpoint, clean


def a_merge_whose_inputs_are_vacuumed(world: World) -> tuple[Step, Step]:
    partition = new_partition(here(world), world.clock)
    append_each(partition, [b"0", b"1"])
    world.holds(0, b"0")
    world.holds(1, b"1")

    def merge_all() -> None:
        table = Table(here(world), TABLE, world.clock)
        inputs = table.snapshot.segments
        commit_merge(table, inputs, merge(table.store, TABLE, inputs, "lz4", world.clock))

    def vacuum_twice() -> None:
        for _mark_and_sweep in range(2):
            world.age()
            vacuum(Table(here(world), TABLE, world.clock))

    return merge_all, vacuum_twice


def a_ledger_of_what_is_to_be_vacuumed(world: World) -> tuple[Step, Step]:
    merge_all, vacuum_twice = a_merge_whose_inputs_are_vacuumed(world)
    merge_all()
    world.age()
    return lambda: vacuum(Table(here(world), TABLE, world.clock)), vacuum_twice


# The remote root


def the_mark_of_a_remote_root(world: World) -> tuple[Step, Step]:
    def mark() -> None:
        remote(world).mark()
        world.told("marked", lambda left: left.remote().check_there())

    return remote(world).mark, mark


def a_table_in_the_remote_root(world: World) -> tuple[Step, Step]:
    remote(world).mark()

    def make() -> None:
        remote(world).make_table(TABLE)

    def find() -> None:
        make()
        world.told("made", lambda left: left.remote().table(TABLE))

    return make, find


def records_that_are_moved(world: World) -> tuple[Step, Step]:
    partition = new_partition(here(world), world.clock)
    append_each(partition, [b"0", b"1"])
    world.holds(0, b"0")
    remote(world).mark()
    remote(world).make_table(TABLE)

    def move() -> None:
        table, root = Table(here(world), TABLE, world.clock), remote(world)
        made = copied(table, root, table.snapshot.segments)
        commit_move(table, root.table(TABLE), made)

    return lambda: append(partition, b"2"), move


def a_move_that_another_one_completes(world: World) -> tuple[Step, Step]:
    _, move = records_that_are_moved(world)
    world.holds(1, b"1")
    return move, move


def a_fold_by_which_jobs_go(world: World) -> tuple[Step, Step]:
    """Jobs merge and move segments that the table over the topic has."""

    def opened() -> Cluster:
        return Cluster.open(here(world), world.clock)

    cluster = opened()
    append_each(cluster.claim(create_topic(cluster, "t"), 0), [b"0", b"1"])

    def plan() -> None:
        (end,) = (state.folded for state in look(opened())[0] if state.topic == "t")
        world.told("folded", lambda left: check_end(TopicTable(left.here, TOPIC, ManualClock()), end))

    return lambda: fold(opened().topic("t")), plan


def a_table_over_the_remote_ones(world: World) -> tuple[Step, Step]:
    """Records leave the first root by what it says."""
    partition = new_partition(here(world), world.clock)
    append_each(partition, [b"0", b"1"])
    remote(world).mark()
    table = remote(world).make_table(TABLE)
    commit_copies(partition.table, table, copied(partition.table, remote(world), partition.snapshot.segments))

    def fold_there() -> None:
        end = fold_remote(remote(world), TOPIC, {0: table.snapshot}).end(0)
        world.told("folded", lambda left: check_end(left.remote().find_topic_table(TOPIC), end))

    return fold_there, fold_there


def check_end(table: TopicTable | None, end: int) -> None:
    assert table is not None
    assert table.snapshot.end(0) >= end


CASES: list[Case] = [
    a_table_that_is_there_already,
    what_a_commit_is_decided_by,
    what_a_commit_is_decided_by_after_a_sleep,
    a_checkpoint_behind_which_commits_are_deleted,
    a_checkpoint_behind_which_an_older_one_is_deleted,
    a_merge_whose_inputs_are_vacuumed,
    a_ledger_of_what_is_to_be_vacuumed,
    the_mark_of_a_remote_root,
    a_table_in_the_remote_root,
    records_that_are_moved,
    a_move_that_another_one_completes,
    a_fold_by_which_jobs_go,
    a_table_over_the_remote_ones,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_who_goes_by_what_another_left_makes_it_durable_first(tmp_path: Path, case: Case) -> None:
    number = 0
    while died_in(tmp_path / str(number), case, number + 1):
        number += 1
    assert number > 0


def test_who_claims_makes_the_names_of_segments_durable_too(tmp_path: Path) -> None:
    """Whoever put them, and whether or not that had the directory fsynced."""
    world = World(tmp_path / "disk", lambda _: None)
    partition = new_partition(here(world), world.clock)
    whole = world.disk.process()

    def files_only(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            whole(descriptor)

    other = another(partition, LocalStore(tmp_path / "disk" / HERE, world.clock, sync=files_only))
    other.claim("http://other")
    append(other, b"0")
    partition.claim("http://first")
    world.holds(0, b"0")
    world.check(nothing)
    world.disk.close()


def test_a_directory_that_was_pruned_and_recreated_is_durable_with_all_above_it(tmp_path: Path) -> None:
    world = World(tmp_path / "disk", lambda _: None)
    store, other = here(world), here(world)
    store.put("a/b/0", b"0")
    other.delete("a/b/0")
    assert not (tmp_path / "disk" / HERE / "a").exists()
    store.put_new("a/b/1", b"1")
    assert world.disk.cut(HERE, nothing).get("a/b/1") == b"1"
    world.disk.close()
