"""Runs of the jobs beside producers that make files all the time: each ends, and what waited gets less."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from log_tables.clock import SystemClock, timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.local import LocalStore
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.partitions import append_each
from tests.kit.support import ROOT

PARTITIONS = 4
PERIOD_S = 0.02
"""50 commits a second in each partition."""

RATE_MIN = PARTITIONS / PERIOD_S / 4
"""Commits a second of all partitions, a quarter of what the producers ask for: gateway,
producers and jobs share the cores."""

RUN_MAX_S = 60


def make_backlog(data: Path, segments: int) -> None:
    """Write so many segments of one record to each of PARTITIONS partitions of the topic `t`."""
    open_store(data)
    store = LocalStore(data, SystemClock(), sync=lambda _: None)
    cluster = Cluster.open(store, SystemClock())
    topic = create_topic(cluster, "t", PARTITIONS, configs={"merge.min.age.ms": "0"})
    for partition in topic.partitions():
        partition.claim("http://elsewhere")
        append_each(partition, [b"%d" % number for number in range(segments // PARTITIONS)])


@contextmanager
def producers(gateway: RunningGateway) -> Iterator[list[int]]:
    """A producer for each partition, of one record a request; gives what each was acknowledged."""
    stop, acknowledged = threading.Event(), [0] * PARTITIONS

    def produce(partition: int) -> None:
        while not stop.is_set():
            begun = timer()
            assert gateway.produce("t", "new", partition=partition).status_code == 200
            acknowledged[partition] += 1
            stop.wait(PERIOD_S - (timer() - begun))

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def maintain(data: str, *words: str) -> float:
    """The seconds that a run takes, which has to end well."""
    begun = timer()
    subprocess.run(
        [sys.executable, "-m", "lakelog", "maintain", "--once", "--data", data, *words],
        cwd=ROOT,
        check=True,
        timeout=10 * RUN_MAX_S,
    )
    return timer() - begun


def live_files(data: str, below: int = 2**63) -> int:
    """How many segments begin below that offset of their partition."""
    cluster = Cluster.open(open_store(data), SystemClock(), create=False)
    segments = (item for each in cluster.topic("t").partitions() for item in each.snapshot.segments)
    return sum(item.base_offset < below for item in segments)


def maintain_beside(directory: Path, backlog: int, runs: int) -> tuple[list[float], list[int], float]:
    """Run the jobs so often beside the producers; returns the seconds of each run, the files after it, and
    the commits a second meanwhile.
    """
    each = backlog // PARTITIONS
    make_backlog(directory / "data", backlog)
    with running_gateway(directory / "data", linger_ms=0) as gateway:
        for partition in range(PARTITIONS):
            assert gateway.produce("t", "first", partition=partition).status_code == 200
        took, left = list[float](), list[int]()
        with producers(gateway) as acknowledged:
            begun = timer()
            for _ in range(runs):
                took.append(maintain(gateway.data))
                left.append(live_files(gateway.data))
            rate = sum(acknowledged) / (timer() - begun)
        assert live_files(gateway.data, below=each) < backlog / 4
        cluster = Cluster.open(open_store(gateway.data), SystemClock())
        ends = [partition.high_watermark for partition in cluster.topic("t").partitions()]
        assert ends == [each + 1 + made for made in acknowledged]
    assert check(open_store(directory / "data")).problems == []
    return took, left, rate


def test_a_run_beside_busy_producers_ends(tmp_path: Path) -> None:
    maintain_beside(tmp_path, 400, runs=1)


@pytest.mark.torture
def test_runs_end_within_a_minute_beside_fifty_commits_a_second_and_a_backlog(tmp_path: Path) -> None:
    took, left, rate = maintain_beside(tmp_path, 20_000, runs=4)
    assert max(took) <= RUN_MAX_S
    assert max(left) < 20_000
    assert rate >= RATE_MIN, "the leader was not busy, so this shows nothing"
