"""`kill -9` of a replication and of the gateway of its root, under producers, transactions and maintenance:
the standby that is promoted is the root as it was, and the old root then follows it.
"""

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lakelog
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import read_mark
from log_tables.errors import Conflict, LakelogError
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.forked import ForkedLakelog, run_lakelog
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.partitions import values
from tests.kit.standby import logs, newest_versions
from tests.kit.support import free_port, wait_until

PARTITIONS, EACH, AHEAD = 3, 20, 60
TOPICS = ("in", "out")
PATIENCE_MS, SESSION_MS = 3_000, 3_000
"""How long a client waits for a gateway that was killed, and the group for a client that is gone."""


class Flow:
    """A producer to `in`, and workers that copy each record of it twice to `out`, by transactions that commit
    where they are, until closed. A gateway that dies is waited for.
    """

    def __init__(self, url: str, produces: bool = True) -> None:
        self._url, self._end = url, threading.Event()
        self.copied, self._produced = threading.Semaphore(0), 0
        self._room = threading.Semaphore(AHEAD)
        acts = [self._copy, self._copy, *([self._produce] if produces else [])]
        self._threads = [threading.Thread(target=self._always, args=(act,)) for act in acts]
        for thread in self._threads:
            thread.start()

    def _always(self, act: Any) -> None:
        while not self._end.is_set():
            try:
                act()
            except LakelogError:  # the gateway is away for long, or another one has taken over
                continue

    def _produce(self) -> None:
        with lakelog.Producer(self._url, delivery_timeout_ms=PATIENCE_MS) as producer:
            while not self._end.is_set():
                for partition in range(PARTITIONS):
                    if not self._room.acquire(timeout=1):
                        break
                    self._produced += 1
                    producer.send("in", b"%d" % self._produced, partition=partition)
                producer.flush()

    def _copy(self) -> None:
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "auto_commit": False,
            "session_timeout_ms": SESSION_MS,
        }
        with lakelog.Consumer(self._url, "g", "in", retry_ms=PATIENCE_MS, **settings) as reading:
            while not self._end.is_set():
                table = reading.poll(200, max_bytes=400)
                if not table.num_rows:
                    continue
                try:
                    with reading.transaction() as transaction:
                        for value in table.column("value").to_pylist():
                            transaction.send("out", value, key=value)
                            transaction.send("out", b"-" + value, key=b"-" + value)
                except Conflict:
                    continue
                self._room.release(table.num_rows)
                self.copied.release()

    def wait_for(self, more: int) -> None:
        for _ in range(more):
            assert self.copied.acquire(timeout=60)

    def close(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


class Site:
    """A root with its gateway, and the process that replicates it to a standby."""

    def __init__(self, directory: Path) -> None:
        self.root, self.standby = directory / "root", directory / "standby"
        self.port = free_port()
        self.gateway = self.serve(self.root)
        for name in TOPICS:
            self.gateway.create_topic(name, PARTITIONS)
        self.replication = self.replicate()

    def serve(self, root: Path) -> RunningGateway:
        return start_gateway(root, "--port", str(self.port), linger_ms=1)

    def replicate(self) -> ForkedLakelog:
        return ForkedLakelog(["replicate", str(self.standby), "--data", str(self.root), "--with-credentials"])

    def kill_replication(self) -> None:
        self.replication.kill()
        self.replication.wait()

    def is_level(self) -> bool:
        mark = read_mark(open_store(self.standby))
        return mark is not None and mark.is_level

    def lose(self) -> Path:
        """Lose the root at a moment at which the standby is level; returns where it is."""
        while True:
            wait_until(self.is_level, "the standby is level")
            self.kill_replication()
            if self.is_level():
                break
            self.replication = self.replicate()
        self.gateway.kill()
        return self.root.rename(self.root.with_name("away"))


def read(root: Path, topic: str, partition: int) -> list[bytes | None]:
    cluster = Cluster.open(open_store(root), SystemClock(), create=False)
    return values(cluster.topic(topic).partition(partition))


def check_prefix(standby: Path, away: Path) -> None:
    """Each partition of the standby has the first records of the original's."""
    assert check(open_store(standby)).problems == []
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            found, whole = read(standby, topic, partition), read(away, topic, partition)
            assert found == whole[: len(found)]
            assert found


def check_copied(gateway: RunningGateway, standby: Path) -> None:
    """The group goes on from where it was: each record of `in` comes to be in `out` once."""
    flow = Flow(gateway.url, produces=False)
    expected = [value for partition in range(PARTITIONS) for value in read(standby, "in", partition)]

    def committed() -> int:
        answer = gateway.client.get("/consumers/g/offsets").json()
        return sum(at["offset"] for at in answer.get("offsets", []))

    wait_until(lambda: committed() == len(expected), "all is consumed")
    flow.close()
    assert gateway.stop() == 0
    found = Counter(value for partition in range(PARTITIONS) for value in read(standby, "out", partition))
    wanted = Counter(value for value in expected if value is not None)
    assert found == wanted + Counter({b"-" + value: number for value, number in wanted.items()})


def run(*words: str) -> None:
    done = run_lakelog(*words, environment={**os.environ, "LAKELOG_LEADER_TIMEOUT_MS": "500"})
    assert done.returncode == 0, done.stderr


def kills_and_back(directory: Path, seed: int, kills: int) -> None:
    draw, site = ManualClock(seed=seed), Site(directory)
    flow = Flow(site.gateway.url)
    try:
        for number in range(kills):
            flow.wait_for(1 + int(draw.random() * EACH))
            if draw.random() < 0.3:
                site.gateway.kill()
                site.gateway = site.serve(site.root)
            else:
                site.kill_replication()
                site.replication = site.replicate()
            if number % 4 == 1:
                run("maintain", "--once", "--data", str(site.root))
        flow.wait_for(EACH)
        away = site.lose()
    finally:
        site.kill_replication()
        flow.close()
    check_prefix(site.standby, away)
    run("root", "promote", "--data", str(site.standby))
    gateway = site.serve(site.standby)
    check_copied(gateway, site.standby)
    run("root", "failback", str(away), "--data", str(site.standby), "--discard")
    run("replicate", str(away), "--data", str(site.standby), "--once")
    old, new = open_store(away), open_store(site.standby)
    assert newest_versions(old) == newest_versions(new)
    there = logs(new)
    assert all(there.get(path, data) == data for path, data in logs(old).items())
    assert check(old).problems == []


def test_a_standby_is_the_root_as_it_was(tmp_path: Path, seed: int) -> None:
    kills_and_back(tmp_path, seed, kills=5)


@pytest.mark.torture
def test_a_standby_is_the_root_as_it_was_though_all_is_killed_often(tmp_path: Path, seed: int) -> None:
    kills_and_back(tmp_path, seed, kills=20)
