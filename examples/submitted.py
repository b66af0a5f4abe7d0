r"""A batch job for spark-submit: how many records each partition of a topic holds, as CSV.

    pip wheel --no-deps --wheel-dir dist .
    spark-submit --py-files dist/lakelog-0.1.0-py3-none-any.whl \
        examples/submitted.py ./lakelog-data flights ./counts

The cluster's Python needs pyarrow, msgspec, mmh3 and numpy, and obstore where the root is an object store;
lakelog itself comes with the job.
"""

import sys

from pyspark.sql import SparkSession

from lakelog.spark import register


def main(root: str, topic: str, target: str) -> None:
    """Count the records of `topic`, and write the counts to the directory `target`."""
    spark = SparkSession.builder.appName("records by partition").getOrCreate()
    register(spark)  # what comes with --py-files, Spark does not find by itself
    records = (
        spark.read.format("lakelog")
        .option("path", root)
        .option("subscribe", topic)
        .option("columns", "partition")  # nothing of the records themselves is read but their offsets
        .load()
    )
    counts = records.groupBy("partition").count().orderBy("partition")
    counts.coalesce(1).write.mode("overwrite").option("header", True).csv(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
