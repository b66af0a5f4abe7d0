"""A stream joined with a table: flights with the names of their carriers.

    python examples/with_names.py ./lakelog-data ./flights_with_names

The table of names is read again for every micro-batch: what changes in it is seen by the flights that come
after.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakelog.spark import session

NAMES = [("AA", "American Airlines"), ("DL", "Delta Air Lines"), ("UA", "United Air Lines")]


def main(spark: SparkSession, root: str, target: str) -> None:
    """Add to the table `target` what the topic `flights` of `root` holds now and it does not."""
    spark.createDataFrame(NAMES, "carrier string, name string").write.format("delta").mode("overwrite").save(
        f"{target}_names"
    )
    names = spark.read.format("delta").load(f"{target}_names")
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load(root)
    )
    flights = records.select(
        "partition",
        "offset",
        F.get_json_object(F.col("value").cast("string"), "$.carrier").alias("carrier"),
        F.get_json_object(F.col("value").cast("string"), "$.flight").cast("int").alias("flight"),
    )
    query = (
        flights.join(F.broadcast(names), "carrier", "left")
        .writeStream.format("delta")
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(session("flights with names"), *sys.argv[1:3])
