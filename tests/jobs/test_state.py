"""What the jobs know when they plan is what is there, whoever wrote it."""

from pathlib import Path

import pytest

from jobs import housekeeping
from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_admin import create_topic
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
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
