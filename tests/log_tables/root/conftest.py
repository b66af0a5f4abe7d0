"""A root that is copied."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent, IntentKey, OffsetKey, OffsetValue
from log_tables.cluster.root_location import note_location
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import open_store
from tests.kit.groups import say
from tests.kit.partitions import append_each, entry
from tests.kit.trees import VALUES


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A cluster with topics `t` and `u`, a group that has committed, and a transaction that is not yet
    applied.
    """
    made = Cluster.open(open_store(tmp_path / "here"), clock)
    for name in ("t", "u"):
        append_each(made.claim(create_topic(made, name), 0), VALUES)
    create_topic(made, CONSUMER_OFFSETS, internal=True)
    note_location(made.store)
    made.metadata_log.register_broker("http://original")
    topic = made.topic("t")
    part = PartitionRecords("t", topic.topic_id, 0, [entry(b"pending").records])
    staged = stage(made.store, clock, "g", [part])
    say(made, (IntentKey("g", 1), Intent(7, 1, (staged,))))
    say(made, (OffsetKey("g", "t", 0), OffsetValue(4, topic.topic_id)))
    return made
