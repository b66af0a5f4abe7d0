"""A job for a cluster: copies the records of the topic `t`, as a batch and as a stream.

spark-submit tests/kit/spark_counts.py ROOT TARGET [register | topics]
"""

import json
import sys

from pyspark.sql import SparkSession


def code_directory(_: int) -> str:
    """The file from which the process that runs this imports lakelog."""
    import lakelog

    return str(lakelog.__file__)


def main(root: str, target: str, *words: str) -> None:
    """Write the records to the directories `batch` and `stream` of `target`; print where lakelog is."""
    spark = SparkSession.builder.getOrCreate()
    if "register" in words:
        from lakelog.spark import register

        register(spark)
    if "topics" in words:
        from lakelog.spark import topics

        topics(spark, root, names="consumer_lag")  # which makes the source known, too
        assert spark.sql("SELECT * FROM consumer_lag").collect() == []
    batch = spark.read.format("lakelog").option("subscribe", "t").load(root)
    batch.select("partition", "offset", "value").write.json(f"{target}/batch")
    stream = spark.readStream.format("lakelog").option("subscribe", "t").option("startingOffsets", "earliest")
    query = (
        stream.load(root)
        .select("partition", "offset", "value")
        .writeStream.format("json")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{target}/stream")
    )
    query.awaitTermination()
    executors = spark.sparkContext.range(8, numSlices=8).map(code_directory).collect()
    print("lakelog at", json.dumps([code_directory(0), *executors]))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
