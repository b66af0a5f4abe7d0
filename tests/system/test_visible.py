"""What one process left visible and not durable, and another one goes by.

In each case a process dies in one of its fsyncs, each in turn. Another one finds what that left, and acts on
account of it. From then on the power may be cut after every fsync: what was done stands only with its reason.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from jobs import housekeeping
from jobs.maintenance import Maintenance, jobs_named
from log_tables.clock import ManualClock
from log_tables.cluster import group_log
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent, IntentKey, pending_files
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.sweep import sweep
from log_tables.errors import AlreadyExists, LakelogError, OutcomeUnknown, TopicExists, UnknownTopic
from log_tables.layout import CLUSTER_METADATA, CONSUMER_OFFSETS, STAGING, checkpoint_path
from log_tables.limits import CONFIRMATION_MAX_AGE_S
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import commit_move
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table, create_table
from log_tables.table.vacuum import vacuum
from log_tables.testing import Crash
from tests.kit.disk import death
from tests.kit.no_spark import no_spark
from tests.kit.partitions import TABLE, another, append, append_each, held, new_partition
from tests.kit.power import HERE, Left, World, nothing
from tests.kit.tiers import CLUSTER, copied

Step = Callable[[], object]
Case = Callable[[World], tuple[Step, Step]]
"""Sets the scene; gives what a process does that dies, and what another one does then."""


def here(world: World) -> Store:
    """The root as a new process opens it."""
    return world.stores()[0]


def remote(world: World) -> RemoteRoot:
    """The remote root as a new process opens it."""
    return RemoteRoot("file:///away", CLUSTER, world.clock, lambda: world.stores()[1])


def cluster_of(world: World) -> Cluster:
    return Cluster.open(here(world), world.clock)


def ignoring(step: Step, *errors: type[LakelogError]) -> None:
    with suppress(*errors):
        step()


# Tables


def a_table_that_is_there_already(world: World) -> tuple[Step, Step]:
    def make() -> None:
        create_table(here(world), TABLE, world.clock)

    def find() -> None:
        ignoring(make, AlreadyExists)
        world.told("made", lambda left: Table(left.here, TABLE, ManualClock()))

    return make, find


def what_a_commit_is_decided_by(world: World) -> tuple[Step, Step]:
    """Also where the decision is that nothing is to be done."""
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
        another(partition, here(world)).delete_expired_log()
        world.check(lambda path: "checkpoint" not in path)

    return another(partition, here(world)).checkpoint, clean


def a_checkpoint_behind_which_an_older_one_is_deleted(world: World) -> tuple[Step, Step]:
    """It may come back, with the commit of its version, and be what the hint names."""
    partition = new_partition(here(world), world.clock)
    append(partition, b"0")
    partition.checkpoint()
    older = checkpoint_path(TABLE, partition.snapshot.version).partition(".")[0]
    append_each(partition, [b"1", b"2"])
    for offset in range(3):
        world.holds(offset, b"%d" % offset)

    def clean() -> None:
        world.age()
        another(partition, here(world)).delete_expired_log()
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


# Topics


def a_topic_that_is_there_already(world: World) -> tuple[Step, Step]:
    cluster_of(world)

    def create() -> None:
        cluster_of(world).create_topic("t")

    def create_again() -> None:
        ignoring(create, TopicExists)
        world.told("created", lambda left: left.cluster.topic("t"))

    return create, create_again


def a_topic_that_is_written_to(world: World) -> tuple[Step, Step]:
    cluster_of(world)

    def write() -> None:
        cluster = cluster_of(world)
        if cluster.cached_topic("t") is not None:
            append(cluster.claim(cluster.topic("t"), 0), b"x")
            world.told("written", lambda left: held(left.cluster.topic("t").partition(0))[0])

    return lambda: cluster_of(world).create_topic("t"), write


def with_a_record(world: World) -> Cluster:
    """The cluster with a topic `t` of one record, which is there unless the topic is deleted."""
    cluster = cluster_of(world)
    append(cluster.claim(cluster.create_topic("t"), 0), b"x")

    def still_there(left: Left) -> None:
        topic = left.cluster.cached_topic("t")
        if topic is not None and topic.config.retention_ms is None:
            assert held(topic.partition(0)) == {0: b"x"}

    world.told("written", still_there)
    return cluster


def delete(world: World) -> None:
    cluster_of(world).delete_topic("t")


def a_topic_that_is_deleted_again(world: World) -> tuple[Step, Step]:
    topic = with_a_record(world).topic("t")

    def gone(left: Left) -> None:
        assert left.cluster.cached_topic("t") is None
        assert Table(left.here, f"{topic.directory}/0", ManualClock()).snapshot.deleted

    def delete_again() -> None:
        ignoring(lambda: delete(world), UnknownTopic)
        world.told("deleted", gone)

    return lambda: delete(world), delete_again


def a_topic_whose_files_are_swept(world: World) -> tuple[Step, Step]:
    with_a_record(world)

    def sweep_twice() -> None:
        for delay_ms in (120_000, 7_200_000):  # the segments go first, the log an hour later
            world.clock.advance(delay_ms)
            sweep(cluster_of(world))

    return lambda: delete(world), sweep_twice


def what_a_change_of_a_topic_is_decided_by(world: World) -> tuple[Step, Step]:
    """It may have been made since whoever decides has looked."""
    cluster = with_a_record(world)

    def decide(known: TopicRecord | None) -> TopicRecord:
        assert known is not None
        if not known.live:
            world.told("deleted", lambda left: _absent(left, "t"))
        return known

    return lambda: delete(world), lambda: cluster.metadata_log.change_topic("t", decide)


def _absent(left: Left, name: str) -> None:
    assert left.cluster.cached_topic(name) is None


def a_setting_by_which_records_are_deleted(world: World) -> tuple[Step, Step]:
    with_a_record(world)

    def maintain() -> None:
        list(Maintenance(cluster_of(world), no_spark, jobs_named(["retention"])).run())

    return lambda: cluster_of(world).alter_topic("t", {"retention.ms": "1"}), maintain


# Staged files


def staged_file(world: World) -> StagedFile:
    part = PartitionRecords("t", "id", 0, [input_batch([Record(b"staged")], 0)])
    return staging.stage(here(world), world.clock, "g", [part])


def a_staged_file_that_is_named(world: World) -> tuple[Step, Step]:
    partition = with_groups(world)
    runs = staged_file(world).runs
    seen = {item.path for item in here(world).list(f"{STAGING}/")}

    def name() -> None:
        for item in [*here(world).list(f"{STAGING}/")]:
            if item.path not in seen:
                named = StagedFile(item.path, runs)
                staging.check(here(world), "g", [named])
                write_intent(partition, Intent(1, 0, (named,)))

    return lambda: staged_file(world), name


def a_transaction_that_is_done_with_its_files(world: World) -> tuple[Step, Step]:
    partition = with_groups(world)
    write_intent(partition, Intent(1, 0, (staged_file(world),)))

    def tidy() -> None:
        world.age()
        cluster = cluster_of(world)
        directory = cluster.metadata_log.partition.directory
        step = housekeeping.TidyStep(
            topic=CLUSTER_METADATA,
            partition=0,
            directory=directory,
            remote=False,
            checkpoint=False,
            clean=True,
        )
        list(housekeeping.run(no_spark, cluster, [step]))
        world.check(lambda path: f"/{STAGING}" in path)  # nobody has fsynced that deletion, and it may last

    return lambda: write_intent(partition, None), tidy


def with_groups(world: World) -> Partition:
    """The log of the groups; what is pending in it has its files."""

    def files_are_there(left: Left) -> None:
        for path in pending_files(left.cluster.topic(CONSUMER_OFFSETS).partitions()):
            left.here.head(path)

    cluster = cluster_of(world)
    topic = cluster.create_topic(CONSUMER_OFFSETS, internal=True)
    world.told("pending", files_are_there)
    return cluster.claim(topic, 0)


def write_intent(partition: Partition, intent: Intent | None) -> None:
    record = group_log.encode(IntentKey("g", 1), intent)
    partition.append([AppendRequest(input_batch([record], 0))])


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
    a_topic_that_is_there_already,
    a_topic_that_is_written_to,
    a_topic_that_is_deleted_again,
    a_topic_whose_files_are_swept,
    what_a_change_of_a_topic_is_decided_by,
    a_setting_by_which_records_are_deleted,
    a_staged_file_that_is_named,
    a_transaction_that_is_done_with_its_files,
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


def test_a_directory_that_was_pruned_and_made_again_is_durable_with_all_above_it(tmp_path: Path) -> None:
    world = World(tmp_path / "disk", lambda _: None)
    store, other = here(world), here(world)
    store.put("a/b/0", b"0")
    other.delete("a/b/0")
    assert not (tmp_path / "disk" / HERE / "a").exists()
    store.put_new("a/b/1", b"1")
    assert world.disk.cut(HERE, nothing).get("a/b/1") == b"1"
    world.disk.close()


def died_in(root: Path, case: Case, number: int) -> bool:
    """Whether there was an fsync of this `number`, in which one process died before another went on."""
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
