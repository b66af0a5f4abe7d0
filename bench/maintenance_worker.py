"""A maintenance job measured in a Spark of its own: `python -m bench.maintenance_worker JOB`.

What is compared runs in the same warm session, each time on a fresh copy of the root that the job names.
"""

import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.cells import Figures
from bench.contest import OURS, Results
from bench.maintenance_load import content, files, table
from bench.spark_job import Job
from bench.spark_worker import work
from jobs import key_compaction, segment_compaction
from jobs.engine import Engine
from jobs.local_engine import LocalEngine
from jobs.outcome import JobOutcome
from jobs.spark_engine import SparkEngine
from jobs.state import look
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store

OPTIMIZE = "Delta's OPTIMIZE"
LOCAL = "the local engine"
CORES = 2
"""Of the session: `local[2]`."""
_WARM_TABLES = 4


def merge(spark: SparkSession, job: Job) -> Results:
    """Segment compaction of all partitions by both engines, and OPTIMIZE of one table after the other."""
    before, held = content(job.source, job.partitions), files(job.source, job.partitions)
    ours, local, theirs = _copy(job, "merged"), _copy(job, "merged-locally"), _copy(job, "optimized")
    engine = LocalEngine()
    _merged(engine, job, _copy(job, "warm-local"))
    _merge(spark, job, _copy(job, "warm"))
    _optimize(spark, _copy(job, "warm-optimize"), range(min(_WARM_TABLES, job.partitions)))
    os.sync()  # or the first that is measured waits for the copies
    seconds, done = _merge(spark, job, ours)
    os.sync()
    local_seconds, _ = _merged(engine, job, local)
    engine.end_run()
    os.sync()
    optimize_seconds = _optimize(spark, theirs, range(job.partitions))
    for root in (ours, local, theirs):
        if content(root, job.partitions) != before or files(root, job.partitions) >= held:
            raise RuntimeError(f"{root.name}: the tables do not hold the same records in fewer files")
    share = seconds * min(CORES, len(done)) * 1e6
    return {
        OURS: {
            "records/s": job.records / seconds,
            "files after": files(ours, job.partitions),
            "MB of values/s per core": sum(size for *_, size in before) / share,
            "MB of files/s per core": sum(outcome.bytes_before for outcome in done) / share,
        },
        LOCAL: {
            "records/s": job.records / local_seconds,
            "files after": files(local, job.partitions),
        },
        OPTIMIZE: {
            "records/s": job.records / optimize_seconds,
            "files after": files(theirs, job.partitions),
        },
    }


def _copy(job: Job, name: str) -> Path:
    """The root of the job, byte for byte."""
    return Path(shutil.copytree(job.source, Path(job.directory, name)))


def _merge(spark: SparkSession, job: Job, root: Path) -> tuple[float, list[JobOutcome]]:
    """`_merged` in one Spark job."""
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup(root.name, root.name)
    seconds, done = _merged(SparkEngine(lambda: spark), job, root)
    if len(tracker.getJobIdsForGroup(root.name)) != 1:
        raise RuntimeError(f"not one Spark job for all partitions: {done}")
    return seconds, done


def _merged(engine: Engine, job: Job, root: Path) -> tuple[float, list[JobOutcome]]:
    """Seconds from opening the root, and what was done, in all partitions."""
    begin = timer()
    cluster = Cluster.open(open_store(str(root)))
    states, _ = look(cluster)
    steps = segment_compaction.plan(states, cluster.clock.now_ms())
    done = [*segment_compaction.run(engine, cluster, steps)]
    seconds = timer() - begin
    _check(done)
    if len({outcome.partition for outcome in done}) != job.partitions:
        raise RuntimeError(f"not all partitions are merged: {done}")
    return seconds, done


def _check(done: Sequence[JobOutcome]) -> None:
    failed = [outcome for outcome in done if outcome.error]
    if failed or not done:
        raise RuntimeError(f"{len(done)} partitions, failed: {failed[:3]}")


def _optimize(spark: SparkSession, root: Path, partitions: range) -> float:
    begin = timer()
    for index in partitions:
        spark.sql(f"OPTIMIZE delta.`{table(root, index)}`").collect()
    return timer() - begin


def read(spark: SparkSession, job: Job) -> Results:
    """A count and sums over a table of many segments, and over the same table after compaction."""
    root = _copy(job, "read")
    before = _read(spark, job, root)
    _merge(spark, job, root)
    return {OURS: _read(spark, job, root), "before compaction": before}


def _read(spark: SparkSession, job: Job, root: Path) -> Figures:
    source = spark.read.format("lakelog").option("path", str(root)).option("subscribe", job.topic)
    native = spark.read.format("delta")
    return {
        "rows/s": job.records / _seconds(job, source.load),
        "rows/s by Delta alone": job.records / _seconds(job, lambda: native.load(table(root))),
    }


def _seconds(job: Job, rows: Callable[[], DataFrame]) -> float:
    """The median of three reads after one that is not timed."""
    times = []
    for _ in range(4):
        begin = timer()
        sums = (f.sum("offset"), f.sum(f.length("value")))
        found = rows().agg(f.count(f.lit(1)), *sums).collect()[0]
        times.append(timer() - begin)
        if tuple(found)[:2] != (job.records, job.records * (job.records - 1) // 2):
            raise RuntimeError(f"the table of {job.records} records was read as {found}")
    return statistics.median(times[1:])


def clean(spark: SparkSession, job: Job) -> Results:
    """Compaction by key of one partition."""
    _clean(spark, _copy(job, "warm"))
    root = _copy(job, "cleaned")
    rows = spark.read.format("delta").load(table(root)).select("key", "offset")
    newest = rows.groupBy("key").agg(f.max("offset").alias("offset"))
    expected = newest.agg(f.count(f.lit(1)), f.sum("offset")).collect()[0]
    seconds = _clean(spark, root)
    count, total, *_ = content(root, 1)[0]
    if (count, total) != tuple(expected):
        raise RuntimeError(f"{count} records stayed, their offsets make {total}; expected {expected}")
    return {OURS: {"records/s": job.records / seconds, "records left": count}}


def _clean(spark: SparkSession, root: Path) -> float:
    begin = timer()
    cluster = Cluster.open(open_store(str(root)))
    states, _ = look(cluster)
    steps = key_compaction.plan(states, cluster.clock.now_ms())
    done = [*key_compaction.run(SparkEngine(lambda: spark), cluster, steps)]
    seconds = timer() - begin
    _check(done)
    return seconds


if __name__ == "__main__":
    work({"merge": merge, "read": read, "clean": clean})
