"""A driver in a process of its own: copies the topic `in` to the topic `out`, in small batches, to its end.

python -m tests.kit.spark_sink_copy MASTER ROOT GATEWAY CHECKPOINT

The query is deliberately not deterministic: a batch that is run again has other values, for other partitions.
What says which record of `in` it was is the key.
"""

import sys

from pyspark.sql import SparkSession

from tests.kit.queries import run_to_end

OFFSETS_PER_TRIGGER = 30
PARTITIONS = 3

SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # As eager as it can be.
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


def main(master: str, root: str, gateway: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master(master).appName("topic to topic")
    spark = builder.config(map=SETTINGS).getOrCreate()
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.TaskSetManager", log4j.Level.INFO)
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load(root)
    )
    changed = records.selectExpr(
        "concat_ws('-', partition, offset) AS key",
        "to_json(struct(CAST(value AS STRING) AS v, rand() AS r, current_timestamp() AS at)) AS value",
        f"CAST(rand() * {PARTITIONS} AS INT) AS partition",
    )
    run_to_end(
        changed.writeStream.format("lakelog")
        .options(path=root, topic="out", gateway=gateway, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
