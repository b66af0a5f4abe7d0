"""A streaming aggregation with a watermark: the mean delay of each carrier's flights, day by day.

    python examples/delays_by_day.py ./lakelog-data ./delays_by_day

reads the topic `flights` that `make demo` leaves in ./lakelog-data. A day is written to the Delta table once
no flight of it is expected any more: when the stream has seen a flight that left two days after its end.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakelog.spark import session

FLIGHT = "carrier string, dep_delay double"


def main(spark: SparkSession, root: str, target: str) -> None:
    """Take in what the topic `flights` of `root` holds now and the table `target` does not."""
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load(root)
    )
    flights = records.select(
        "timestamp", F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    ).select("timestamp", "flight.*")
    delays = (
        # The partitions of a topic are read side by side: one may be days ahead of another.
        flights.withWatermark("timestamp", "2 days")
        .groupBy(F.window("timestamp", "1 day"), "carrier")
        .agg(F.avg("dep_delay").alias("delay"), F.count("*").alias("flights"))
        .select(F.to_date("window.start").alias("day"), "carrier", "delay", "flights")
    )
    query = (
        delays.writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)  # leave this out, and the query runs on until it is stopped
        .start(target)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(session("delays by day"), *sys.argv[1:3])
