"""Two operators undo and redo at once, one of them amid any write of the other, and one of them may die."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import LakelogError
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, Crash, Failure, Fault, FaultyStore
from tests.kit.clusters import names
from tests.kit.failures import after, before, dies, unwritten
from tests.kit.partitions import append, values

VALUES = [b"%d" % number for number in range(6)]
LOG_START = 3


def restore(cluster: Cluster) -> None:
    restore_topic(cluster.topic("t"), cluster.clock.now_ms(), wanted(0, None))


ACTS: dict[str, Callable[[Cluster], object]] = {
    "delete": lambda cluster: delete_topic(cluster, "t"),
    "undelete": lambda cluster: undelete_topic(cluster, "t"),
    "undelete as u": lambda cluster: undelete_topic(cluster, "t", new_name="u"),
    "make again": lambda cluster: create_topic(cluster, "t"),
    "delete records": lambda cluster: cluster.topic("t").partition(0).truncate(5),
    "restore": restore,
}

PAIRS = [
    ("delete", "delete"),
    ("delete", "restore"),
    ("restore", "restore"),
    ("restore", "delete"),
    ("restore", "delete records"),
    ("delete records", "restore"),
    ("undelete", "undelete"),
    ("undelete", "undelete as u"),
    ("undelete as u", "undelete"),
    ("undelete", "delete"),
    ("undelete", "make again"),
    ("undelete as u", "make again"),
    ("make again", "undelete"),
    ("delete", "undelete"),
]
"""The act that is interrupted, and the one of the other operator. Those of a deleted topic begin with one."""


def copy_of(store: Store) -> Store:
    copied = open_store("memory://")
    for item in store.list(""):
        copied.put(item.path, store.get(item.path))
    return copied


TORTURE = [pytest.param(each, marks=pytest.mark.torture) for each in (after, dies(before), unwritten)]


@pytest.mark.parametrize("meets", [before, dies(after), *TORTURE])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_nothing_is_lost(
    clock: ManualClock, first: str, second: str, meets: Callable[[Callable[[], object]], Failure]
) -> None:
    root = open_store("memory://")
    maker = Cluster.open(root, clock)
    log = maker.claim(create_topic(maker, "t"), 0)
    for value in VALUES:
        append(log, value)
    log.truncate(LOG_START)
    fold(maker.topic("t"))
    if first != "delete" and "undelete" in first + second:
        delete_topic(maker, "t")
    for nth in range(1, 40):
        inner = copy_of(root)
        acted = list[bool]()

        def act(store: Store = inner, acted: list[bool] = acted) -> None:
            acted.append(True)
            with suppress(LakelogError):
                ACTS[second](Cluster.open(store, clock, "http://second"))

        with suppress(LakelogError, Crash):
            ACTS[first](Cluster.open(FaultyStore(inner, [Fault(nth, meets(act))]), clock))
        look(inner, clock)
        if not acted:
            return
    raise AssertionError("it never ends")


def look(store: Store, clock: ManualClock) -> None:
    """All records are there, in a topic or in one that can be brought back, and can be brought back once."""
    survivor = Cluster.open(store, clock, "http://third")
    with suppress(LakelogError):
        sweep(survivor)
    assert check(ClockedStore(store, clock)).problems == []
    if not any(holds(survivor, name) for name in names(survivor)):
        (gone,) = deletions(survivor)
        back = undelete_topic(survivor, "t", gone.topic_id, "back").name
        assert holds(survivor, back)
        assert check(ClockedStore(store, clock)).problems == []
    assert deletions(survivor) == []
    for name in names(survivor):
        append(survivor.claim(survivor.topic(name), 0), b"on")


def holds(cluster: Cluster, name: str) -> bool:
    """Whether a topic is the one with the records, from where its log starts."""
    log = cluster.with_current_topic(name, lambda topic: topic.partition(0))
    log.refresh()
    assert values(log) in (VALUES[log.log_start :], [])
    assert log.log_start in (0, LOG_START, 5)
    return bool(values(log))
