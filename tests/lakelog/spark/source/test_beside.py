"""A stream while producers write, and merges, checkpoints and a vacuum that waits for nobody run."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from log_tables.clock import ManualClock
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.queries import started
from tests.kit.spark import Topics
from tests.kit.support import wait_until

pytestmark = pytest.mark.spark

PARTITIONS = 3


class Others:
    """Change the topic `t` while a query reads it: appends, and merges whose inputs vanish."""

    def __init__(self, topics: Topics, seed: int, rounds: int) -> None:
        self._topics, self._draw, self._rounds = topics, ManualClock(seed=seed), rounds
        self.appended = [0] * PARTITIONS
        self.merges = 0
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in range(self._rounds):
                index = self._below(PARTITIONS)
                records = 1 + self._below(20)
                base = self.appended[index]
                made = [Record(b"%d-%d" % (index, base + number)) for number in range(records)]
                self._topics.put("t", index, *made)
                self.appended[index] += records
                if number % 10 == 9:
                    self._merge(self._below(PARTITIONS))
        except BaseException as error:
            self.failed = error
            raise

    def _below(self, bound: int) -> int:
        return int(self._draw.random() * bound)

    def _merge(self, index: int) -> None:
        partition = self._topics.partition("t", index)
        if len(partition.snapshot.segments) > 1:
            self._topics.merge("t", index)
            partition.checkpoint()
            self.merges += 1

    def end(self) -> None:
        self._thread.join()
        assert self.failed is None


def run_beside(spark: SparkSession, directory: Path, seed: int, rounds: int) -> None:
    topics = Topics(open_store(directory / "root"))
    topics.create("t", PARTITIONS)
    read: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]

    def take(batch: DataFrame, _batch_id: int) -> None:
        for row in batch.select("partition", "offset", "value").collect():
            read[row.partition].append((row.offset, bytes(row.value)))

    query = started(
        spark.readStream.format("lakelog")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load(str(directory / "root"))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    others = Others(topics, seed, rounds)
    try:
        others.end()
        wait_until(
            lambda: sum(map(len, read)) >= sum(others.appended) or not query.isActive,
            "everything is read",
            timeout_s=120,
        )
        assert query.exception() is None
    finally:
        query.stop()
    assert others.merges > 0
    assert read == [
        [(offset, b"%d-%d" % (index, offset)) for offset in range(count)]
        for index, count in enumerate(others.appended)
    ]


def test_a_stream_reads_each_record_once_in_order_whatever_becomes_of_the_files(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    run_beside(spark, tmp_path, seed, rounds=400)


@pytest.mark.torture
def test_a_stream_does_so_for_minutes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    run_beside(spark, tmp_path, seed, rounds=40_000)
