"""The topics that groups hear of, and the deleted ones that may come back, are those of one moment."""

import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from coordinator.access.access import Access
from coordinator.groups.group_topics import GroupTopics
from ingest.pending_tasks import SharedRefresh
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_no_offset_is_forgotten_while_its_topic_comes_back(clock: ManualClock) -> None:
    """A topic goes and comes back as the metadata log is read: a group that was told that it is neither there
    nor to come back would delete its offsets.
    """
    store = open_store("memory://")
    made = Cluster.open(store, clock, "http://first")
    for number in range(100):
        create_topic(made, f"other-{number}")
    topic_id = create_topic(made, "t").topic_id
    readers = [Cluster.open(store, clock, f"http://{number}") for number in range(8)]
    for _ in range(40):
        delete_topic(made, "t")
        undelete_topic(made, "t")
    for reader in readers:
        topics = GroupTopics(
            reader, Access(lambda: made.metadata_log.access, clock), SharedRefresh(reader.refresh)
        )
        topics.look()
        reading = Thread(target=reader.refresh)
        reading.start()
        while reading.is_alive():
            topics.look()
            told = topics.changed(0)
            assert topic_id in {state.topic_id for state in told.topics.values()} | told.held
        reading.join()
