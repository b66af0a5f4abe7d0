"""Tests for api/process/fold_duty.py: which tables a gateway folds, when, and how far behind they are."""

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from api.process.fold_duty import LOOK_MAX_S, RETRY_S, FoldDuty, FoldLags
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import add_partitions, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import CorruptLog, Damaged, ForeignCommit
from log_tables.layout import commit_path
from log_tables.store.store import open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from log_tables.testing import FaultyStore
from log_tables.topic_table.topic_table import refold
from tests.kit.clusters import another
from tests.kit.folds import FoldedTopic
from tests.kit.partitions import append
from tests.kit.support import WAIT_S

T = TypeVar("T")


@pytest.fixture
def world(clock: ManualClock) -> FoldedTopic:
    return FoldedTopic(FaultyStore(open_store("memory://"), []), clock, 3)


def duty_of(cluster: Cluster, led: bool = True, ours: bool = True) -> FoldDuty:
    return FoldDuty(cluster, lambda _: ours, lambda _: led, cluster.clock)


def asked(world: FoldedTopic) -> int:
    """How many calls the store has had."""
    store = world.cluster.store
    assert isinstance(store, FaultyStore)
    return len(store.calls)


def test_one_commit_folds_all_partitions_and_an_idle_topic_costs_nothing(world: FoldedTopic) -> None:
    duty = duty_of(world.cluster)
    for number in world.numbers:
        world.append(number, 5)
    duty.run()
    world.check_level()
    assert world.table.snapshot.version == 1
    before = asked(world)
    duty.run()
    assert asked(world) == before


def test_what_others_remove_from_a_led_partition_is_folded_although_nothing_is_appended(
    world: FoldedTopic, clock: ManualClock
) -> None:
    """A topic's records may be deleted, or expire, through another process, after its last append."""
    duty = duty_of(world.cluster)
    world.append(0, 5)
    duty.run()
    another(world.cluster).topic("t").partition(0).truncate(4)
    for _ in range(2):
        clock.advance(int(LOOK_MAX_S * 1_000))
        duty.run()
    world.check_level()
    assert [segment.base_offset for segment in world.table.snapshot.of(0)] == [4]
    before = asked(world)
    clock.advance(int(LOOK_MAX_S * 500))
    duty.run()
    assert asked(world) == before


class MeetingStore(StoreWrapper):
    """A store in which the commits of two folds wait for one another."""

    def __init__(self) -> None:
        super().__init__(open_store("memory://"))
        self.meeting = threading.Barrier(2, timeout=WAIT_S)
        self.folds = [commit_path(f"topics/{name}", 1) for name in ("first", "second")]

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation == "put_if_absent" and path in self.folds:
            self.meeting.wait()
        return perform()


def test_a_topic_does_not_wait_for_another(clock: ManualClock) -> None:
    cluster = Cluster.open(MeetingStore(), clock)
    for name in ("first", "second"):
        partition = create_topic(cluster, name).partition(0)
        partition.claim("")
        append(partition, b"v")
    duty_of(cluster).run()
    assert [cluster.topic(name).table().snapshot.end(0) for name in ("first", "second")] == [1, 1]


def test_a_topic_of_another_gateway_is_left_to_it(world: FoldedTopic) -> None:
    world.append(0)
    duty_of(world.cluster, ours=False).run()
    assert world.table.snapshot.version == 0


def test_what_others_lead_is_looked_at_less_often_while_nothing_comes(
    world: FoldedTopic, clock: ManualClock
) -> None:
    elsewhere = another(world.cluster)
    duty = duty_of(elsewhere)
    duty.run()
    rounds, looks = 60, 0
    for _ in range(rounds):
        clock.pause(1)
        before = asked(world)
        duty.run()
        looks += asked(world) - before
    assert looks < len(world.numbers) * (rounds / LOOK_MAX_S + 5)
    world.append(1)
    clock.pause(LOOK_MAX_S)
    duty.run()
    elsewhere.topic("t").table().refresh()
    world.table.refresh()
    world.check_level()


def test_looks_at_many_partitions_are_bounded_together_until_their_topic_is_used(
    world: FoldedTopic, clock: ManualClock
) -> None:
    elsewhere = another(world.cluster)
    few = 0.01  # as if there were thousands of partitions
    duty = FoldDuty(elsewhere, lambda _: True, lambda _: True, clock, few)
    looks = 0
    for second in range(2_000):
        before = asked(world)
        duty.run()
        looks += asked(world) - before if second > 1_000 else 0
        clock.pause(1)
    assert 0 < looks <= few * 1_000 + len(world.numbers)
    elsewhere.topic("t").partition(0).claim("http://second")
    world.topic.partition(0).refresh()
    world.append(1)
    append(elsewhere.topic("t").partition(0), b"v")
    for _ in range(round(LOOK_MAX_S) + 2):
        duty.run()
        clock.pause(1)
    assert elsewhere.topic("t").table().snapshot.end(1) == 1


def test_a_topic_that_a_dead_gateway_left_is_folded_once_and_not_kept_open(world: FoldedTopic) -> None:
    world.append(2, 4)
    elsewhere = another(world.cluster)
    duty = duty_of(elsewhere, led=False)
    duty.run()
    world.table.refresh()
    world.check_level()
    assert elsewhere.topic("t").opened() == []
    before = asked(world)
    duty.run()
    assert asked(world) == before


def test_a_damaged_partition_is_named_and_the_others_go_on(world: FoldedTopic, clock: ManualClock) -> None:
    elsewhere = another(world.cluster)
    for number in world.numbers:
        world.append(number)
    world.cluster.store.put(commit_path("topics/t/partition=1", 1), b"{")
    duty = duty_of(elsewhere)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="partition=1/_delta_log"):
            duty.run()
        clock.pause(1)
    folded = elsewhere.topic("t").table().snapshot
    assert [folded.end(number) for number in world.numbers] == [1, 0, 1]
    assert [*duty.lags()] == [("t", 2.0)]


def test_a_commit_of_another_tool_stops_the_fold_until_the_table_is_begun_again(
    world: FoldedTopic, clock: ManualClock
) -> None:
    duty = duty_of(world.cluster)
    world.append(0)
    duty.run()
    foreign = Commit(CommitInfo(operation="WRITE", engineInfo="another tool"), (Txn("theirs", 1),))
    assert put_commit(world.cluster.store, "topics/t", 2, foreign, clock) is None
    world.append(0)
    with pytest.raises(ForeignCommit, match="lakelog root refold"):
        duty.run()
    clock.pause(1)
    before = asked(world)
    with pytest.raises(ForeignCommit):
        duty.run()
    assert asked(world) == before, "it waits a while before it looks again"
    clock.pause(RETRY_S)
    with pytest.raises(Damaged):
        duty.run()
    assert [*duty.lags()] == [("t", RETRY_S + 1)]
    refold(world.cluster.store, "topics/t", clock)
    clock.pause(RETRY_S)
    duty.run()
    world.check_level()
    assert [*duty.lags()] == [("t", 0.0)]


def test_an_unused_topic_that_cannot_be_folded_does_not_keep_the_others(
    world: FoldedTopic, clock: ManualClock
) -> None:
    world.append(0)
    create_topic(world.cluster, "a")
    for item in [*world.cluster.store.list("topics/a/_delta_log/")]:
        world.cluster.store.delete(item.path)
    duty = duty_of(another(world.cluster), led=False)
    with pytest.raises(CorruptLog, match="the table over topic a"):
        duty.run()
    duty.run()
    world.table.refresh()
    world.check_level()


def test_a_damaged_partition_is_not_looked_at_every_second(world: FoldedTopic, clock: ManualClock) -> None:
    duty = duty_of(another(world.cluster))
    world.cluster.store.put(commit_path("topics/t/partition=1", 1), b"{")
    with pytest.raises(CorruptLog):
        duty.run()
    before = asked(world)
    for _ in range(5):
        with pytest.raises(CorruptLog):
            duty.run()
    assert asked(world) <= before + 5 * (len(world.numbers) - 1)


def test_two_gateways_that_fold_one_topic_end_level(world: FoldedTopic, clock: ManualClock) -> None:
    duties = [duty_of(world.cluster), duty_of(another(world.cluster))]
    for _ in range(4):
        for number in world.numbers:
            world.append(number, 2)
        for duty in duties:
            duty.run()
        clock.pause(LOOK_MAX_S)
    world.table.refresh()
    world.check_level()


def test_a_deleted_topic_is_forgotten(world: FoldedTopic) -> None:
    duty = duty_of(world.cluster)
    world.append(0)
    duty.run()
    delete_topic(world.cluster, "t")
    assert [*duty.lags()] == []
    duty.run()
    assert [*duty.lags()] == []


def test_a_topic_that_is_made_again_has_a_table_of_its_own(world: FoldedTopic) -> None:
    duty = duty_of(world.cluster)
    world.append(0)
    duty.run()
    before = world.topic.table()
    delete_topic(world.cluster, "t")
    topic = create_topic(world.cluster, "t")
    topic.partition(0).claim("http://first")
    append(topic.partition(0), b"v")
    duty.run()
    assert topic.directory == "topics/t~2"
    assert topic.table().snapshot.end(0) == 1
    assert before.snapshot.deleted
    assert not any(before.snapshot.segments.values())


def test_the_lags_are_a_metric_of_each_topic(world: FoldedTopic) -> None:
    duty = duty_of(world.cluster)
    duty.run()
    (family,) = FoldLags(duty.lags).collect()
    assert [(sample.name, sample.labels, sample.value) for sample in family.samples] == [
        ("lakelog_topic_table_lag_seconds", {"topic": "t"}, 0.0)
    ]


def test_a_partition_that_is_added_appears_with_its_first_record(world: FoldedTopic) -> None:
    duty = duty_of(world.cluster)
    topic: Topic = add_partitions(world.cluster, "t", 4)
    topic.partition(3).claim("http://first")
    append(topic.partition(3), b"v")
    duty.run()
    assert topic.table().snapshot.end(3) == 1
