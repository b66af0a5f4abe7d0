"""The topic `flights` as a streaming table, and its late flights as records of the topic `late_flights`.

    lakelog serve --data ./lakelog-data
    lakelog topic create late_flights
    spark-pipelines run --remote sc://127.0.0.1:15002 --spec examples/pipeline/spark-pipeline.yml

Each run takes in what is new since the last one.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()
root = os.path.abspath(spark.conf.get("lakelog.root") or "")  # relative to the folder of the pipeline's file


@dp.table
def flights() -> DataFrame:
    """Each record of the topic, and what of its value the view asks for."""
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load(root)
    )
    flight = F.from_json(F.col("value").cast("string"), "carrier string, dep_delay double")
    return records.select("*", flight.alias("flight")).select("key", "value", "timestamp", "flight.*")


dp.create_sink(
    "late_flights",
    "lakelog",
    {"path": root, "topic": "late_flights", "gateway": spark.conf.get("lakelog.gateway") or ""},
)


@dp.append_flow(target="late_flights")
def late() -> DataFrame:
    return spark.readStream.table("flights").where("dep_delay > 15").select("key", "value", "timestamp")
