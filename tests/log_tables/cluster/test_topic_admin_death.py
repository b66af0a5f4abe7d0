"""A change of a topic is made whole or not at all, at whichever write its process dies."""

from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    crash_after,
    crash_before,
)
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.partitions import append, values


def copy_of(store: Store) -> Store:
    """A store of its own with the same objects."""
    copied = open_store("memory://")
    for item in store.list(""):
        copied.put(item.path, store.get(item.path))
    return copied


CHANGES: dict[str, tuple[Callable[[Cluster], object], set[tuple[str, int]], set[tuple[str, int]]]] = {
    "create": (
        lambda cluster: create_topic(cluster, "new", 2),
        {("old", 2)},
        {("old", 2), ("new", 2)},
    ),
    "grow": (lambda cluster: add_partitions(cluster, "old", 4), {("old", 2)}, {("old", 4)}),
    "delete": (lambda cluster: delete_topic(cluster, "old"), {("old", 2)}, set()),
    "alter": (
        lambda cluster: alter_topic(cluster, "old", {"compression.type": "lz4"}),
        {("old", 2)},
        {("old", 2)},
    ),
}


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_dies_at_any_write_is_made_whole_or_not_at_all(
    clock: ManualClock, name: str, failure: Failure
) -> None:
    change, unchanged, changed = CHANGES[name]
    root = open_store("memory://")
    old = create_topic(Cluster.open(root, clock), "old", 2)
    old.partition(0).claim("http://first")
    append(old.partition(0), b"kept")
    fold(old)
    seen = set()
    for nth in range(1, 40):
        inner = copy_of(root)
        try:
            change(Cluster.open(FaultyStore(inner, [Fault(nth, failure)]), clock))
        except Crash:
            pass
        else:
            break
        survivor = Cluster.open(inner, clock, "http://second")
        found = {(topic.name, topic.partition_count) for topic in survivor.topics()}
        assert found in (unchanged, changed)
        seen.add(found == changed)
        for topic in survivor.topics():
            for index in range(topic.partition_count):
                leader = survivor.claim(topic, index)
                append(leader, b"after")
        if ("old", 2) in found:
            assert values(survivor.topic("old").partition(0)) == [b"kept", b"after"]
        # By the clock of the change, it died a moment ago.
        assert check(ClockedStore(inner, clock)).problems == []
        for other in ("new", "old"):
            if other not in {n for n, _ in found}:
                again = create_topic(survivor, other, 3)
                assert [values(partition) for partition in again.partitions()] == [[], [], []]
        if not found & {("old", 2), ("old", 4)}:
            ended = TopicTable(inner, "topics/old", clock).snapshot
            assert ended.deleted
            assert not any(ended.segments.values())
        # By the clock of the change, it died a moment ago.
        assert check(ClockedStore(inner, clock)).problems == []
    else:
        raise AssertionError("it never ends")
    assert False in seen or name == "alter"
    assert True in seen or failure is crash_before  # the record is the last write of some
