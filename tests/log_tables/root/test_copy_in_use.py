"""A root is copied while clients write to it, by lakelog whole, by other tools whole or refused."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, Damaged
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location, inspect
from log_tables.store.store import open_store
from tests.kit.consumers import JSON
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.root_clients import GROUP, OUT, READER, busy, transact
from tests.kit.support import S3Server, wait_until
from tests.kit.trees import reopened


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


def copy_past(data: str, target: str, moments: int) -> None:
    """Copies of moments at which clients were busy, made while they go on."""
    states = []
    with busy(data, {}) as clients:
        for number in range(moments):
            acknowledged, copied, moment = clients.acknowledged, clients.copied, SystemClock().now_ms()
            wait_until(lambda: clients.copied >= copied + 5, "clients go on")  # noqa: B023
            store = open_store(f"{target}{number}")
            taken = copy_root(open_store(data), store, SystemClock(), as_of_ms=moment).as_of_ms
            assert taken is not None
            assert taken <= moment
            # Or of a moment before, at which one transaction less waited.
            states.append(
                (store.url, acknowledged, copied) if taken == moment else (store.url, 0, copied - 2)
            )
    for url, *counts in states:
        check_copy(url, {}, *counts)


def test_a_root_in_use_is_copied_whole_as_it_was(tmp_path: Path) -> None:
    copy_past(str(tmp_path / "root"), str(tmp_path / "then"), 2)


@pytest.mark.torture
def test_a_root_in_use_is_copied_whole_as_it_was_again_and_again(tmp_path: Path) -> None:
    copy_past(str(tmp_path / "root"), str(tmp_path / "then"), 10)


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
    """Copy `parts` of a directory in use, in this order, without files called `but`, as `cp -r` does. Files
    that come or go meanwhile may be missing.
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
            for number in range(3):
                before = ends(gateway)
                copy_tree_in_use(root, tmp_path / f"copy{number}", "")
                served(tmp_path / f"copy{number}", clock, before)
            traffic.stop_deleting()
            check_in_order(root, tmp_path, clock, traffic)
        finally:
            traffic.close()


def check_in_order(root: Path, tmp_path: Path, clock: ManualClock, traffic: Traffic) -> None:
    """Logs before what they name, and groups before topics: it is whole. Topics before groups: it is not."""
    metadata = "topics/__cluster_metadata/partition=0/_delta_log"
    groups = [f"topics/{CONSUMER_OFFSETS}/partition={number}/_delta_log" for number in range(3)]
    topics = [f"topics/t/partition={number}/_delta_log" for number in range(4)]
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
        check_location(cluster, 0)
    except Damaged as error:
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
                check_location(reopened(open_store(tmp_path / f"copy{number}"), clock), 0)
