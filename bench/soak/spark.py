"""A Spark stream from the topic to a Delta table: `python -m bench.soak.spark JOB`, where JOB is a
`Job` as JSON.

It prints `READY` when its query runs, and goes on until stdin ends; then it copies what is left. When the
query fails, because the store is away, it is started again from its checkpoint.
"""

import sys
import threading
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.soak.plan import TABLE
from bench.spark_job import Job
from bench.spark_worker import ENGINES, work

EVERY = "5 seconds"
_STARTS_MAX = 20
"""Of the query that copies what is left."""
_LOOK_AGAIN_S = 1.0


def copied(spark: SparkSession, job: Job) -> dict[str, int]:
    """How often the query failed, and its micro-batches."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    failures = 0
    while not ended.is_set():
        query = _writer(spark, job).trigger(processingTime=EVERY).start()
        print("READY", flush=True)
        while query.isActive and not ended.wait(_LOOK_AGAIN_S):
            pass
        if query.isActive:
            query.stop()
        else:
            failures += 1
            print("the query failed:", query.exception(), file=sys.stderr, flush=True)
    failures += _copy_the_rest(spark, job)
    commits = Path(job.directory, "checkpoint", "commits").glob("[0-9]*")
    return {"failures": failures, "batches": max((int(each.name) for each in commits), default=-1) + 1}


def _copy_the_rest(spark: SparkSession, job: Job) -> int:
    """How often that failed before it succeeded. Raises StreamingQueryException if it never does."""
    for failures in range(_STARTS_MAX):
        try:
            _writer(spark, job).trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            print("the last query failed:", error, file=sys.stderr, flush=True)
        else:
            return failures
    raise RuntimeError(f"the last query failed {_STARTS_MAX} times")


def _writer(spark: SparkSession, job: Job) -> DataStreamWriter:
    rows = ENGINES[job.engine](job, lambda: spark.readStream, 1)
    checkpoint = f"{job.directory}/checkpoint"
    return (
        rows.writeStream.format("delta")
        .option("path", f"{job.directory}/{TABLE}")
        .option("checkpointLocation", checkpoint)
    )


if __name__ == "__main__":
    work({"copy": copied})
