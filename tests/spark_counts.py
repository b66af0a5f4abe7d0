"""A job for a cluster: how many records each partition of the topic `t` holds, as a batch and as a stream.

spark-submit tests/spark_counts.py ROOT TARGET
"""

import sys

from pyspark.sql import SparkSession

from lakelog.spark import register


def main(root: str, target: str) -> None:
    """Write the counts to the directories `batch` and `stream` of `target`, with where lakelog was found."""
    import lakelog

    spark = SparkSession.builder.getOrCreate()
    register(spark)
    records = spark.read.format("lakelog").option("subscribe", "t").load(root)
    records.groupBy("partition").count().write.json(f"{target}/batch")
    stream = spark.readStream.format("lakelog").option("subscribe", "t").option("startingOffsets", "earliest")
    query = (
        stream.load(root)
        .select("partition", "offset")
        .writeStream.format("json")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{target}/stream")
    )
    query.awaitTermination()
    print("lakelog at", lakelog.__file__)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
