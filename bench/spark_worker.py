"""One measurement in a Spark of its own: `python -m bench.spark_worker JOB`, where JOB is a `Job` as JSON.

Prints `READY` once it can be loaded (freshness and planning, which then go on until stdin ends), and
`FIGURES` with a JSON object when it is done.
"""

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from bench import load
from bench.contest import OURS
from bench.spark_job import Job
from bench.spark_load import append
from lakelog.spark import register, session, topics
from lakelog.spark.sql.topic_scan import union_of_scans
from log_tables.clock import SystemClock, timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.layout import partition_directory, topic_directory
from log_tables.record import binary_array
from log_tables.store.store import open_store

LOOKUPS = 20
UNION = "a scan of each partition"
_TURNS = 2


def _spark(job: Job) -> SparkSession:
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{job.directory}/local",
        "spark.sql.warehouse.dir": f"{job.directory}/warehouse",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session("bench", **settings, **({"spark.jars": job.jars} if job.jars else {}))
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


Reader = DataFrameReader | DataStreamReader


def _lakelog(job: Job, reader: Callable[[], Reader], batches: int) -> DataFrame:
    made = reader().format("lakelog").option("path", job.source).option("subscribe", job.topic)
    made = made.option("columns", job.columns) if job.columns else made
    return _limited(job, made, batches).load()


def _kafka(job: Job, reader: Callable[[], Reader], batches: int) -> DataFrame:
    made = (
        reader().format("kafka").option("kafka.bootstrap.servers", job.source).option("subscribe", job.topic)
    )
    return _limited(job, made, batches).load()


def _limited(job: Job, reader: Reader, batches: int) -> Reader:
    reader = reader.option("startingOffsets", "earliest")
    return reader if batches == 1 else reader.option("maxOffsetsPerTrigger", -(-job.records // batches))


def _delta(job: Job, reader: Callable[[], Reader], batches: int) -> DataFrame:
    """The rows and columns of `lakelog`'s source, from a native scan of each partition's table."""
    frames = []
    for index in range(job.partitions):
        made = reader().format("delta")
        if batches > 1:
            made = made.option("maxFilesPerTrigger", -(-job.files // batches))
        frame = made.load(str(Path(job.source, partition_directory(topic_directory(job.topic), index))))
        literals = {"topic": f.lit(job.topic), "partition": f.lit(index), "timestampType": f.lit(0)}
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        frames.append(frame.withColumns(literals).select(*columns))
    return reduce(DataFrame.unionAll, frames)


ENGINES = {"lakelog": _lakelog, "kafka": _kafka, "delta": _delta}


def batch(spark: SparkSession, job: Job) -> dict[str, float]:
    """All rows to `noop`: the median of three reads, after one that also counts them."""

    def frame() -> DataFrame:
        return ENGINES[job.engine](job, lambda: spark.read, 1)

    counted = Observation("counted")
    _drop(frame().observe(counted, f.count(f.lit(1)).alias("rows")))
    _check(job, counted.get["rows"])
    times = []
    for _ in range(3):
        begin = timer()
        _drop(frame())
        times.append(timer() - begin)
    return {"rows/s": job.records / statistics.median(times)}


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _check(job: Job, rows: int) -> None:
    if rows != job.records:
        raise RuntimeError(f"{job.engine} gave {rows} of {job.records} rows")


def stream(spark: SparkSession, job: Job) -> dict[str, float]:
    """AvailableNow to `noop`: in one batch, which is run once before it is timed, and in about ten."""
    _available_now(spark, job, "warm", 1)
    whole, _ = _available_now(spark, job, "whole", 1)
    parts, count = _available_now(spark, job, "parts", 10)
    return {"rows/s": whole, "rows/s in batches": parts, "batches": count}


def _available_now(spark: SparkSession, job: Job, name: str, batches: int) -> tuple[float, int]:
    """Rows a second, and how many batches there were."""
    frame = ENGINES[job.engine](job, lambda: spark.readStream, batches)
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{job.directory}/{name}")
    begin = timer()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    elapsed = timer() - begin
    worked = [progress for progress in query.recentProgress if progress["numInputRows"]]
    _check(job, sum(progress["numInputRows"] for progress in worked))
    return job.records / elapsed, len(worked)


def planning(spark: SparkSession, job: Job) -> dict[str, float]:
    """How long a trigger took to know what to read, after the first, while records came in."""
    frame = ENGINES[job.engine](job, lambda: spark.readStream, 1)
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{job.directory}/checkpoint")
    query = writer.start()
    query.processAllAvailable()
    first = query.recentProgress[-1]["batchId"]
    _until_told()
    worked = [
        progress["durationMs"]
        for progress in _stopped(query)
        if progress["numInputRows"] and progress["batchId"] > first
    ]
    planned = [
        sum(took.get(step, 0) for step in ("latestOffset", "getBatch", "queryPlanning")) for took in worked
    ]
    return {
        "p50 ms": statistics.median(planned),
        "max ms": max(planned),
        "latestOffset p50 ms": statistics.median(took["latestOffset"] for took in worked),
        "whole trigger p50 ms": statistics.median(took["triggerExecution"] for took in worked),
        "triggers": len(worked),
    }


def fresh(spark: SparkSession, job: Job) -> dict[str, int]:
    """When the rows of each offset were in the driver's hands, in microseconds since 1970."""
    seen: dict[str, int] = {}
    clock = SystemClock()

    def take(rows: DataFrame, _batch: int) -> None:
        offsets = [str(row[0]) for row in rows.select("offset").collect()]
        seen.update(dict.fromkeys(offsets, clock.now_us()))

    writer = ENGINES[job.engine](job, lambda: spark.readStream, 1).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", f"{job.directory}/checkpoint").start()
    _until_told()
    _stopped(query)
    return seen


def _until_told() -> None:
    print("READY", flush=True)
    sys.stdin.read()


def _stopped(query: StreamingQuery) -> list[Any]:
    """Stop the query once it has read all; what each trigger told."""
    query.processAllAvailable()
    progress = list(query.recentProgress)
    query.stop()
    return progress


def lookup(spark: SparkSession, job: Job) -> dict[str, float]:
    """One row by its offset through the topic's view: each time another segment."""
    topics(spark, job.source)
    took, files = [], []
    for number in range(LOOKUPS + 1):
        offset = number * (job.records - 1) // LOOKUPS
        found = spark.sql(f"SELECT * FROM `{job.topic}` WHERE `offset` = {offset}")
        begin = timer()
        rows = found.collect()
        took.append((timer() - begin) * 1e3)
        if [row["offset"] for row in rows] != [offset]:
            raise RuntimeError(f"a lookup of offset {offset} gave {len(rows)} rows")
        files.append(_files_read(found))
    return {"files read, at most": max(files), "p50 ms": statistics.median(took[1:]), "first ms": took[0]}


def views(spark: SparkSession, job: Job) -> dict[str, dict[str, float]]:
    """The planning of a count over the topic's view, and over a scan of each partition's table.

    Each turn appends a segment to every partition and folds them. The first turn warms Spark.
    """
    clock, values = SystemClock(), binary_array(load.values(10))
    cluster = Cluster.open(open_store(job.source), clock)
    topic = cluster.topic(job.topic)
    leading = [cluster.claim(topic, index) for index in range(topic.partition_count)]
    fold(topic)
    topics(spark, job.source, names=job.topic)
    frames = {
        OURS: spark.table(f"`{job.topic}`"),
        UNION: union_of_scans(spark, cluster, job.topic, topic.partitions(), pa.schema([])),
    }
    took: dict[str, list[dict[str, float]]] = {name: [] for name in frames}
    for _ in range(_TURNS + 1):
        for partition in leading:
            append(partition, values, clock)
        fold(topic)
        held = sum(partition.high_watermark for partition in leading)
        for name, frame in frames.items():
            took[name].append(
                {"plan ms": _planned(frame, held), "plan ms without news": _planned(frame, held)}
            )
    return {
        name: {figure: statistics.median(turn[figure] for turn in turns[1:]) for figure in turns[0]}
        for name, turns in took.items()
    }


def _planned(frame: DataFrame, held: int) -> float:
    """Milliseconds that the plan of a count takes, which then finds `held` rows."""
    count = frame.groupBy().count()
    begin = timer()
    count._jdf.queryExecution().executedPlan()
    took = (timer() - begin) * 1e3
    (row,) = count.collect()
    if row[0] != held:
        raise RuntimeError(f"a view counts {row[0]} of {held} records")
    return took


def _files_read(frame: DataFrame) -> int:
    """The `numFiles` of all scans in the plan that ran."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(index).metrics() for index in range(leaves.size())]
    return sum(int(each.apply("numFiles").value()) for each in metrics if each.contains("numFiles"))


VERBS = {
    "batch": batch,
    "stream": stream,
    "planning": planning,
    "fresh": fresh,
    "lookup": lookup,
    "views": views,
}


def work(verbs: Mapping[str, Callable[[SparkSession, Job], Any]]) -> None:
    """Do the job that the command line names, with the verb that it names."""
    job = Job(**json.loads(sys.argv[1]))
    spark = _spark(job)
    print("FIGURES", json.dumps(verbs[job.verb](spark, job)), flush=True)
    spark.stop()


if __name__ == "__main__":
    work(VERBS)
