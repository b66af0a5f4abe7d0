"""A root that may be older than what clients have read begins another log epoch, and no other one does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location
from log_tables.store.store import Store, open_store
from tests.kit.partitions import append, append_each
from tests.kit.trees import copy_tree, reopened

VALUES = [b"0", b"1", b"2"]


@pytest.fixture
def original(tmp_path: Path, clock: ManualClock) -> Cluster:
    made = Cluster.open(open_store(tmp_path / "root"), clock)
    check_location(made, 0)
    append_each(made.claim(create_topic(made, "t"), 0), VALUES)
    return made


def adopted(original: Cluster, _: Path) -> Store:
    adopt(original.store, original.clock, 0, keep_id=True)
    return original.store


def copied(original: Cluster, target: Path) -> Store:
    store = open_store(target)
    copy_root(original.store, store, original.clock, keep_id=True)
    return store


def copied_as_files(original: Cluster, target: Path) -> Store:
    store = copy_tree(original, target)
    check_location(Cluster.open(store, original.clock, create=False), 0)
    return store


@pytest.mark.parametrize("make", [adopted, copied, copied_as_files])
def test_a_root_that_may_be_an_older_one_begins_an_epoch(
    make: Callable[[Cluster, Path], Store], original: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """Each table notes it when it is claimed, and until then has the older one to its end."""
    cluster = reopened(make(original, tmp_path / "other"), clock)
    log, epoch = cluster.topic("t").partition(0), cluster.log_epochs.newest
    assert epoch == clock.now_ms() // 60_000 > 0
    assert [*log.snapshot.log_epochs] == [(0, 0)]
    for _ in range(2):  # a gateway that leads next, and again
        append(cluster.claim(cluster.topic("t"), 0), b"new")
        assert [*log.snapshot.log_epochs] == [(0, 0), (epoch, len(VALUES))]
    log.checkpoint()
    check_location(reopened(cluster.store, clock), 0)
    again = reopened(cluster.store, clock)
    assert again.log_epochs == cluster.log_epochs
    assert again.topic("t").partition(0).snapshot.log_epochs == log.snapshot.log_epochs
    assert check(cluster.store).problems == []


def test_a_new_root_and_one_at_its_place_begin_none(
    original: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    made = Cluster.open(open_store(tmp_path / "new"), clock)
    create_topic(made, "t")
    for cluster in (made, original):
        check_location(cluster, 0)
        assert reopened(cluster.store, clock).log_epochs == ((0, 0),)


def test_an_epoch_that_the_root_does_not_have_is_named(original: Cluster, clock: ManualClock) -> None:
    log = original.topic("t").partition(0)
    log.begin_log_epoch("http://other")
    (problem,) = check(original.store).problems
    assert f"notes the log epoch {log.snapshot.log_epochs.newest}, which the metadata log" in problem
