"""A standby whose disk is full: it waits, says so once, stays whole, and goes on when there is room."""

import logging
import threading
from pathlib import Path

import pytest

from jobs.replica.replicator import Replicator
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.partitions import append
from tests.kit.small_disk import fill, small_disk
from tests.kit.standby import newest_versions
from tests.kit.support import wait_until

DISK_BYTES, TOPICS = 12 << 20, 8


def test_a_standby_goes_on_when_there_is_room_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, clock, stopping = open_store(tmp_path / "root"), SystemClock(), threading.Event()
    cluster = Cluster.open(source)
    partitions = [cluster.claim(create_topic(cluster, f"t{number}", 1), 0) for number in range(TOPICS)]

    def write() -> None:
        for partition in partitions:
            append(partition, bytes.fromhex(clock.random_hex(100_000)))

    caplog.set_level(logging.INFO, "jobs.replica")
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        target = open_store(disk / "standby")
        following = threading.Thread(
            target=Replicator(source, target, clock).run, args=(stopping, lambda _: None)
        )
        following.start()
        try:
            write()
            wait_until(lambda: newest_versions(target) == newest_versions(source), "it has all")
            wait_until(lambda: "the standby is of one moment" in caplog.text, "it is level")
            fill(disk / "filling")
            write()
            wait_until(lambda: "has no room" in caplog.text, "it says that its disk is full")
            write()
            (disk / "filling").unlink()
            wait_until(lambda: newest_versions(target) == newest_versions(source), "it goes on")
            wait_until(lambda: "has room again" in caplog.text, "it says that it goes on")
        finally:
            stopping.set()
            following.join()
        assert check(target).problems == []
    said = [
        each
        for each in caplog.messages
        if "room" in each or "not replicated" in each or "not written" in each
    ]
    begin, end = said
    assert "the disk is full" in begin
    assert end.endswith("has room again")
