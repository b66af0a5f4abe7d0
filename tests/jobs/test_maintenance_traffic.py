"""All jobs, in a loop with tiny limits, beside a producer, a group and two Spark streams: nobody notices."""

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs import key_compaction, segment_compaction, tiering
from lakelog.client.consumer.consumer import Consumer
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.run_log import runs_table
from log_tables.cluster.cluster import Cluster
from log_tables.layout import MAINTENANCE
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.partitions import held, records
from tests.kit.queries import started
from tests.kit.support import ROOT, wait_until

pytestmark = pytest.mark.spark

ENGINES = ("local", "spark")
PARTITIONS = 2
KEYS = 20
LIMIT_S = 180
"""For a job to do something once, and for readers to come to the end."""

WORK = ((segment_compaction.NAME, "t"), (tiering.NAME, "t"), (key_compaction.NAME, "k"))
"""What has to have been done, and to which topic."""

Read = dict[int, list[tuple[int, bytes]]]
"""(Offset, value) in the order in which they came, by partition."""


class Producer:
    """Appends to `t`, and the newest state of KEYS keys to `k`, and remembers what was acknowledged."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._gateway = gateway
        self.acknowledged: Read = defaultdict(list)
        self.newest: dict[bytes, bytes] = {}
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            self._append(number)
            self._change(number)

    def _append(self, number: int) -> None:
        partition = number % PARTITIONS
        answer = self._gateway.produce(
            "t", *[f"{number}-{index}" for index in range(10)], partition=partition
        )
        if answer.status_code != 200:
            self.refused.append(answer.text)
            return
        for index, place in enumerate(answer.json()["offsets"]):
            self.acknowledged[partition].append((place["offset"], f'"{number}-{index}"'.encode()))

    def _change(self, number: int) -> None:
        key = f"key-{number % KEYS}"
        body = {"records": [{"key": key, "value": number}]}
        media = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        answer = self._gateway.client.post("/topics/k", json=body, headers=media)
        if answer.status_code != 200:
            self.refused.append(answer.text)
        else:
            self.newest[f'"{key}"'.encode()] = str(number).encode()

    def end(self) -> int:
        """Stop; returns how many records of `t` were acknowledged."""
        self._stop.set()
        self._thread.join()
        return sum(map(len, self.acknowledged.values()))


class GroupReader:
    """A member of a group, which reads `t` from its beginning and notes what it is given."""

    def __init__(self, url: str) -> None:
        self.read: Read = defaultdict(list)
        self._consumer = Consumer(url, "readers", "t", auto_offset_reset="earliest")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            rows = self._consumer.poll(timeout_ms=200)
            columns = (rows[name].to_pylist() for name in ("partition", "offset", "value"))
            for partition, offset, value in zip(*columns, strict=True):
                self.read[partition].append((offset, value))

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def scheduler(data: str, remote: Path, engine: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`lakelog maintain`, one run after the other."""
    words = ["maintain", "--data", data, "--remote-root", str(remote), "--every", "1s", "--nice", "0"]
    words += ["--engine", engine]
    process = subprocess.Popen([sys.executable, "-m", "lakelog", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(120) == 0


def of_topic(spark: SparkSession, data: str) -> DataFrame:
    """A stream of `t` by lakelog's source."""
    source = spark.readStream.format("lakelog").option("subscribe", "t")
    return source.option("startingOffsets", "earliest").load(data)


def of_table(spark: SparkSession, data: str) -> DataFrame:
    """A stream by Delta's own source over the topic's table."""
    return spark.readStream.format("delta").option("skipChangeCommits", "true").load(f"{data}/topics/t")


@contextmanager
def stream(source: DataFrame, directory: Path, in_order: bool = True) -> Iterator[Read]:
    """The records that a Spark query reads of `source` while the block runs, by partition. With `in_order`
    False they are sorted first: Delta's source orders files only from one micro-batch to the next.
    """
    read: Read = defaultdict(list)

    def take(batch: DataFrame, _batch_id: int) -> None:
        rows = batch.select("partition", "offset", "value").collect()
        for row in rows if in_order else sorted(rows):
            read[row.partition].append((row.offset, bytes(row.value)))

    query = started(
        source.writeStream.foreachBatch(take).option("checkpointLocation", str(directory / "checkpoint"))
    )
    try:
        yield read
        assert query.exception() is None
    finally:
        query.stop()


class Runs:
    """The log of job runs. It is read again only when it has grown: reading takes time from the jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._end, self._rows = cluster, 0, list[dict[str, Any]]()

    def await_times(self, job: str, topic: str, rounds: int) -> None:
        """Wait until `job` has done something to `topic` so many times. Fails when it could not."""
        for count in range(1, rounds + 1):
            done = partial(self._has_run, job, topic, count)
            wait_until(done, f"{job} of {topic}, {count} times", LIMIT_S)

    def _has_run(self, job: str, topic: str, times: int) -> bool:
        self._refresh()
        rows = [row for row in self._rows if row["job"] == job and row["topic"] == topic]
        assert [row["error"] for row in rows if row["error"]] == []
        return len(rows) >= times

    def _refresh(self) -> None:
        self._cluster.refresh()
        log = self._cluster.cached_topic(MAINTENANCE)
        if log is None:
            return
        log.partition(0).refresh()
        end = log.partition(0).high_watermark
        if end != self._end:
            self._end, self._rows = end, runs_table(self._cluster).to_pylist()


def await_read(read: Read, count: int) -> None:
    wait_until(lambda: sum(map(len, read.values())) >= count, f"{count} records are read", LIMIT_S)


def maintain_beside(spark: SparkSession, directory: Path, engine: str, rounds: int) -> None:
    """Let every job do something `rounds` times while records come and go."""
    with running_gateway(directory / "data", linger_ms=0) as gateway:
        cluster = Cluster.open(open_store(gateway.data))
        set_remote_root(cluster, directory / "away")
        often = {"merge_min_age_ms": "0", "segment_bytes": "5000"}
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "5000"}
        keyed = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.1", "delete_retention_ms": "0"}
        gateway.create_topic("t", PARTITIONS, **often, **tiered)
        gateway.create_topic("k", 1, **often, **keyed)
        producer, reader = Producer(gateway), GroupReader(gateway.url)
        away = directory / "away"
        try:
            with (
                stream(of_topic(spark, gateway.data), directory / "topic") as streamed,
                stream(of_table(spark, gateway.data), directory / "table", in_order=False) as of_delta,
            ):
                await_read(of_delta, 1)  # else its first snapshot may be without what is tiered by then
                with scheduler(gateway.data, away, engine):
                    runs = Runs(cluster)
                    for job, topic in WORK:
                        runs.await_times(job, topic, rounds)
                    count = producer.end()
                    await_read(streamed, count)
                    await_read(of_delta, count)
                    await_read(reader.read, count)
        finally:
            producer.end()
            reader.end()
        assert producer.refused == []
        assert streamed == of_delta == reader.read == producer.acknowledged
        for index, partition in enumerate(cluster.topic("t").partitions()):
            partition.refresh()
            assert [*held(partition).items()] == producer.acknowledged[index]
        (states,) = cluster.topic("k").partitions()
        states.refresh()
        assert {record.key: record.value for record in records(states)} == producer.newest
        assert check(cluster.store).problems == []


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.torture)])
def test_nobody_notices_the_jobs(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    maintain_beside(spark, tmp_path, engine, rounds=1)


@pytest.mark.torture
@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_notices_the_jobs_for_minutes(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    maintain_beside(spark, tmp_path, engine, rounds=50)
