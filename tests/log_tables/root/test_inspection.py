"""A root that other tools copied, moved or put back is checked before it is served."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import TransactionsKey, TransactionsValue
from log_tables.cluster.root_location import RootLocation, locate
from log_tables.errors import CorruptLog
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.root.adopt import adopt
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location, inspect
from log_tables.store.store import ObjectInfo, Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.testing import FaultyStore
from tests.kit.forked import run_lakelog
from tests.kit.gateway import running_gateway
from tests.kit.groups import say
from tests.kit.partitions import append_each
from tests.kit.root_clients import OUT, transact
from tests.kit.support import wait_until
from tests.kit.tiers import move_topic, tiered_cluster
from tests.kit.trees import TIERED, VALUES, copy_tree, reopened

LONG_S = 30.0


def test_a_root_is_checked_once_wherever_it_is(cluster: Cluster, tmp_path: Path, clock: ManualClock) -> None:
    watched = FaultyStore(cluster.store)
    again = reopened(watched, clock)
    opening = len(watched.calls)
    check_location(again, 0)
    assert [call.operation for call in watched.calls[opening:]] == ["get", "get", "get", "identity"]
    assert locate(copy_tree(cluster, tmp_path / "copy")) is RootLocation.ELSEWHERE


def test_a_new_root_is_remembered_by_who_serves_it_first(tmp_path: Path, clock: ManualClock) -> None:
    made = Cluster.open(open_store(tmp_path), clock)
    assert locate(made.store) is RootLocation.UNKNOWN
    check_location(made, 0)
    assert locate(made.store) is RootLocation.HERE


def test_a_tree_that_was_copied_at_rest_is_served(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    for record in [*cluster.metadata_log.brokers.values()]:
        cluster.metadata_log.remove_broker(record)  # as gateways do that stop
    store = copy_tree(cluster, tmp_path / "copy")
    check_location(reopened(store, clock), 0)
    assert locate(store) is RootLocation.HERE


@pytest.mark.parametrize("home", ["copied", "left behind"])
def test_a_tree_with_transactions_that_was_copied_in_use_is_refused(
    cluster: Cluster, tmp_path: Path, clock: ManualClock, home: str
) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    if home == "left behind":
        for item in [*store.list("home/")]:
            store.delete(item.path)
    with pytest.raises(CorruptLog, match="transactions were copied with them cannot be seen"):
        check_location(reopened(store, clock), 0)


def test_a_tree_that_names_a_remote_root_is_refused_until_somebody_says_whose_it_is(
    tmp_path: Path, clock: ManualClock
) -> None:
    original = tiered_cluster(tmp_path, clock)
    append_each(original.claim(create_topic(original, "t", configs=TIERED), 0), VALUES)
    move_topic(original, "t", [2])
    store = copy_tree(original, tmp_path / "copy")
    with pytest.raises(
        CorruptLog, match=r"which only one root may write to.* `lakelog root adopt --keep-id`"
    ):
        check_location(reopened(store, clock), 0)
    adopt(store, clock, 0, keep_id=True)
    check_location(reopened(store, clock), 0)


def test_a_root_that_is_mounted_anew_is_served_whatever_it_holds(tmp_path: Path, clock: ManualClock) -> None:
    """Gateways were killed, groups have transactions, records are in a remote root, a segment is damaged.
    Then the volume is mounted elsewhere, and what mounts it sets the owner of every file.
    """
    original = tiered_cluster(tmp_path, clock)
    check_location(original, 0)
    append_each(original.claim(create_topic(original, "t", configs=TIERED), 0), VALUES)
    move_topic(original, "t", [2])
    say(original, (TransactionsKey("g"), TransactionsValue(KEPT_PRODUCER_ID_MIN, 3)))
    for number in range(2):
        original.metadata_log.register_broker(f"http://gateway{number}")
    with_cut_segment(original.store)
    mounted = tmp_path / "mounted"
    (tmp_path / "here").rename(mounted)
    for path in (mounted, *mounted.rglob("*")):
        os.chown(path, os.getuid(), os.getgid())
    store = open_store(mounted)
    assert locate(store) is RootLocation.HERE
    check_location(reopened(store, clock), 0)


def test_a_root_that_a_gateway_serves_is_no_copy_wherever_it_seems_to_be(tmp_path: Path) -> None:
    """As through a mount that has inodes of its own."""
    with running_gateway(tmp_path, linger_ms=0, refresh_interval_ms=50, leader_timeout_ms=1_000) as gateway:
        for topic in ("in", *OUT):
            gateway.create_topic(topic)
        assert gateway.produce("in", 0).status_code == 200
        transact(gateway.client, 0)
        store = open_store(tmp_path)
        store.put("home/identity", b"elsewhere")
        with pytest.raises(CorruptLog, match="gateways were on its list"):
            check_location(reopened(store, ManualClock()), 0)
        assert locate(store) is RootLocation.ELSEWHERE
        check_location(Cluster.open(store, SystemClock(), create=False), LONG_S)
        assert locate(store) is RootLocation.HERE
        wait_until(
            lambda: len(reopened(store, ManualClock()).metadata_log.brokers) == 1, "nobody else is listed"
        )


@pytest.mark.parametrize("left", ["topics", "home"])
def test_a_root_of_which_a_part_was_put_back_is_checked(
    cluster: Cluster, tmp_path: Path, clock: ManualClock, left: str
) -> None:
    copy_tree(cluster, tmp_path / "backup")
    root = tmp_path / "here"
    shutil.copytree(tmp_path / "backup" / left, root / "new")  # while the old inodes are taken
    shutil.rmtree(root / left)
    (root / "new").rename(root / left)
    assert locate(open_store(root)) is RootLocation.ELSEWHERE
    with pytest.raises(CorruptLog, match="cannot be served as it is"):
        check_location(reopened(open_store(root), clock), 0)


class Listing(StoreWrapper):
    """Two versions are put while it lists a table, of which it shows the second alone, as `list` may."""

    def __init__(self, inner: Store, put: Callable[[], None]) -> None:
        super().__init__(inner)
        self._put = put

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        before = {item.path for item in self.inner.list(prefix)}
        if prefix == "topics/t/partition=0/":
            self._put()
        found = [*self.inner.list(prefix, start_after)]
        new = [item.path for item in found if item.path not in before and "_delta_log" in item.path]
        return iter([item for item in found if item.path not in new[:1]])


def test_a_version_that_a_listing_does_not_show_is_not_missing(cluster: Cluster, clock: ManualClock) -> None:
    partition = cluster.claim(cluster.topic("t"), 0)
    watched = Listing(cluster.store, lambda: append_each(partition, [b"while", b"it lists"]))
    assert inspect(reopened(watched, clock)).problems == []
    assert partition.high_watermark == len(VALUES) + 2


def newest(store: Store, directory: str) -> str:
    return [item.path for item in store.list(f"{directory}/_delta_log/")][-1]


def without_segment(store: Store) -> None:
    path = next(item.path for item in store.list("topics/t/partition=0/") if item.path.endswith(".parquet"))
    store.delete(path)


def with_cut_segment(store: Store) -> None:
    path = next(item.path for item in store.list("topics/t/partition=0/") if item.path.endswith(".parquet"))
    store.put(path, store.get(path)[:-1])


def without_table(store: Store) -> None:
    for item in [*store.list("topics/t/")]:
        store.delete(item.path)


def with_hole(store: Store) -> None:
    path = [item.path for item in store.list("topics/t/partition=0/_delta_log/")][-3]
    store.delete(path)


def with_an_older_topic(store: Store) -> None:
    store.delete(newest(store, "topics/t/partition=0"))


def without_staged(store: Store) -> None:
    for item in [*store.list("staging/")]:
        store.delete(item.path)


def test_a_tree_whose_groups_are_ahead_of_a_topic_is_refused_until_somebody_says_that_it_may_be(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    with_an_older_topic(store)
    with pytest.raises(CorruptLog, match="committed offset 4 of partition 0 of t, which ends at 3"):
        check_location(reopened(store, clock), 0)
    assert check(store).problems == []  # as a client may commit it
    adopt(store, clock, 0)
    check_location(reopened(store, clock), 0)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (without_segment, "segment .* is missing"),
        (with_cut_segment, "bytes, and the log says"),
        (without_table, "there is no table"),
        (with_hole, "is missing, though version"),
        (without_staged, "the staged file .* is missing"),
    ],
)
def test_a_tree_that_is_not_whole_is_refused_and_fsck_names_the_same(
    cluster: Cluster, tmp_path: Path, clock: ManualClock, break_it: Callable[[Store], None], said: str
) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    break_it(store)
    with pytest.raises(CorruptLog, match=said):
        check_location(reopened(store, clock), 0)
    assert check(store).problems != []
    assert locate(store) is RootLocation.ELSEWHERE


def test_fsck_names_a_staged_file_that_was_changed(cluster: Cluster) -> None:
    (staged,) = cluster.store.list("staging/")
    data = bytes(cluster.store.get(staged.path))
    cluster.store.put(staged.path, data.replace(b"pending", b"PENDING"))
    (problem,) = check(cluster.store).problems
    assert "is missing, cut short or changed" in problem


def test_a_gateway_does_not_start_on_what_is_not_whole(cluster: Cluster, tmp_path: Path) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    without_segment(store)
    settings = {**os.environ, "LAKELOG_LEADER_TIMEOUT_MS": "200"}
    ended = run_lakelog("serve", "--data", str(tmp_path / "copy"), "--port", "0", environment=settings)
    assert ended.returncode == 1
    assert "cannot be served as it is: topics/t/partition=0: segment" in ended.stderr
    assert "`lakelog root copy`" in ended.stderr
    assert "Traceback" not in ended.stderr
