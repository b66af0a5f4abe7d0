"""A root is copied whole while clients write to it; a copy that is not whole is refused, and says why."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.cluster.home import Home, look, remember
from log_tables.errors import CorruptLog, InvalidArgument
from log_tables.layout import CONSUMER_OFFSETS, UNFINISHED_COPY
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root, open_target
from log_tables.root.fsck import check
from log_tables.root.inspection import check_home, inspect
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import ObjectInfo, Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, StoreWrapper, crash_after, crash_before
from tests.kit.consumers import JSON
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.groups import say
from tests.kit.partitions import append_each, entry, values
from tests.kit.support import S3Server, wait_until
from tests.kit.tiers import move_topic, tiered_cluster

TIERED = {"remote.storage.enable": "true"}
VALUES = [b"0", b"1", b"2", b"3"]
GROUP, READER = "copier", "reader"
OUT = ("out", "out2")
LONG_S = 30.0


class Clients:
    """A producer of numbers to `in`, one who copies each by a transaction to two topics, and one who commits
    that it has read these, until closed.

    What is committed of `in` at k is, once all is applied, 0 to k-1 in both of the others, each once.
    """

    def __init__(self, url: str) -> None:
        self._url, self.acknowledged, self.copied = url, 0, 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._copy, self._read)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, headers={"Content-Type": JSON}) as client:
            while not self._ended.is_set():
                body = {"records": [{"value": self.acknowledged}]}
                assert client.post("/topics/in", json=body).status_code == 200
                self.acknowledged += 1

    def _copy(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, headers={"Content-Type": JSON}) as client:
            while not self._ended.is_set():
                if self.copied < self.acknowledged:
                    transact(client, self.copied)
                    self.copied += 1

    def _read(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._ended.is_set():
                end = client.get(f"/topics/{OUT[0]}/partitions/0/offsets").json()["end_offset"]
                body = {"offsets": [{"topic": OUT[0], "partition": 0, "offset": end}]}
                assert client.put(f"/consumers/{READER}/offsets", json=body).status_code == 204

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def transact(client: httpx.Client, number: int) -> None:
    """Copy record `number` of `in` to both topics, and commit that it was."""
    body = {
        "records": [{"topic": topic, "partition": 0, "value": number} for topic in OUT],
        "offsets": [{"topic": "in", "partition": 0, "offset": number + 1}],
    }
    answer = client.post(f"/consumers/{GROUP}/transactions", json=body, headers={"Content-Type": JSON})
    assert answer.status_code == 200, answer.text


@contextmanager
def busy(data: str, options: Mapping[str, str]) -> Iterator[Clients]:
    settings = {"store_options": json.dumps(dict(options)), "offsets_topic_num_partitions": 3}
    with running_gateway(data, linger_ms=0, **settings) as gateway:
        for topic in ("in", *OUT):
            gateway.create_topic(topic)
        clients = Clients(gateway.url)
        try:
            wait_until(lambda: clients.copied >= 5, "clients are busy")
            yield clients
        finally:
            clients.close()


def numbers(gateway: RunningGateway, topic: str) -> list[int]:
    found: list[int] = []
    while True:
        query = {"offset": len(found), "max_bytes": 1 << 20}
        answer = gateway.client.get(f"/topics/{topic}/partitions/0/records", params=query).json()
        if not answer:
            return found
        found += [record["value"] for record in answer]


def check_copy(target: str, options: Mapping[str, str], acknowledged: int, copied: int) -> None:
    """The copy is whole, holds what was acknowledged before, and goes on where it was."""
    assert check(open_store(target, options)).problems == []
    with running_gateway(target, linger_ms=0, store_options=json.dumps(dict(options))) as gateway:
        committed = gateway.client.get(f"/consumers/{GROUP}/offsets").json()["offsets"][0]["offset"]
        assert committed >= copied
        assert len(numbers(gateway, "in")) >= max(acknowledged, committed)
        read = gateway.client.get(f"/consumers/{READER}/offsets").json()["offsets"][0]["offset"]
        assert len(numbers(gateway, OUT[0])) >= read
        for number in range(committed, committed + 3):
            transact(gateway.client, number)
        expected = [*range(committed + 3)]
        for topic in OUT:
            wait_until(lambda: numbers(gateway, topic) == expected, f"{topic} has each once")  # noqa: B023
        assert len(gateway.client.get("/brokers").json()["brokers"]) == 1


def copy_busy(source: str, targets: Sequence[str], options: Mapping[str, str]) -> None:
    states = []
    with busy(source, options) as clients:
        for target in targets:
            states.append((target, clients.acknowledged, clients.copied))
            copy_root(open_store(source, options), open_store(target, options), SystemClock())
            wait_until(lambda: clients.copied >= states[-1][2] + 5, "clients go on")
    for state in states:
        check_copy(state[0], options, *state[1:])


def test_a_root_in_use_is_copied_whole(tmp_path: Path) -> None:
    copy_busy(str(tmp_path / "root"), [str(tmp_path / "copy")], {})


@pytest.mark.torture
def test_a_root_in_use_is_copied_whole_again_and_again(tmp_path: Path) -> None:
    copy_busy(str(tmp_path / "root"), [str(tmp_path / f"copy{number}") for number in range(20)], {})


def test_a_bucket_in_use_is_copied_whole(s3: S3Server) -> None:
    bucket = s3.bucket("copied")
    copy_busy(f"{bucket}/root", [f"{bucket}/copy"], s3.options)


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """With topics `t` and `u`, a group that has committed, and a transaction that waits to be applied."""
    made = Cluster.open(open_store(tmp_path / "here"), clock)
    for name in ("t", "u"):
        append_each(made.claim(made.create_topic(name), 0), VALUES)
    made.create_topic(CONSUMER_OFFSETS, internal=True)
    remember(made.store)
    made.metadata_log.register_broker("http://original")
    topic = made.topic("t")
    part = PartitionRecords("t", topic.topic_id, 0, [entry(b"pending").batch])
    staged = stage(made.store, clock, "g", [part])
    say(made, (IntentKey("g", 1), Intent(7, 1, (staged,))))
    say(made, (OffsetKey("g", "t", 0), OffsetValue(4, topic.topic_id)))
    return made


def copied(cluster: Cluster, target: Path, **options: Any) -> Cluster:
    copy_root(cluster.store, open_store(target), cluster.clock, **options)
    return Cluster.open(open_store(target), cluster.clock, create=False)


def test_a_copy_has_all_that_the_original_has_and_an_id_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    append_each(cluster.claim(cluster.topic("u"), 0), VALUES)
    cluster.topic("u").partition(0).truncate(2)
    made = copied(cluster, tmp_path / "copy")
    for name in ("t", "u"):
        here, there = cluster.topic(name), made.topic(name)
        assert (there.topic_id, there.config) == (here.topic_id, here.config)
        assert values(there.partition(0)) == values(here.partition(0))
        assert there.partition(0).log_start == here.partition(0).log_start
    assert made.cluster_id != cluster.cluster_id
    assert made.metadata_log.brokers == {}
    assert [item.path for item in made.store.list("staging/")] == [
        item.path for item in cluster.store.list("staging/")
    ]
    assert check(made.store).problems == []
    assert look(made.store) is Home.HERE


def test_a_copy_for_the_originals_place_keeps_its_id(cluster: Cluster, tmp_path: Path) -> None:
    assert copied(cluster, tmp_path / "copy", keep_id=True).cluster_id == cluster.cluster_id


def test_records_in_a_remote_root_come_along_and_it_is_not_the_copys(
    tmp_path: Path, clock: ManualClock
) -> None:
    original = tiered_cluster(tmp_path, clock)
    tiered = original.claim(original.create_topic("t", configs=TIERED), 0)
    append_each(tiered, VALUES)
    move_topic(original, "t", [2])
    there = {item.path for item in open_store(tmp_path / "away").list("")}
    made = copied(original, tmp_path / "copy")
    assert (made.remote_root, made.remote) == (None, None)
    assert values(made.topic("t").partition(0)) == VALUES
    assert made.topic("t").partition(0).snapshot.tiered == 0
    assert check(made.store).problems == []
    assert {item.path for item in open_store(tmp_path / "away").list("")} == there
    with pytest.raises(InvalidArgument, match="is the remote root of cluster"):
        made.set_remote_root(tmp_path / "away")
    made.set_remote_root(tmp_path / "its-own")
    move_topic(made, "t", [2])
    assert values(made.topic("t").partition(0)) == VALUES
    assert check(made.store).problems == []


@pytest.mark.parametrize("name", ["here", "here/inside", "."])
def test_a_root_is_not_copied_into_itself(cluster: Cluster, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="into itself"):
        copied(cluster, tmp_path / name)


def test_a_place_that_is_not_empty_is_no_place_for_a_copy(cluster: Cluster, tmp_path: Path) -> None:
    store = open_store(tmp_path / "full")
    store.put("mine", b"")
    with pytest.raises(InvalidArgument, match="is not empty"):
        copied(cluster, tmp_path / "full")
    store.delete("mine")
    store.put(UNFINISHED_COPY, b"file:///another")
    with pytest.raises(InvalidArgument, match="unfinished copy of file:///another"):
        copied(cluster, tmp_path / "full")


def test_a_copy_that_was_killed_anywhere_is_refused_until_it_was_gone_on_with(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Killed at each write in turn: what is there is refused, or whole; once more, and it is the copy."""
    number, died = 0, True
    while died:
        target, crash = tmp_path / f"copy{number}", (crash_before, crash_after)[number % 2]
        faulty = FaultyStore(open_store(target), [Fault(1 + number // 2, crash)])
        try:
            copy_root(cluster.store, faulty, cluster.clock)
        except Crash:
            check_unfinished(open_store(target), cluster)
        died = faulty.dead
        if died and (number < 1 or is_marked(target)):
            made = copied(cluster, target)
            assert values(made.topic("t").partition(0)) == VALUES
        assert check(open_store(target)).problems == []
        assert not is_marked(target)
        shutil.rmtree(target)
        number += 1
    assert number > 2 * 15


def test_a_directory_that_is_made_for_a_copy_is_never_empty(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before anything is copied, it is no place where a gateway would begin a root."""
    target = tmp_path / "above" / "copy"

    def died(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", died)
        with pytest.raises(Crash):
            open_target(cluster.store, str(target), {}, cluster.clock)
    assert not target.exists()
    store = open_target(cluster.store, str(target), {}, cluster.clock)
    assert is_marked(target)
    assert target.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in target.parent.iterdir()] == ["copy"]
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        check_home(Cluster.open(store, cluster.clock), 0)  # as a gateway begins
    again = open_target(cluster.store, str(target), {}, cluster.clock)
    copy_root(cluster.store, again, cluster.clock)
    assert check(again).problems == []


@pytest.mark.parametrize("begun", ["empty", "of another"])
def test_a_directory_that_is_there_is_taken_as_it_is(cluster: Cluster, tmp_path: Path, begun: str) -> None:
    target = tmp_path / "copy"
    store = open_store(target)
    if begun == "of another":
        store.put(UNFINISHED_COPY, b"file:///another")
    before = [item.path for item in store.list("")]
    assert [
        item.path for item in open_target(cluster.store, str(target), {}, cluster.clock).list("")
    ] == before


def test_a_place_within_the_root_is_not_made(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="into itself"):
        open_target(cluster.store, str(tmp_path / "here" / "inside"), {}, cluster.clock)
    assert not (tmp_path / "here" / "inside").exists()


def is_marked(target: Path) -> bool:
    return any(item.path == UNFINISHED_COPY for item in open_store(target).list(""))


def check_unfinished(store: Store, original: Cluster) -> None:
    """Nobody serves it, unless it is whole; then the command does not touch it any more."""
    try:
        cluster = Cluster.open(store, original.clock, create=False)
        check_home(cluster, 0)
    except (CorruptLog, InvalidArgument) as error:
        refused = error.message
    else:
        assert inspect(cluster).problems == []
        assert check(store).problems == []
        with pytest.raises(InvalidArgument, match="is not empty"):
            copy_root(original.store, store, original.clock)
        return
    assert "unfinished copy" in refused or "no lakelog data" in refused


def test_an_unfinished_copy_with_all_its_logs_is_no_root(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """Killed at the end. Served, it would lose what it acknowledged, once the copy was gone on with."""
    store = open_store(tmp_path / "copy")
    killed = FaultyStore(store, [Fault(1, crash_before, {"delete"}, UNFINISHED_COPY)])
    with pytest.raises(Crash):
        copy_root(cluster.store, killed, clock)
    made = Cluster.open(store, clock, create=False)
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        check_home(made, 0)
    for force in (False, True):
        with pytest.raises(CorruptLog, match="unfinished copy of file:"):
            adopt(store, clock, 0, force=force)
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        made.set_remote_root(tmp_path / "away")
    assert "unfinished copy" in check(store).problems[0]
    copied(cluster, tmp_path / "copy")
    check_home(reopened(store, clock), 0)


def test_a_copy_that_was_in_use_is_not_begun_again(cluster: Cluster, tmp_path: Path) -> None:
    made = copied(cluster, tmp_path / "copy")
    append_each(made.claim(made.topic("t"), 0), [b"acknowledged"])
    made.store.put(UNFINISHED_COPY, cluster.store.url.encode())  # as after a power cut it may come back
    with pytest.raises(InvalidArgument, match="was in use"):
        copied(cluster, tmp_path / "copy")
    assert values(made.topic("t").partition(0)) == [*VALUES, b"acknowledged"]


def test_a_copy_that_goes_on_looks_into_the_files_that_are_there(cluster: Cluster, tmp_path: Path) -> None:
    """A power cut may leave a file with all its bytes, each of them zero."""
    store = open_store(tmp_path / "copy")
    killed = FaultyStore(store, [Fault(1, crash_before, path="_delta_log")])
    with pytest.raises(Crash):
        copy_root(cluster.store, killed, cluster.clock)
    segments = [item for item in store.list("topics/t/") if item.path.endswith(".parquet")]
    store.put(segments[0].path, bytes(segments[0].size))
    put_new = [call.path for call in killed.calls if call.operation == "put_new"]
    assert put_new == []  # which shows a file before its bytes are durable
    made = copied(cluster, tmp_path / "copy")
    assert values(made.topic("t").partition(0)) == VALUES
    assert check(store).problems == []


# A copy that other tools made.


def copy_tree(cluster: Cluster, target: Path) -> Store:
    """What `cp -r` makes of a root."""
    shutil.copytree(cluster.store.url.removeprefix("file://"), target)
    return open_store(target)


def reopened(store: Store, clock: ManualClock) -> Cluster:
    return Cluster.open(store, clock, create=False)


def test_a_root_is_checked_once_wherever_it_is(cluster: Cluster, tmp_path: Path, clock: ManualClock) -> None:
    watched = FaultyStore(cluster.store)
    again = reopened(watched, clock)
    opening = len(watched.calls)
    check_home(again, 0)
    assert [call.operation for call in watched.calls[opening:]] == ["get", "identity"]
    assert look(copy_tree(cluster, tmp_path / "copy")) is Home.ELSEWHERE


def test_a_new_root_is_remembered_by_who_serves_it_first(tmp_path: Path, clock: ManualClock) -> None:
    made = Cluster.open(open_store(tmp_path), clock)
    assert look(made.store) is Home.UNKNOWN
    check_home(made, 0)
    assert look(made.store) is Home.HERE


def test_a_tree_that_was_copied_at_rest_is_served(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    for record in [*cluster.metadata_log.brokers.values()]:
        cluster.metadata_log.remove_broker(record)  # as gateways do that stop
    store = copy_tree(cluster, tmp_path / "copy")
    check_home(reopened(store, clock), 0)
    assert look(store) is Home.HERE


@pytest.mark.parametrize("home", ["copied", "left behind"])
def test_a_tree_with_transactions_that_was_copied_in_use_is_refused(
    cluster: Cluster, tmp_path: Path, clock: ManualClock, home: str
) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    if home == "left behind":
        for item in [*store.list("home/")]:
            store.delete(item.path)
    with pytest.raises(CorruptLog, match="transactions were copied with them cannot be seen"):
        check_home(reopened(store, clock), 0)


def test_a_tree_that_names_a_remote_root_is_refused_until_somebody_says_whose_it_is(
    tmp_path: Path, clock: ManualClock
) -> None:
    original = tiered_cluster(tmp_path, clock)
    append_each(original.claim(original.create_topic("t", configs=TIERED), 0), VALUES)
    move_topic(original, "t", [2])
    store = copy_tree(original, tmp_path / "copy")
    with pytest.raises(
        CorruptLog, match=r"which only one root may write to.* `lakelog root adopt --keep-id`"
    ):
        check_home(reopened(store, clock), 0)
    adopt(store, clock, 0, keep_id=True)
    check_home(reopened(store, clock), 0)


def test_a_root_that_is_mounted_anew_is_served_whatever_it_holds(tmp_path: Path, clock: ManualClock) -> None:
    """Gateways were killed, groups have transactions, records are in a remote root, a segment is damaged.
    Then the volume is mounted elsewhere, and what mounts it sets the owner of every file.
    """
    original = tiered_cluster(tmp_path, clock)
    check_home(original, 0)
    append_each(original.claim(original.create_topic("t", configs=TIERED), 0), VALUES)
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
    assert look(store) is Home.HERE
    check_home(reopened(store, clock), 0)


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
            check_home(reopened(store, ManualClock()), 0)
        assert look(store) is Home.ELSEWHERE
        check_home(Cluster.open(store, SystemClock(), create=False), LONG_S)
        assert look(store) is Home.HERE
        wait_until(
            lambda: len(reopened(store, ManualClock()).metadata_log.brokers) == 1, "nobody else is listed"
        )


@pytest.mark.parametrize("left", ["topics", "home"])
def test_a_root_of_which_a_part_was_put_back_is_checked(
    cluster: Cluster, tmp_path: Path, clock: ManualClock, left: str
) -> None:
    copy_tree(cluster, tmp_path / "backup")
    root = tmp_path / "here"
    shutil.rmtree(root / left)
    shutil.copytree(tmp_path / "backup" / left, root / left)
    assert look(open_store(root)) is Home.ELSEWHERE
    with pytest.raises(CorruptLog, match="cannot be served as it is"):
        check_home(reopened(open_store(root), clock), 0)


class Listing(StoreWrapper):
    """Two versions are put while it lists a table, of which it shows the second alone, as `list` may."""

    def __init__(self, inner: Store, put: Callable[[], None]) -> None:
        super().__init__(inner)
        self._put = put

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        before = {item.path for item in self.inner.list(prefix)}
        if prefix == "topics/t/0/":
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
    path = next(item.path for item in store.list("topics/t/0/") if item.path.endswith(".parquet"))
    store.delete(path)


def with_cut_segment(store: Store) -> None:
    path = next(item.path for item in store.list("topics/t/0/") if item.path.endswith(".parquet"))
    store.put(path, store.get(path)[:-1])


def without_table(store: Store) -> None:
    for item in [*store.list("topics/t/")]:
        store.delete(item.path)


def with_hole(store: Store) -> None:
    path = [item.path for item in store.list("topics/t/0/_delta_log/")][-3]
    store.delete(path)


def with_an_older_topic(store: Store) -> None:
    store.delete(newest(store, "topics/t/0"))


def without_staged(store: Store) -> None:
    for item in [*store.list("staging/")]:
        store.delete(item.path)


def test_a_tree_whose_groups_are_ahead_of_a_topic_is_refused_until_somebody_says_that_it_may_be(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    with_an_older_topic(store)
    with pytest.raises(CorruptLog, match="committed offset 4 of partition 0 of t, which ends at 3"):
        check_home(reopened(store, clock), 0)
    assert check(store).problems == []  # as a client may commit it
    adopt(store, clock, 0)
    check_home(reopened(store, clock), 0)


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
        check_home(reopened(store, clock), 0)
    assert check(store).problems != []
    assert look(store) is Home.ELSEWHERE


class Traffic:
    """A producer to the four partitions of `t`, a group that commits what it has read of them, and a topic
    that is made and deleted again and again, until closed.
    """

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway, self._ended = gateway, threading.Event()
        self._deleting, self._between = True, threading.Lock()
        gateway.create_topic("t", 4)
        self._threads = [threading.Thread(target=self._always, args=(act,)) for act in self._acts()]
        for thread in self._threads:
            thread.start()

    def _acts(self) -> list[Callable[[], None]]:
        return [self._produce, self.commit, self._make_again]

    def _always(self, act: Callable[[], None]) -> None:
        while not self._ended.is_set():
            act()

    def _produce(self) -> None:
        records = [{"value": number, "partition": number} for number in range(4)]
        answer = self.gateway.client.post(
            "/topics/t", json={"records": records}, headers={"Content-Type": JSON}
        )
        assert answer.status_code == 200, answer.text

    def commit(self) -> None:
        ends = [{"topic": "t", "partition": n, "offset": end(self.gateway, n)} for n in range(4)]
        answer = self.gateway.client.put("/consumers/readers/offsets", json={"offsets": ends})
        assert answer.status_code == 204, answer.text

    def _make_again(self) -> None:
        with self._between:
            if self._deleting:
                self.gateway.create_topic("phoenix")
                assert self.gateway.produce("phoenix", "ashes").status_code == 200
                path = f"{self.gateway.cluster}/topics/phoenix"
                assert self.gateway.client.delete(path).status_code == 204
        self._ended.wait(0.01)

    def stop_deleting(self) -> None:
        """When this returns, the topic was deleted for the last time."""
        with self._between:
            self._deleting = False

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def copy_tree_in_use(source: Path, target: Path, *parts: str, but: str = "") -> None:
    """What `cp -r` makes of `parts` of it, in this order, without what is called `but`: what comes and goes
    meanwhile is there or not.
    """
    for part in parts:
        with suppress(shutil.Error):
            shutil.copytree(
                source / part, target / part, ignore=shutil.ignore_patterns(but), dirs_exist_ok=True
            )


def test_a_tree_that_was_copied_in_use_is_whole_or_refused(tmp_path: Path, clock: ManualClock) -> None:
    root = tmp_path / "root"
    with running_gateway(root, linger_ms=0, offsets_topic_num_partitions=3) as gateway:
        traffic = Traffic(gateway)
        try:
            for number in range(5):
                before = ends(gateway)
                copy_tree_in_use(root, tmp_path / f"copy{number}", "")
                served(tmp_path / f"copy{number}", clock, before)
            traffic.stop_deleting()
            check_in_order(root, tmp_path, clock, traffic)
        finally:
            traffic.close()


def check_in_order(root: Path, tmp_path: Path, clock: ManualClock, traffic: Traffic) -> None:
    """Logs before what they name, and groups before topics: it is whole. Topics before groups: it is not."""
    metadata = "topics/__cluster_metadata/0/_delta_log"
    groups = [f"topics/{CONSUMER_OFFSETS}/{number}/_delta_log" for number in range(3)]
    topics = [f"topics/t/{number}/_delta_log" for number in range(4)]
    assert not Cluster.open(open_store(root), clock, create=False).cached_topic("phoenix")
    before = ends(traffic.gateway)
    copy_tree_in_use(root, tmp_path / "groups first", metadata, *groups, *topics)
    copy_tree_in_use(root, tmp_path / "groups first", "", but="_delta_log")
    assert served(tmp_path / "groups first", clock, before) == ""
    copy_tree_in_use(root, tmp_path / "topics first", metadata, *topics)
    before = ends(traffic.gateway)
    wait_until(lambda: min(ends(traffic.gateway)) > max(before), "there is more")
    traffic.commit()
    copy_tree_in_use(root, tmp_path / "topics first", *groups)
    copy_tree_in_use(root, tmp_path / "topics first", "", but="_delta_log")
    assert "group 'readers' has committed offset" in served(tmp_path / "topics first", clock, before)


def ends(gateway: RunningGateway) -> list[int]:
    return [end(gateway, partition) for partition in range(4)]


def end(gateway: RunningGateway, partition: int) -> int:
    answer = gateway.client.get(f"/topics/t/partitions/{partition}/offsets")
    return int(answer.json()["end_offset"])


def served(target: Path, clock: ManualClock, before: Sequence[int]) -> str:
    """Why a gateway does not start on a tree. One that it serves holds all that was acknowledged."""
    store = open_store(target)
    try:
        cluster = Cluster.open(store, clock, create=False)
        check_home(cluster, 0)
    except CorruptLog as error:
        refused = error.message
    else:
        refused = ""
    if refused:
        assert check(store).problems != [] or "has committed offset" in refused
        return refused
    assert check(store).problems == []
    assert [*inspect(cluster).problems] == []
    found = [partition.high_watermark for partition in cluster.topic("t").partitions()]
    assert all(now >= then for now, then in zip(found, before, strict=True))
    return ""


def test_a_tree_with_transactions_that_was_copied_in_use_is_never_served_unasked(
    tmp_path: Path, clock: ManualClock
) -> None:
    with busy(str(tmp_path / "root"), {}):
        for number in range(3):
            copy_tree_in_use(tmp_path / "root", tmp_path / f"copy{number}", "")
            with pytest.raises(CorruptLog):
                check_home(reopened(open_store(tmp_path / f"copy{number}"), clock), 0)


def test_a_gateway_does_not_start_on_what_is_not_whole(cluster: Cluster, tmp_path: Path) -> None:
    store = copy_tree(cluster, tmp_path / "copy")
    without_segment(store)
    command = [sys.executable, "-m", "lakelog", "serve", "--data", str(tmp_path / "copy"), "--port", "0"]
    settings = {**os.environ, "LAKELOG_LEADER_TIMEOUT_MS": "200"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert ended.returncode == 1
    assert "cannot be served as it is: topics/t/0: segment" in ended.stderr
    assert "`lakelog root copy`" in ended.stderr
    assert "Traceback" not in ended.stderr
