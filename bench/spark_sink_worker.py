"""Writing to a topic, measured in a Spark of its own: `python -m bench.spark_sink_worker JOB`."""

from dataclasses import replace

from pyspark.sql import SparkSession

from bench.contest import OURS
from bench.spark_job import Job
from bench.spark_worker import ENGINES, work
from log_tables.clock import SystemClock, timer
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store

_PAUSE_S = 0.01


def sink(spark: SparkSession, job: Job) -> dict[str, float]:
    """Rows a second until a reader can have them, after a stream that warms Spark."""
    streams = _Streams(spark, job)
    streams.write("warm", 1, "value")
    figures = {
        "rows/s": streams.write("whole", 1, "value"),
        f"rows/s in {job.files} batches": streams.write("parts", job.files, "value"),
        "rows/s with keys": streams.write("keys", 1, "key", "value"),
    }
    held = ENGINES[job.engine](replace(job, columns="offset"), lambda: spark.read, 1).count()
    # Kafka's sink may write a row twice.
    if held < streams.sent or (job.engine == OURS and held > streams.sent):
        raise RuntimeError(f"{streams.sent} rows were written, {held} are there")
    return figures


class _Streams:
    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark, self._job, self.sent = spark, job, 0

    def write(self, name: str, batches: int, *columns: str) -> float:
        """All rows as a stream of their own, in so many batches; rows a second."""
        job = self._job
        reader = self._spark.readStream.schema("key BINARY, value BINARY")
        rows = reader.option("maxFilesPerTrigger", job.files // batches).parquet(job.rows).select(*columns)
        writer = rows.writeStream.format(job.engine).option("topic", job.topic)
        if job.engine == OURS:
            writer = writer.option("path", job.source).option("gateway", job.gateway)
        else:
            writer = writer.option("kafka.bootstrap.servers", job.source)
        writer = writer.option("checkpointLocation", f"{job.directory}/{name}")
        begin = timer()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        self.sent += job.records
        if job.engine == OURS:
            self._wait_until_held()
        elapsed = timer() - begin
        worked = sum(progress["numInputRows"] > 0 for progress in query.recentProgress)
        if worked != batches:
            raise RuntimeError(f"{name}: {worked} batches instead of {batches}")
        return job.records / elapsed

    def _wait_until_held(self) -> None:
        """A transaction may be answered when it is committed, before its rows are where they belong."""
        topic, clock = Cluster.open(open_store(self._job.source)).topic(self._job.topic), SystemClock()
        partitions = topic.partitions()
        while sum(partition.high_watermark for partition in partitions) < self.sent:
            clock.pause(_PAUSE_S)
            for partition in partitions:
                partition.refresh()


if __name__ == "__main__":
    work({"sink": sink})
