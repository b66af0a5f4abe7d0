"""Changes that one process left visible but not durable, and on which another process acts.

In each case a process dies in one of its fsyncs, each in turn. Another one finds the change, and acts on
account of it. From then on the power may be cut after every fsync: the act may survive only together with its
reason.
"""

from pathlib import Path

import pytest

from jobs import housekeeping
from jobs.maintenance import Maintenance, jobs_named
from log_tables.clock import ManualClock
from log_tables.cluster import group_log
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent, IntentKey, pending_files
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.errors import TopicExists, UnknownTopic
from log_tables.layout import CLUSTER_METADATA, CONSUMER_OFFSETS, STAGING
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.table.table import Table
from tests.kit.engines import always, no_engine
from tests.kit.partitions import append, held
from tests.kit.power import Left, World
from tests.kit.visible import Case, Step, died_in, here, ignoring


def cluster_of(world: World) -> Cluster:
    return Cluster.open(here(world), world.clock)


# Topics


def a_topic_that_is_there_already(world: World) -> tuple[Step, Step]:
    cluster_of(world)

    def create() -> None:
        create_topic(cluster_of(world), "t")

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

    return lambda: create_topic(cluster_of(world), "t"), write


def with_a_record(world: World) -> Cluster:
    """The cluster with a topic `t` of one record, which is there unless the topic is deleted."""
    cluster = cluster_of(world)
    append(cluster.claim(create_topic(cluster, "t", 1, {"topic.delete.delay.ms": "0"}), 0), b"x")

    def still_there(left: Left) -> None:
        topic = left.cluster.cached_topic("t")
        if topic is not None and topic.config.retention_ms is None:
            assert held(topic.partition(0)) == {0: b"x"}

    world.told("written", still_there)
    return cluster


def delete(world: World) -> None:
    delete_topic(cluster_of(world), "t")


def a_topic_that_is_deleted_again(world: World) -> tuple[Step, Step]:
    topic = with_a_record(world).topic("t")

    def gone(left: Left) -> None:
        assert left.cluster.cached_topic("t") is None
        assert Table(left.here, f"{topic.directory}/partition=0", ManualClock()).snapshot.deleted

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
    """A change of a topic follows from a record that another process may have written just now."""
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
        list(Maintenance(cluster_of(world), always(no_engine), jobs_named(["retention"])).run())

    return lambda: alter_topic(cluster_of(world), "t", {"retention.ms": "1"}), maintain


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
        list(housekeeping.run(no_engine, cluster, [step]))
        world.check(lambda path: f"/{STAGING}" in path)  # nobody has fsynced that deletion, and it may last

    return lambda: write_intent(partition, None), tidy


def with_groups(world: World) -> Partition:
    """The log of the groups; what is pending in it has its files."""

    def files_are_there(left: Left) -> None:
        for path in pending_files(left.cluster.topic(CONSUMER_OFFSETS).partitions()):
            left.here.head(path)

    cluster = cluster_of(world)
    topic = create_topic(cluster, CONSUMER_OFFSETS, internal=True)
    world.told("pending", files_are_there)
    return cluster.claim(topic, 0)


def write_intent(partition: Partition, intent: Intent | None) -> None:
    record = group_log.encode(IntentKey("g", 1), intent)
    partition.append([AppendRequest(input_batch([record], 0))])


CASES: list[Case] = [
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
