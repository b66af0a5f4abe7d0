"""Jobs plan with the present state of the tables, whoever wrote it."""

from pathlib import Path

import pytest

from jobs import housekeeping
from jobs.state import NOT_FOLDED, glance, look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, TOMBSTONE_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from log_tables.topic_table.topic_table import refold
from tests.kit.clusters import another
from tests.kit.folds import FoldedTopic, merge_folded
from tests.kit.maintenance import FAR, Root, run
from tests.kit.partitions import append_each


@pytest.fixture
def gateway(tmp_path: Path, clock: ManualClock) -> Cluster:
    return Cluster.open(open_store(tmp_path), clock, "http://gateway")


@pytest.fixture
def partition(gateway: Cluster) -> Partition:
    """A partition of the topic `t`, which `gateway` leads, in which a checkpoint is due."""
    made = gateway.claim(create_topic(gateway, "t"), 0)
    append_each(made, [b"%d" % number for number in range(CHECKPOINT_INTERVAL_COMMITS)])
    return made


def due(scheduler: Cluster) -> dict[str, tuple[int, bool]]:
    """The newest checkpoint that is known of each topic, and whether another one is to be written."""
    states = look(scheduler)[0]
    steps = housekeeping.plan(states, scheduler.clock.now_ms())
    writing = {step.topic for step in steps if step.checkpoint}
    return {state.topic: (state.checkpointed, state.topic in writing) for state in states}


def test_a_checkpoint_that_a_gateway_wrote_since_is_not_written_again(
    gateway: Cluster, partition: Partition
) -> None:
    scheduler = Cluster.open(gateway.store, gateway.clock, create=False)
    assert due(scheduler)["t"] == (0, True)
    partition.checkpoint()
    version = partition.snapshot.version
    assert due(scheduler)["t"] == (version, False)
    append_each(partition, [b"%d" % number for number in range(CHECKPOINT_INTERVAL_COMMITS)])
    assert due(scheduler)["t"] == (version, True)


FOREIGN = CommitInfo(operation="WRITE", engineInfo="another tool")


@pytest.fixture
def world(clock: ManualClock) -> FoldedTopic:
    world = FoldedTopic(open_store("memory://"), clock, 2)
    world.append(0, 3)
    return world


def folded(world: FoldedTopic, change: bool = True) -> list[int]:
    """How far each partition of the topic is folded, as a job sees it."""
    states, _ = look(world.cluster, change=change)
    return [state.folded for state in states if state.topic == "t"]


def test_a_look_folds_first_unless_it_may_change_nothing(world: FoldedTopic) -> None:
    assert folded(world, change=False) == [NOT_FOLDED, NOT_FOLDED]
    assert world.table.refresh().version == 0
    assert folded(world) == [3, 0]
    world.check_level()


def test_a_scheduler_that_runs_for_days_forgets_the_files_that_merges_have_replaced(
    world: FoldedTopic, clock: ManualClock
) -> None:
    scheduler = another(world.cluster)
    table = scheduler.topic("t").table()
    for _ in range(5):
        world.append(0, 4)
        look(scheduler)
        world.table.refresh()
        merge_folded(world, 0)
        look(scheduler)
        assert 0 < len(table.snapshot.tombstones) <= 3 + 4
        clock.pause(TOMBSTONE_RETENTION_MS / 1000 + 1)


def test_a_table_that_stands_still_is_named_and_nothing_of_its_topic_is_rewritten(world: FoldedTopic) -> None:
    world.fold()
    foreign = Commit(FOREIGN, (Txn("theirs", 1),))
    assert put_commit(world.cluster.store, "topics/t", 2, foreign, world.cluster.clock) is None
    for _ in range(2):
        states, unreadable = look(world.cluster)
        (found,) = unreadable
        assert (found.topic, found.partition) == ("t", 0)
        assert "the table over the topic cannot be used" in found.reason
        assert [state.rewritable for state in states if state.topic == "t"] == [(), ()]
    refold(world.cluster.store, "topics/t", world.cluster.clock)
    assert look(world.cluster)[1] == []
    assert folded(world) == [3, 0]


def test_a_glance_leaves_the_remote_root_alone(tmp_path: Path) -> None:
    """Each of its requests costs, and a glance is every few seconds."""
    root = Root(tmp_path)
    run(root.opened())
    (tmp_path / "away").rename(tmp_path / "gone")
    (looked,) = (state for state in look(root.opened())[0] if state.topic == FAR)
    (glanced,) = (state for state in glance(root.opened()) if state.topic == FAR)
    assert (bool(looked.unreachable), glanced.unreachable) == (True, "")
    assert glanced.snapshot == looked.snapshot
